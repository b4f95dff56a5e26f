package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyOneAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	second, err := openAs(t.Context(), filepath.Join(dir, "agentd.db"))
	if !errors.Is(err, ErrLocked) || second != nil {
		t.Fatalf("second Open: %v, want %v", err, ErrLocked)
	}
	if !strings.Contains(err.Error(), "holds "+filepath.Join(dir, "agentd.db")) {
		t.Errorf("error %q does not name what is locked", err)
	}
	mustCreate(t, s, "a") // the first is none the worse for it
	mustClose(t, s)
	mustClose(t, open(t, dir))
}

func TestMemoryStoresAreApart(t *testing.T) {
	for range 2 {
		s, err := openAs(t.Context(), Memory)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mustClose(t, s) })
		mustCreate(t, s, "a")
	}
}

// TestRefusedOpen checks that a failed Open says why and holds nothing.
func TestRefusedOpen(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx     context.Context
		prepare func(t *testing.T, path string)
		want    string
	}{
		"not a database": {t.Context(), func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "file is not a database"},
		"newer schema": {t.Context(), func(t *testing.T, path string) {
			s, err := openAs(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			err = s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
				return nil, s.writer.exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)")
			})
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
		}, "schema version is 99"},
		"a directory": {t.Context(), func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
		"context has ended": {ended, func(*testing.T, string) {}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agentd.db")
			c.prepare(t, path)
			for range 2 { // the second would find a lock that was left
				s, err := openAs(c.ctx, path)
				if err == nil {
					mustClose(t, s)
				}
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want one of %q about %q", err, path, c.want)
				}
			}
		})
	}
}

// TestCloseWaitsForAppend closes while an append is at its commit.
func TestCloseWaitsForAppend(t *testing.T) {
	dir := t.TempDir()
	g := newGate()
	s := open(t, dir, g.option())
	go func() { g.pass <- struct{}{} }()
	mustCreate(t, s, "a")
	<-g.entered
	done := appendAsync(t.Context(), s, batchOf("a", 0, 1, 10))
	<-g.entered
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	close(g.pass)
	if err := errors.Join(<-done, <-closed, s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Append(t.Context(), batchOf("a", 1, 1, 10)); !errors.Is(err, errClosed) {
		t.Errorf("append after Close: %v, want %v", err, errClosed)
	}
	if _, err := s.Head(t.Context(), "a"); !errors.Is(err, errClosed) {
		t.Errorf("head after Close: %v, want %v", err, errClosed)
	}
	s = open(t, dir)
	defer mustClose(t, s)
	if n := lastSeq(t, s, "a"); n != 1 {
		t.Errorf("the log ends at %d, want 1", n)
	}
}

// TestPragmas checks what the promises rest on.
func TestPragmas(t *testing.T) {
	s := open(t, t.TempDir())
	defer mustClose(t, s)
	pragma := func(name string, scan func(query string) error) {
		t.Helper()
		if err := scan("PRAGMA " + name); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000", "page_size": "4096",
	} {
		var got string
		pragma(name, func(query string) error {
			return s.write(t.Context(), 0, func(*tx) (refusal, fault error) {
				return nil, s.writer.conn.QueryRowContext(context.Background(), query).Scan(&got)
			})
		})
		if got != want {
			t.Errorf("writer: %s is %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"query_only": "1", "busy_timeout": "5000"} {
		var got string
		pragma(name, func(query string) error { return s.readers.QueryRowContext(t.Context(), query).Scan(&got) })
		if got != want {
			t.Errorf("reader: %s is %s, want %s", name, got, want)
		}
	}
	// The list of open turns must not cost a look at every session.
	var id, parent, unused int
	var plan string
	err := s.readers.QueryRowContext(t.Context(), "EXPLAIN QUERY PLAN "+openTurnsQuery, "", 10).Scan(&id, &parent, &unused, &plan)
	if err != nil || !strings.Contains(plan, "sessions_with_open_turn") {
		t.Errorf("plan for open turns is %q, %v, want the partial index", plan, err)
	}
	err = s.readers.QueryRowContext(t.Context(), "EXPLAIN QUERY PLAN "+idleQuery, 0, 10).Scan(&id, &parent, &unused, &plan)
	if err != nil || !strings.Contains(plan, "sessions_by_update") {
		t.Errorf("plan for idle sessions is %q, %v, want the partial index", plan, err)
	}
}
