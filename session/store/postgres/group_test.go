package postgres

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// creating returns an append that creates a session, with a key.
func creating(id, key string) store.Batch {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return store.Batch{
		SessionID: id,
		Create:    &store.NewSession{ID: id, CreatedAt: now, Labels: map[string]string{"from": "test", "none": ""}},
		Records:   []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: now, Data: []byte("{}")}},
		Rows:      []store.Row{{Kind: store.RowTurn, SessionID: id, ID: "t", TurnID: "t", Seq: 1, CreatedAt: now}},
		Key:       &store.Key{Scope: "k", Name: key, SessionID: id, ID: "t"},
	}
}

// Sessions of some tenants are created in groups by two stores at once, each key by both of them, in opposite orders:
// one of both has it, and the server finds no deadlock. Meanwhile the tenants spend.
func TestManyCreate(t *testing.T) {
	t.Parallel()
	const sessions, tenants, callers = 600, 3, 24
	url := pgserver.URL(t)
	stores := [2]*Store{openAt(t, url), openAt(t, url)}
	for i, s := range stores {
		for n := range tenants {
			if err := s.Create(t.Context(), store.NewSession{ID: fmt.Sprintf("t%d/spends%d", n, i)}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	made := make([][2]error, sessions)
	var wg sync.WaitGroup
	for i, s := range stores {
		for c := range callers {
			wg.Go(func() {
				for n := c; n < sessions; n += callers {
					at := n
					if i == 1 { // from the other end
						at = sessions - 1 - n
					}
					b := creating(fmt.Sprintf("t%d/s%d-%d", at%tenants, at, i), fmt.Sprint(at))
					made[at][i] = s.Append(t.Context(), b)
				}
			})
		}
		for n := range tenants {
			wg.Go(func() {
				for after := range int64(50) {
					b := store.Batch{SessionID: fmt.Sprintf("t%d/spends%d", n, i), After: after, Payer: fmt.Sprint("t", n),
						Records: []record.Record{{Seq: after + 1, TurnID: "t", Kind: record.KindEvent, Time: time.Now()}}}
					b.Spent.Tokens = 1
					if err := s.Append(t.Context(), b); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for at, errs := range made {
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("both or none of two have key %d: %v, %v", at, errs[0], errs[1])
		}
	}
	for what, sql := range map[string]string{
		"sessions":         `SELECT count(*) FROM sessions WHERE id LIKE '%/s%-%'`,
		"heads":            `SELECT count(*) FROM heads WHERE last_seq = 1 AND open_turn = 't'`,
		"records":          `SELECT count(*) FROM records WHERE turn_id = 't' AND kind = 'turn_started'`,
		"labels":           `SELECT count(*) FROM labels WHERE key = 'from'`,
		"rows":             `SELECT count(*) FROM entries`,
		"keys":             `SELECT count(*) FROM keys k JOIN sessions s ON s.id = k.session_id`,
		"counted sessions": `SELECT sum(sessions) - 6 FROM session_counts`,
	} {
		if n := count(t, stores[0], sql); n != sessions {
			t.Errorf("%d %s, want %d", n, what, sessions)
		}
	}
	if n := count(t, stores[0], `SELECT sum(tokens)::bigint FROM spent`); n != 300 {
		t.Errorf("%d tokens were spent, want 300", n)
	}
	for _, s := range stores {
		if err := s.Close(); err != nil { // connections say of a deadlock when they end
			t.Error(err)
		}
	}
	s := openAt(t, url)
	if n := count(t, s, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// An append that another one has overtaken in a group undoes nothing of the others.
func TestGroupOfRefused(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgserver.URL(t))
	first := creating("a/0", "0")
	if err := s.Append(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	full := creating("a/3", "3")
	full.Create.MaxOfTenant = 1
	taken, exists := creating("a/4", "0"), creating("a/0", "5")
	exists.Records[0].TurnID, exists.Rows = "other", nil
	errs := s.AppendMany(t.Context(), []store.Batch{creating("a/1", "1"), first, full, taken, creating("b/2", "2")})
	if errs[0] != nil || errs[1] != nil || errs[4] != nil || !full.Create.IsTooMany(errs[2]) || errs[3] == nil {
		t.Errorf("%v", errs)
	}
	if err := s.Append(t.Context(), exists); err == nil {
		t.Error("a session was created twice")
	}
	if n := count(t, s, `SELECT sum(sessions) FROM session_counts`); n != 3 {
		t.Errorf("%d sessions are counted, want 3", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func count(t *testing.T, s *Store, sql string) (n int64) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(sql, err)
	}
	return n
}
