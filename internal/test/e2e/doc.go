// Package e2e holds the tests that need the whole of agentd: the real daemon,
// the real client, real wires. It has no code of its own.
package e2e
