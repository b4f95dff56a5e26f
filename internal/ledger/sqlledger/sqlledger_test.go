package sqlledger_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/ledgertest"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/test/memledger"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

func open(t *testing.T, path string, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestLedger(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) ledger.Ledger {
			return sqlledger.New(open(t, filepath.Join(t.TempDir(), "a.db"), sqlite.Config{}))
		})
	})
	t.Run("memory", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) ledger.Ledger { return memledger.Open(t) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) ledger.Ledger { return sqlledger.New(openPostgres(t, pgserver.URL(t))) })
	})
	t.Run("database", func(t *testing.T) {
		ledgertest.RunDatabase(t, func(t *testing.T) ledgertest.Database {
			s := open(t, filepath.Join(t.TempDir(), "a.db"), sqlite.Config{})
			return ledgertest.Database{Store: s, Ledger: sqlledger.New(s)}
		})
	})
	t.Run("database of PostgreSQL", func(t *testing.T) {
		ledgertest.RunDatabase(t, func(t *testing.T) ledgertest.Database {
			s := openPostgres(t, pgserver.URL(t))
			return ledgertest.Database{Store: s, Ledger: sqlledger.New(s)}
		})
	})
	t.Run("shared", func(t *testing.T) {
		ledgertest.RunShared(t, func(t *testing.T) [2]ledger.Ledger {
			url := pgserver.URL(t)
			return [2]ledger.Ledger{sqlledger.New(openPostgres(t, url)), sqlledger.New(openPostgres(t, url))}
		})
	})
}

func openPostgres(t *testing.T, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestBeside writes to a database that a server has open, and the other way round.
func TestBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Config{Beside: true}); err == nil {
		t.Fatal("opened a database that is not there")
	}
	server, beside := open(t, path, sqlite.Config{}), open(t, path, sqlite.Config{Beside: true})
	ours, others := sqlledger.New(server), sqlledger.New(beside)
	for i, l := range []ledger.Ledger{ours, others} {
		id := string(rune('a' + i))
		if err := l.CreateKey(t.Context(), ledger.APIKey{ID: id, Kind: ledger.Key}); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []ledger.Ledger{ours, others} {
			if k, err := reader.Key(t.Context(), id); err != nil || k.ID != id {
				t.Errorf("key %s: %+v, %v", id, k, err)
			}
		}
	}
	if _, err := others.RevokeKey(t.Context(), "a", time.Now()); err != nil {
		t.Fatal(err)
	}
	if k, err := ours.Key(t.Context(), "a"); err != nil || k.Revoked.IsZero() {
		t.Errorf("after the revocation: %+v, %v", k, err)
	}
	if err := server.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFailedUpdate: what a failed update has written is undone, and nothing else.
func TestFailedUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for name, s := range map[string]*sqlite.Store{
		"file": open(t, path, sqlite.Config{}), "memory": open(t, sqlite.Memory, sqlite.Config{}),
		"beside": open(t, path, sqlite.Config{Beside: true}),
	} {
		own := errors.New("own")
		err := s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
			if _, err := c.ExecContext(ctx, `INSERT INTO shared (scope, key, value) VALUES ('x', 'y', x'00')`); err != nil {
				t.Error(err)
			}
			return own
		})
		if !errors.Is(err, own) {
			t.Errorf("%s: %v, want %v", name, err, own)
		}
		err = s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error {
			_, err := c.ExecContext(ctx, `INSERT INTO nonsense VALUES (1)`)
			return err
		})
		if err == nil {
			t.Errorf("%s: wrote to a table that is not there", name)
		}
		l := sqlledger.New(s)
		if err := l.CreateKey(t.Context(), ledger.APIKey{ID: name, Kind: ledger.Key}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err = s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error {
			var n int
			if err := c.QueryRowContext(ctx, `SELECT count(*) FROM shared WHERE scope = 'x'`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows are left, %v", name, n, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestGivenUp has callers stop waiting at any moment: what they get then is not written to any more.
func TestGivenUp(t *testing.T) {
	l := sqlledger.New(open(t, sqlite.Memory, sqlite.Config{}))
	if err := l.CreateKey(t.Context(), ledger.APIKey{ID: "a", Kind: ledger.Key}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*time.Microsecond)
		has, err := l.HasKeys(ctx)
		if err == nil && !has {
			t.Error("the key is not there")
		}
		if k, err := l.Key(ctx, "a"); err == nil && k.ID != "a" {
			t.Errorf("read %+v", k)
		}
		if keys, err := l.Keys(ctx, ledger.KeyQuery{Limit: 10}); err == nil && len(keys) != 1 {
			t.Errorf("listed %+v", keys)
		}
		cancel()
	}
}
