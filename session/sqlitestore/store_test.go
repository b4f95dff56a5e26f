package sqlitestore

import (
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
