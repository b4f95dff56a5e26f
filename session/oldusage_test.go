package session_test

import (
	"bytes"
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// floats is a store whose records have the costs that an earlier release wrote.
type floats struct{ store.Store }

func (s floats) Append(ctx context.Context, b store.Batch) error {
	b.Records = slices.Clone(b.Records)
	for i := range b.Records {
		r := &b.Records[i]
		r.Data = bytes.ReplaceAll(r.Data, []byte(`"cost_usd":0.3`), []byte(`"cost_usd":0.30000000000000004`))
	}
	return s.Store.Append(ctx, b)
}

// TestCostsOfEarlierForm continues a session whose log, budget and index have costs
// that were summed up as float64.
func TestCostsOfEarlierForm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agentd.db")
	open := func() *sqlite.Store {
		s, err := sqlite.Open(t.Context(), file, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	answer := func(ctx context.Context, r *session.Run) error {
		return add(ctx, r, &record.Event{
			MessageID: "m", Path: root, Text: "x", Usage: &record.Usage{Prompt: 3, Completion: 2, Total: 5, Calls: 1, Cost: 300_000_000},
		})
	}
	store := open()
	var first *session.Turn
	t.Run("earlier", func(t *testing.T) {
		f := newFixture(t, floats{store}, limits.Limits{})
		f.on(answer)
		first = f.start(session.Request{SessionBudget: &record.Budget{Cost: 900_000_000}})
		follow(t, first.Watch())
	})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	res, err := db.ExecContext(t.Context(), `UPDATE sessions SET usage = replace(usage, '"cost_usd":0.3', '"cost_usd":0.30000000000000004')
		WHERE usage LIKE '%"cost_usd":0.3}'`)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d sessions have an earlier form, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	store = open()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFixture(t, store, limits.Limits{})
	f.on(answer)
	if e := end(t, follow(t, attach(t, f, first, nil))); e.GetUsageSummary().GetEstimatedCost() != 0.3 {
		t.Errorf("the first turn cost %v", e.GetUsageSummary())
	}
	for _, calls := range []int64{2, 3} {
		follow(t, f.start(session.Request{SessionID: first.SessionID()}).Watch())
		info, err := store.Info(t.Context(), first.SessionID())
		want := record.Usage{Prompt: 3 * calls, Completion: 2 * calls, Total: 5 * calls, Calls: calls, Cost: 300_000_000 * record.NanoUSD(calls)}
		if err != nil || info.Usage != want {
			t.Errorf("the session used %+v, %v, want %+v", info.Usage, err, want)
		}
	}
}
