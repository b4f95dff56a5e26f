package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// readAt opens the store of a URL for reading.
func readAt(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

// logs makes sessions with a record each.
func logs(t *testing.T, s *Store, ids ...string) {
	t.Helper()
	at := time.UnixMicro(1)
	for _, id := range ids {
		err := s.Append(t.Context(), store.Batch{
			SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: at, Creator: "local"},
			Records: []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: at, Data: []byte("{}")}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshot: reads of a snapshot, also those beside the sessions, see one state, and an error of one of them leaves
// it to the others. Nothing is written by a store that reads, nor kept from those that write.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	if _, err := Open(t.Context(), url, Config{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "no database of agentd") {
		t.Errorf("an empty database: %v", err)
	}
	w := openAt(t, url)
	defer mustClose(t, w)
	logs(t, w, "a")
	r := readAt(t, url)
	state := func(ctx context.Context) (ids []string, shared int) {
		ids, err := r.IDs(ctx, "", 10)
		if err != nil {
			t.Error(err)
		}
		err = r.View(ctx, func(ctx context.Context, c *sql.Conn) error {
			return c.QueryRowContext(ctx, `SELECT count(*) FROM shared`).Scan(&shared)
		})
		if err != nil {
			t.Error(err)
		}
		return ids, shared
	}
	own := errors.New("own")
	err := r.Snapshot(t.Context(), func(ctx context.Context) error {
		if ids, shared := state(ctx); !slices.Equal(ids, []string{"a"}) || shared != 0 {
			t.Errorf("at first: %v, %d", ids, shared)
		}
		logs(t, w, "b")
		if err := w.SetShared(t.Context(), []store.SharedValue{{Scope: "app", Key: "k", Value: []byte("1")}}); err != nil {
			t.Error(err)
		}
		if _, err := r.heads(ctx, 1, `SELECT nonsense WHERE $1 > 0 AND $2 = ''`, ""); err == nil {
			t.Error("nonsense was read")
		}
		if ids, shared := state(ctx); !slices.Equal(ids, []string{"a"}) || shared != 0 {
			t.Errorf("behind an error: %v, %d", ids, shared)
		}
		return own
	})
	if !errors.Is(err, own) {
		t.Errorf("the snapshot ends with %v", err)
	}
	if ids, shared := state(t.Context()); !slices.Equal(ids, []string{"a", "b"}) || shared != 1 {
		t.Errorf("behind the snapshot: %v, %d", ids, shared)
	}
	for what, err := range map[string]error{
		"append": r.Append(t.Context(), store.Batch{SessionID: "a", After: 1, Records: []record.Record{{Seq: 2, TurnID: "t", Kind: record.KindTurnEnded, Data: []byte("{}")}}}),
		"delete": r.Delete(t.Context(), "a", 1), "ping": r.Ping(t.Context()),
		"transact": r.Transact(t.Context(), func(context.Context, *sql.Conn) error { return nil }),
	} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSchemaVersions: a schema of a newer program is used unless it says that this one is too old, and one of an older
// program is not read.
func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	w := openAt(t, url)
	defer mustClose(t, w)
	have := func(version, oldest int64) {
		t.Helper()
		for text, arg := range map[string]int64{
			`UPDATE goose_db_version SET version_id = $1 WHERE id = (SELECT max(id) FROM goose_db_version)`: version,
			`UPDATE compatible SET oldest = $1`: oldest,
		} {
			if _, err := w.pool.Exec(t.Context(), text, arg); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		what            string
		version, oldest int64
		cfg             Config
		want            string
	}{
		{"a newer one", 9000, 1, Config{}, ""},
		{"a newer one, to read", 9000, 1, Config{ReadOnly: true}, ""},
		{"one that needs a newer program", 9000, 8000, Config{}, "a newer agentd has written it"},
		{"one that needs a newer program, to read", 9000, 8000, Config{ReadOnly: true}, "a newer agentd has written it"},
	} {
		have(tt.version, tt.oldest)
		s, err := Open(t.Context(), url, tt.cfg)
		switch {
		case err == nil:
			mustClose(t, s)
			if tt.want != "" {
				t.Errorf("%s is opened", tt.what)
			}
		case tt.want == "" || !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
	}
	if _, err := w.pool.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id > 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), url, Config{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "an older agentd has written it") {
		t.Errorf("an older one, to read: %v", err)
	}
}

// TestInspect finds what is broken by hand.
func TestInspect(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	w := openAt(t, url)
	defer mustClose(t, w)
	logs(t, w, "acme/a", "b", "c")
	for _, text := range []string{
		`UPDATE session_counts SET sessions = 7 WHERE tenant = 'acme'`,
		`UPDATE records SET epoch = 5 WHERE session_id = 'b'`,
		`INSERT INTO records (session_id, seq, epoch, turn_id, kind, time, data) VALUES ('b', 2, 4, 't', 'x', 0, '')`,
		`UPDATE heads SET created_at = 2 WHERE id = 'b'`,
		`DELETE FROM heads WHERE id = 'c'`,
		`INSERT INTO labels (session_id, key, value, created_at) VALUES ('lost', 'k', 'v', 0)`,
	} {
		if _, err := w.pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	r := readAt(t, url)
	problems, err := r.Integrity(t.Context())
	all := strings.Join(problems, "\n")
	for _, want := range []string{
		`tenant "acme" is counted to have 7 sessions, it has 1`, `record 2 of session "b" has epoch 4, the one before it 5`,
		`session "b" is of epoch 0, its last record of epoch 5`,
		`session "b" was created at 1, its head says at 2`, `session "c" has no head`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not found", want)
		}
	}
	if err != nil || len(problems) != 5 {
		t.Errorf("%d problems, %v:\n%s", len(problems), err, all)
	}
	var orphans []string
	err = r.Orphans(t.Context(), func(table, id string, rows int64) {
		if rows == 1 {
			orphans = append(orphans, table+" "+id)
		}
	})
	if err != nil || !slices.Equal(orphans, []string{"labels lost"}) {
		t.Errorf("orphans %v, %v", orphans, err)
	}
}
