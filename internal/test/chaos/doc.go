// Package chaos holds the tests that break agentd on purpose. A real daemon on a
// real database file is killed, restarted and cut off while many sessions run
// trees of all shapes over it; its model is an HTTP server of the test, so that
// every model call is seen from outside. Then what every client saw, the log, the
// provider's count of calls and the tools' own records are held against each
// other: nothing may be lost, come twice, or be done again.
//
//	go test -run 'TestChaos$' ./internal/test/chaos -chaos.faults=300 -timeout 10m
//
// A run prints its seed and takes it as -chaos.seed: the trees, the answers and
// the order of the faults follow from it; when each strikes is up to the machine.
// TestKillPoints stops the daemon at each record of its log instead.
//
// The package has no code of its own; its tests import the rooms that a client,
// a store and a composition root are made of.
package chaos
