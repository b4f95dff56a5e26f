// Package ttytest is a terminal for tests: a real one of the system, with a test in
// place of the person. It is there on Linux alone.
package ttytest
