package sqlitestore

import (
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) session.Store { return open(t, t.TempDir()) })
}

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) session.Store {
		s, err := Open(t.Context(), Memory)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestDurable(t *testing.T) {
	t.Parallel()
	storetest.RunDurable(t, func(t *testing.T, dir string) session.Store { return open(t, dir) })
}

// open returns the store in dir, which the caller closes.
func open(t testing.TB, dir string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(dir, "agentd.db"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFull(t *testing.T) {
	t.Parallel()
	storetest.RunFull(t, func(t *testing.T) (session.Store, func()) {
		s := open(t, t.TempDir(), WithMaxBytes(1<<20))
		return s, func() {
			if err := s.SetMaxBytes(t.Context(), 8<<20); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFailing fails a COMMIT in both ways: the transaction is on disk or it is
// not, and the store cannot know.
func TestFailing(t *testing.T) {
	t.Parallel()
	storetest.RunFailing(t, func(t *testing.T, dir string) (session.Store, func(bool)) {
		var next func(commit func() error) error // set while no append is under way
		s := open(t, dir, withCommit(func(commit func() error) error {
			if next != nil {
				return next(commit)
			}
			return commit()
		}))
		return s, func(persisted bool) {
			next = func(commit func() error) error {
				errDisk := errors.New("the disk is on fire")
				if persisted {
					return errors.Join(errDisk, commit())
				}
				return errDisk
			}
		}
	})
}
