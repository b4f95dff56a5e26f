package postgres

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openAt opens the store of a URL, which the caller closes.
func openAt(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	storetest.Harness{Open: func(t *testing.T) store.Store { return openEmpty(t, url) }}.Run(t)
}

// openEmpty opens the store of a URL without what earlier tests have left in it: that takes less time than a new
// schema.
func openEmpty(t testing.TB, url string) *Store {
	t.Helper()
	s := openAt(t, url)
	_, err := s.pool.Exec(t.Context(), `TRUNCATE sessions, heads, records, labels, entries, shared, keys, spent, session_counts`)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDurable(t *testing.T) {
	t.Parallel()
	urls := map[string]string{} // a directory is the name of a database
	storetest.Harness{OpenAt: func(t *testing.T, dir string) store.Store {
		if urls[dir] == "" {
			urls[dir] = pgserver.URL(t)
		}
		return openAt(t, urls[dir])
	}}.Run(t)
}
