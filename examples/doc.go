// Package examples has no code of its own: each folder is a program that shows
// one thing, and the tests here run them all, as well as the client of the
// README and a session with curl.
package examples
