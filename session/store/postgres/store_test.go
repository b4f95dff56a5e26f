package postgres

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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

func TestStore(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	storetest.Harness{Events: true, Open: func(t *testing.T) store.Store { return openEmpty(t, url) }}.Run(t)
}

// openEmpty opens the store of a URL without what earlier tests have left in it: that takes less time than a new
// schema.
func openEmpty(t testing.TB, url string) *Store {
	t.Helper()
	s := openAt(t, url)
	_, err := s.pool.Exec(t.Context(), `TRUNCATE sessions, heads, asks, records, labels, entries, shared, keys, spent, session_counts,
		agent_eventlog`)
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

func TestTwo(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	storetest.Harness{Events: true, OpenTwo: func(t *testing.T) (store.Store, store.Store) {
		return openEmpty(t, url), openAt(t, url)
	}}.Run(t)
}

// TestLosing cuts the connection before the server reads a commit, and behind the commit.
func TestLosing(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	p := newProxy(t, addrOf(t, url))
	storetest.Harness{OpenLosing: func(t *testing.T) (store.Store, func(bool)) {
		losses := p.losses()
		t.Cleanup(func() {
			if n := p.losses() - losses; n != 1 {
				t.Errorf("%d commits were lost, want 1", n)
			}
		})
		return openEmpty(t, p.url(url, addrOf(t, url))), p.loseNext
	}}.Run(t)
}

// TestModes runs the suite as a pooler of transactions may need it, without prepared statements.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := pgserver.URL(t)
			url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "default_query_exec_mode=" + mode
			storetest.Harness{Events: true, Open: func(t *testing.T) store.Store { return openEmpty(t, url) }}.Run(t)
		})
	}
}

// addrOf returns the address of the server of a URL.
func addrOf(t testing.TB, url string) string {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}
