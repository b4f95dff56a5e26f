package storetest

import (
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// test is one promise.
type test struct {
	name string
	run  func(t *testing.T, s store.Store)
}

// Harness opens the stores of one implementation. A function that is nil leaves out the promises that need
// it; an implementation may run them from tests of their own.
type Harness struct {
	// Open returns an empty store for this call alone; Run closes it.
	Open func(t *testing.T) store.Store
	// OpenAt returns the store that lives at dir, a directory that is empty at first; a store that lives
	// elsewhere takes dir as its name. A store that is opened again holds every write that has succeeded.
	OpenAt func(t *testing.T, dir string) store.Store
	// OpenFull returns an empty store that takes some records of 8 KiB and not thousands, and a function that
	// makes room for more.
	OpenFull func(t *testing.T) (s store.Store, makeRoom func())
	// OpenFailing returns the store that lives at dir, as OpenAt does, and a function that has the next commit
	// fail: with its records in the log, if persisted, or not.
	OpenFailing func(t *testing.T, dir string) (s store.Store, failNext func(persisted bool))
	// OpenLosing returns an empty store, and a function that has the reply to the next commit lost: of one that has
	// happened, if persisted, or not. A store whose failures last, see OpenFailing, has none.
	OpenLosing func(t *testing.T) (s store.Store, loseNext func(persisted bool))
	// Events says that the stores of Open and OpenTwo keep the events of batches. Without it those promises are
	// left out.
	Events bool
	// OpenTwo returns two stores on one database that is empty, as two processes have them.
	OpenTwo func(t *testing.T) (a, b store.Store)
}

// Run checks every promise. Each is a subtest with a store of its own; none runs in parallel with another.
func (h Harness) Run(t *testing.T) {
	if h.Open == nil && h.OpenAt == nil && h.OpenFull == nil && h.OpenFailing == nil &&
		h.OpenLosing == nil && h.OpenTwo == nil {
		t.Fatal("storetest: the Harness opens no store")
	}
	if h.Open != nil {
		runOpen(t, h.Open, openTests)
		if h.Events {
			runOpen(t, h.Open, [][]test{eventLogTests})
		}
	}
	if h.OpenAt != nil {
		runDurable(t, h.OpenAt)
	}
	if h.OpenFull != nil {
		runFull(t, h.OpenFull)
	}
	if h.OpenFailing != nil {
		runFailing(t, h.OpenFailing)
	}
	if h.OpenLosing != nil {
		runLosing(t, h.OpenLosing)
	}
	if h.OpenTwo != nil {
		runShared(t, h.OpenTwo)
		if h.Events {
			runTwo(t, h.OpenTwo, sharedEventTests)
		}
	}
}

// openTests are what all stores promise that can be seen without reopening the store.
var openTests = [][]test{
	sessionTests, appendTests, conflictTests, malformedTests, turnTests,
	epochTests, manyTests, readTests, sharedTests, spentTests, boundTests, rewriteTests, attemptsTests, purgeTests,
	infoTests, updateTests, listTests, rowTests, keyTests, batchTests, forkTests,
	contextTests, concurrencyTests, modelTests,
}

// runOpen checks what can be seen without reopening the store.
func runOpen(t *testing.T, open func(t *testing.T) store.Store, all [][]test) {
	for _, tests := range all {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				s := open(t)
				defer func() {
					if err := s.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}()
				test.run(t, s)
			})
		}
	}
}

// runDurable checks that a store that is opened again holds every write that has succeeded.
func runDurable(t *testing.T, open func(t *testing.T, dir string) store.Store) {
	for _, test := range durableTests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.run(t, func() store.Store {
				return open(t, dir)
			})
		})
	}
}
