package storetest

import (
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var spentTests = []test{
	{"Spent", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		wantSpent(t, s, "acme", [2]int64{0, 100}, record.Spent{})
		add(t, s, spending(batch("a", events(0, 1)...), "acme", 20, 5, 7))
		add(t, s, spending(batch("b", events(0, 1)...), "acme", 20, 1, 1))
		add(t, s, spending(batch("a", events(1, 1)...), "acme", 21, 10, 0))
		add(t, s, spending(batch("b", events(1, 1)...), "", 21, 100, 100))
		add(t, s, batch("b", events(2, 1)...))
		for _, tt := range []struct {
			tenant   string
			from, to int64
			want     record.Spent
		}{
			{"acme", 20, 20, record.Spent{Tokens: 6, Cost: 8}},
			{"acme", 21, 21, record.Spent{Tokens: 10}},
			{"acme", 0, 100, record.Spent{Tokens: 16, Cost: 8}},
			{"acme", 22, 100, record.Spent{}},
			{"", 0, 100, record.Spent{Tokens: 100, Cost: 100}},
			{"umbrella", 0, 100, record.Spent{}},
		} {
			wantSpent(t, s, tt.tenant, [2]int64{tt.from, tt.to}, tt.want)
		}
	}},
	{"Spent/Repeat", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		b := spending(batch("a", events(0, 1)...), "acme", 20, 5, 7)
		add(t, s, b)
		add(t, s, b)
		wantSpent(t, s, "acme", [2]int64{0, 100}, record.Spent{Tokens: 5, Cost: 7})
	}},
	{"Spent/Refused", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		far := spending(batch("a", events(7, 1)...), "acme", 20, 5, 7)
		wantErr(t, "Append at a distance", s.Append(t.Context(), far), store.ErrConflict)
		wantErr(t, "less than nothing", s.Append(t.Context(), spending(batch("a", events(0, 1)...), "acme", 20, -1, 7)),
			store.ErrMalformed)
		wantErr(t, "less than no cost", s.Append(t.Context(), spending(batch("a", events(0, 1)...), "acme", 20, 1, -7)),
			store.ErrMalformed)
		wantSpent(t, s, "acme", [2]int64{0, 100}, record.Spent{})
	}},
	{"Spent/Deleted", func(t *testing.T, s store.Store) { // what is paid stays paid
		create(t, s, "a")
		add(t, s, spending(batch("a", events(0, 1)...), "acme", 20, 5, 7))
		if err := s.Delete(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		wantSpent(t, s, "acme", [2]int64{0, 100}, record.Spent{Tokens: 5, Cost: 7})
	}},
	{"Spent/Huge", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		for i := range int64(4) {
			add(t, s, spending(batch("a", events(i, 1)...), "acme", 20, 1<<62, 1<<62))
		}
		got, err := s.Spent(t.Context(), "acme", 0, 100)
		if err != nil || got.Tokens < 1<<50 || got.Cost < 1<<50 {
			t.Errorf("Spent: %+v, %v", got, err)
		}
	}},
}

// spending is a batch that a tenant pays for.
func spending(b store.Batch, tenant string, day, tokens int64, cost record.NanoUSD) store.Batch {
	b.Spent, b.Payer, b.PaidOn = record.Spent{Tokens: tokens, Cost: cost}, tenant, day
	return b
}

func wantSpent(t *testing.T, s store.Store, tenant string, days [2]int64, want record.Spent) {
	t.Helper()
	got, err := s.Spent(t.Context(), tenant, days[0], days[1])
	if err != nil || got != want {
		t.Errorf("Spent(%q, %v): %+v, %v, want %+v", tenant, days, got, err, want)
	}
}
