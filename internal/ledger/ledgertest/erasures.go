package ledgertest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
)

func erasures(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	if _, err := l.Erasure(ctx, 1); !errors.Is(err, ledger.ErrNoErasure) {
		t.Errorf("an erasure that is not there: %v", err)
	}
	want := []ledger.Erasure{
		{Tenant: "acme", User: "ann@é", Asked: epoch},
		{Tenant: "", User: "ben", Trail: true, Asked: epoch.Add(time.Hour)},
		{Tenant: "umbrella", Asked: epoch},
	}
	last := int64(0)
	for i := range want {
		id, err := l.AddErasure(ctx, want[i])
		if err != nil || id <= last {
			t.Fatalf("added as %d, %v", id, err)
		}
		want[i].ID, last = id, id
	}
	if got, err := l.OpenErasures(ctx, 2); err != nil || !reflect.DeepEqual(got, want[:2]) {
		t.Errorf("open are %+v, %v", got, err)
	}
	if err := l.EndErasure(ctx, want[0].ID, epoch.Add(time.Minute), "3 sessions"); err != nil {
		t.Fatal(err)
	}
	over := ledger.Erasure{ID: want[0].ID, Asked: epoch, Ended: epoch.Add(time.Minute), Result: "3 sessions"}
	if got, err := l.Erasure(ctx, want[0].ID); err != nil || !reflect.DeepEqual(got, over) {
		t.Errorf("one that is over is %+v, %v", got, err)
	}
	if got, err := l.OpenErasures(ctx, 10); err != nil || !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("open are %+v, %v", got, err)
	}
	removes(t, l)
}

func removes(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	for i, p := range []principal.Principal{
		{ID: "ann", Tenant: "acme"}, {ID: "ben", Tenant: "acme"}, {ID: "ann"}, {ID: "ann", Tenant: "umbrella"},
	} {
		k := ledger.APIKey{ID: string(rune('a' + i)), Kind: ledger.Key, Principal: p, Created: epoch}
		if err := l.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			e := ledger.Entry{Time: epoch, Tenant: p.Tenant, Principal: p.ID, Action: "x", Outcome: "ok"}
			if err := l.AddEntries(ctx, []ledger.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		tenant, user         string
		limit, keys, entries int
	}{
		{"acme", "ann", 2, 1, 2}, {"acme", "ann", 2, 0, 1}, {"acme", "", 100, 1, 3}, {"", "ann", 100, 1, 3},
		{"", "", 100, 0, 0},
	} {
		if n, err := l.RemoveKeysOf(ctx, tt.tenant, tt.user); n != tt.keys || err != nil {
			t.Errorf("%+v: removed %d keys, %v", tt, n, err)
		}
		if n, err := l.RemoveEntriesOf(ctx, tt.tenant, tt.user, tt.limit); n != tt.entries || err != nil {
			t.Errorf("%+v: removed %d entries, %v", tt, n, err)
		}
	}
	left, err := l.Entries(ctx, ledger.EntryQuery{AllTenants: true, Limit: 100})
	if err != nil || len(left) != 3 || left[0].Tenant != "umbrella" {
		t.Errorf("left are %+v, %v", left, err)
	}
}
