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

// Run checks every promise that can be seen without reopening the store. open returns an empty store for
// this call alone; Run closes it. Each promise is a subtest with a store of its own; none runs in parallel
// with another.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, tests := range [][]test{
		sessionTests, appendTests, conflictTests, malformedTests, turnTests,
		epochTests, manyTests, readTests, sharedTests, attemptsTests, purgeTests,
		infoTests, updateTests, listTests, rowTests, keyTests, batchTests, forkTests,
		contextTests, concurrencyTests, modelTests,
	} {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				s := open(t)
				test.run(t, s)
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
	}
}

// RunDurable checks that a store that is opened again holds every write that has succeeded. open returns
// the store that lives at dir, a directory that is empty at first; a store that lives elsewhere takes dir
// as its name.
func RunDurable(t *testing.T, open func(t *testing.T, dir string) store.Store) {
	for _, test := range durableTests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.run(t, func() store.Store {
				return open(t, dir)
			})
		})
	}
}
