package ledgertest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Database is all that a server keeps of its tenants. Budgets and counts of sessions change in one transaction with a
// log, and are therefore the store's; keys, the audit trail and erasures are the ledger's.
type Database struct {
	Store  store.Store
	Ledger ledger.Ledger
}

// RunDatabase holds the halves of a database against each other: each tenant has its keys, its trail, its budget and
// its count of sessions, whatever the names of tenants look like, and what is done to one half leaves the other.
// Package storetest and Run hold each half against what it says itself. open returns a new, empty one.
func RunDatabase(t *testing.T, open func(*testing.T) Database) {
	t.Run("tenants", func(t *testing.T) { tenants(t, open(t)) })
	t.Run("together", func(t *testing.T) { together(t, open(t)) })
}

// names of tenants that a careless key of two parts would confuse.
var names = []string{"acme", "acm", "acme.x", "acme-x", "ACME"}

const bound = 3

// session creates a session of a tenant, as its only record says, and charges it.
func (d Database) session(t *testing.T, tenant string, n int, tokens int64) error {
	t.Helper()
	by := principal.Principal{ID: "ann", Tenant: tenant}
	id := fmt.Sprintf("%s/s%d", tenant, n)
	return d.Store.Append(t.Context(), store.Batch{
		SessionID: id,
		Create:    &store.NewSession{ID: id, CreatedAt: epoch, Creator: by.Key(), MaxOfTenant: bound},
		Records:   []record.Record{{Seq: 1, Time: epoch, Kind: record.KindEvent, Data: json.RawMessage(`{}`)}},
		Spent:     record.Spent{Tokens: tokens, Cost: record.NanoUSD(10 * tokens)}, Payer: tenant, PaidOn: 7,
	})
}

// facts are what there is of a tenant.
type facts struct {
	keys, entries, sessions int
	tokens                  int64
}

// check compares them.
func (d Database) check(t *testing.T, tenant string, want facts) {
	t.Helper()
	ks, err := d.Ledger.Keys(t.Context(), ledger.KeyQuery{Tenant: tenant, Limit: 100})
	if err != nil || len(ks) != want.keys {
		t.Errorf("%s: %d keys, %v, want %d", tenant, len(ks), err, want.keys)
	}
	es, err := d.Ledger.Entries(t.Context(), ledger.EntryQuery{Tenant: tenant, Limit: 100})
	if err != nil || len(es) != want.entries {
		t.Errorf("%s: %d entries, %v, want %d", tenant, len(es), err, want.entries)
	}
	spent, err := d.Store.Spent(t.Context(), tenant, 0, 100)
	paid := record.Spent{Tokens: want.tokens, Cost: record.NanoUSD(10 * want.tokens)}
	if err != nil || spent != paid {
		t.Errorf("%s: spent %+v, %v, want %+v", tenant, spent, err, paid)
	}
	infos, err := d.Store.Sessions(t.Context(), store.InfoQuery{Tenant: &tenant, Limit: 100})
	if err != nil || len(infos) != want.sessions {
		t.Errorf("%s: %d sessions, %v, want %d", tenant, len(infos), err, want.sessions)
	}
}

func tenants(t *testing.T, d Database) {
	ctx := t.Context()
	for i, tenant := range names {
		by := principal.Principal{ID: "ann", Tenant: tenant}
		key := ledger.APIKey{ID: fmt.Sprint("k", i), Kind: ledger.Key, Principal: by, Created: epoch}
		if err := d.Ledger.CreateKey(ctx, key); err != nil {
			t.Fatal(err)
		}
		entry := ledger.Entry{Time: epoch, Tenant: tenant, Principal: "ann", Action: "x", Outcome: "ok"}
		if err := d.Ledger.AddEntries(ctx, []ledger.Entry{entry}); err != nil {
			t.Fatal(err)
		}
		for n := range bound {
			if err := d.session(t, tenant, n, int64(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.session(t, tenant, bound, 1000); !(*store.NewSession)(nil).IsTooMany(err) {
			t.Errorf("%s: a session past the bound: %v", tenant, err)
		}
	}
	for i, tenant := range names {
		d.check(t, tenant, facts{keys: 1, entries: 1, sessions: bound, tokens: int64(bound * (i + 1))})
	}

	// What a tenant is and was said to have done goes; what it has spent stays.
	if n, err := d.Ledger.RemoveKeysOf(ctx, "acme", ""); n != 1 || err != nil {
		t.Errorf("removed %d keys, %v", n, err)
	}
	if n, err := d.Ledger.RemoveEntriesOf(ctx, "acme", "", 100); n != 1 || err != nil {
		t.Errorf("removed %d entries, %v", n, err)
	}
	if err := d.Store.Delete(ctx, "acme/s0", 1); err != nil {
		t.Fatal(err)
	}
	d.check(t, "acme", facts{sessions: bound - 1, tokens: bound})
	if err := d.session(t, "acme", bound, 1); err != nil {
		t.Errorf("a session in place of one that was deleted: %v", err)
	}
	for i, tenant := range names[1:] {
		d.check(t, tenant, facts{keys: 1, entries: 1, sessions: bound, tokens: int64(bound * (i + 2))})
	}
}

// together writes to both halves at once.
func together(t *testing.T, d Database) {
	const each = 20
	var wg sync.WaitGroup
	for i := range each {
		for j, tenant := range names {
			wg.Go(func() {
				if err := d.session(t, tenant, i, 1); err != nil && !(*store.NewSession)(nil).IsTooMany(err) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				key := ledger.APIKey{ID: fmt.Sprintf("k%d-%d", i, j), Kind: ledger.Key, Created: epoch,
					Principal: principal.Principal{ID: "ann", Tenant: tenant}}
				entry := ledger.Entry{Time: epoch, Tenant: tenant, Action: "keys.create", Outcome: "ok"}
				if err := d.Ledger.CreateKey(t.Context(), key); err != nil {
					t.Error(err)
				}
				if err := d.Ledger.AddEntries(t.Context(), []ledger.Entry{entry}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for _, tenant := range names {
		d.check(t, tenant, facts{keys: each, entries: each, sessions: bound, tokens: bound})
	}
}
