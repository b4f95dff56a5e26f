package session_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/check"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// checkIndex compares what a store can be asked about sessions with what their
// logs say. It is part of every test of this package.
func checkIndex(t testing.TB, db store.Store, runner session.Runner) {
	t.Helper()
	ctx := context.Background() // of no test: it runs when that is over
	infos, err := db.Sessions(ctx, store.InfoQuery{Limit: 1000})
	if err != nil {
		t.Errorf("list sessions: %v", err)
	}
	for _, info := range infos {
		if info.Purged > 0 {
			continue
		}
		want, err := session.IndexOf(ctx, db, runner, info)
		if err != nil {
			t.Errorf("session %s: %v", info.ID, err)
			continue
		}
		var rows []store.Row
		for _, kind := range []store.RowKind{store.RowTurn, store.RowInteraction, store.RowGoal} {
			rows = append(rows, rowsOf(t, db, store.RowQuery{Kind: kind, SessionID: info.ID, Limit: 1000})...)
		}
		slices.SortFunc(rows, func(a, b store.Row) int { return strings.Compare(a.ID, b.ID) })
		got := store.Batch{SessionID: info.ID, Rows: rows, Usage: info.Usage, LastTurn: info.LastTurn, LastStatus: info.LastStatus}
		if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Errorf("session %s: the index is not what the log says (-log +index):\n%s", info.ID, diff)
		}
	}
	checkStore(t, db, runner)
}

// checkStore is agentd check. The engines of these tests need not wait for the results of calls.
func checkStore(t testing.TB, db store.Store, runner session.Runner) {
	t.Helper()
	_, err := check.Run(context.Background(), db, check.Config{
		Decode: runner.Decode,
		Report: func(f check.Finding) {
			if !strings.Contains(f.Found, "has no result, and its turn has completed") {
				t.Error(f)
			}
		},
	})
	if err != nil {
		t.Errorf("check: %v", err)
	}
}

// rowsOf reads a list to its end: a page holds fewer than its limit if they are large.
func rowsOf(t testing.TB, store store.Store, q store.RowQuery) (rows []store.Row) {
	t.Helper()
	for {
		page, err := store.Rows(context.Background(), q)
		if err != nil {
			t.Errorf("rows of %s: %v", q.SessionID, err)
		}
		if len(page) == 0 {
			return rows
		}
		rows = append(rows, page...)
		q.After = &page[len(page)-1]
	}
}

// Sessions from before there was an index get one when the server starts.
func TestIndexOfOldSessions(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{})
	f.on(talk)
	var ids []string
	for range 3 {
		turn := f.start(session.Request{Prompt: "hi"})
		follow(t, turn.Watch())
		ids = append(ids, turn.SessionID())
	}
	old := &unindexed{Store: store, ids: ids}
	g := newFixture(t, old, limits.Limits{})
	if err := g.m.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(old.got) != len(ids) {
		t.Fatalf("%d sessions were indexed, want %d", len(old.got), len(ids))
	}
	for _, b := range old.got {
		if len(b.Rows) != 1 || b.Rows[0].Status != "succeeded" || b.Usage.Calls != 1 || b.LastTurn != b.Rows[0].ID {
			t.Errorf("index of an old session: %+v", b)
		}
	}
}

// unindexed is a store whose sessions are older than the index.
type unindexed struct {
	store.Store
	ids []string
	got []store.Batch
}

func (s *unindexed) Unindexed(ctx context.Context, after string, limit int) ([]store.Head, error) {
	var heads []store.Head
	for _, id := range slices.Sorted(slices.Values(s.ids)) {
		if id > after {
			head, err := s.Head(ctx, id)
			if err != nil {
				return nil, err
			}
			heads = append(heads, head)
		}
	}
	return heads, nil
}

func (s *unindexed) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	s.got = append(s.got, b)
	return s.Store.Index(ctx, b, lastSeq)
}
