// Package ledgertest is a part of agentd, not an API: it is the conformance suite of ledgers.
package ledgertest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
)

// Run holds a ledger against what Ledger says. open returns a new, empty one.
func Run(t *testing.T, open func(*testing.T) ledger.Ledger) {
	t.Run("keys", func(t *testing.T) { keys(t, open(t)) })
	t.Run("lists", func(t *testing.T) { lists(t, open(t)) })
	t.Run("revocation", func(t *testing.T) { revocation(t, open(t)) })
	t.Run("tokens", func(t *testing.T) { tokens(t, open(t)) })
	t.Run("audit", func(t *testing.T) { audit(t, open(t)) })
	t.Run("erasures", func(t *testing.T) { erasures(t, open(t)) })
	t.Run("agents", func(t *testing.T) { agents(t, open(t)) })
	t.Run("objects", func(t *testing.T) { objects(t, open(t)) })
	t.Run("races", func(t *testing.T) { races(t, open(t)) })
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

// full is a key with everything set.
func full(id string) ledger.APIKey {
	return ledger.APIKey{
		ID: id, Sum: sha256.Sum256([]byte(id)), Kind: ledger.Token, Note: "naïve 'note'\n",
		Maker: "acme/ann", Via: "other",
		Principal: principal.Principal{
			ID: "ann@é/x", Tenant: "acme", Role: principal.Observer, Expires: epoch.Add(time.Hour),
			Session: "s-1", Tools: []string{"look", "go"}, Agents: true,
		},
		Created: epoch,
	}
}

func keys(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	if has, err := l.HasKeys(ctx); err != nil || has {
		t.Errorf("a new ledger has keys: %v, %v", has, err)
	}
	if _, err := l.Key(ctx, "a"); !errors.Is(err, ledger.ErrNoKey) {
		t.Errorf("a key that is not there: %v", err)
	}
	for _, k := range []ledger.APIKey{full("a"), {ID: "b", Kind: ledger.Key, Created: epoch}} {
		if err := l.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Key(ctx, k.ID); err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("read %+v, %v\nwrote %+v", got, err, k)
		}
		other := k
		other.Note, other.Sum = "another", sha256.Sum256([]byte("x"))
		if err := l.CreateKey(ctx, other); !errors.Is(err, ledger.ErrKeyExists) {
			t.Errorf("a second key of one id: %v", err)
		}
		if got, err := l.Key(ctx, k.ID); err != nil || got.Note != k.Note || got.Sum != k.Sum {
			t.Errorf("the second key of one id has replaced the first: %+v, %v", got, err)
		}
	}
	if has, err := l.HasKeys(ctx); err != nil || !has {
		t.Errorf("has keys: %v, %v", has, err)
	}
}

func lists(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	for i := range 10 {
		k := full(fmt.Sprint("k", i))
		if i%2 == 0 {
			k.Kind, k.Principal.Tenant = ledger.Key, ""
		}
		if err := l.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		q    ledger.KeyQuery
		want string
	}{
		"all":           {ledger.KeyQuery{AllTenants: true, Limit: 20}, "[k0 k1 k2 k3 k4 k5 k6 k7 k8 k9]"},
		"page":          {ledger.KeyQuery{AllTenants: true, Limit: 3, After: "k4"}, "[k5 k6 k7]"},
		"no tenant":     {ledger.KeyQuery{Limit: 20}, "[k0 k2 k4 k6 k8]"},
		"tenant":        {ledger.KeyQuery{Tenant: "acme", Limit: 2}, "[k1 k3]"},
		"other tenant":  {ledger.KeyQuery{Tenant: "acm", Limit: 2}, "[]"},
		"kind":          {ledger.KeyQuery{Kind: ledger.Token, AllTenants: true, Limit: 20, After: "k5"}, "[k7 k9]"},
		"kind, no such": {ledger.KeyQuery{Kind: ledger.Token, Limit: 20}, "[]"},
	} {
		got, err := l.Keys(ctx, tt.q)
		ids := make([]string, 0, len(got))
		for _, k := range got {
			ids = append(ids, k.ID)
		}
		if err != nil || fmt.Sprint(ids) != tt.want {
			t.Errorf("%s: %v, %v, want %s", name, ids, err, tt.want)
		}
	}
}

func revocation(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	if _, err := l.RevokeKey(ctx, "a", epoch); !errors.Is(err, ledger.ErrNoKey) {
		t.Errorf("revoke what is not there: %v", err)
	}
	k := full("a")
	k.Kind = ledger.Key
	if err := l.CreateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	k.Revoked = epoch.Add(time.Minute)
	for _, at := range []time.Time{k.Revoked, k.Revoked.Add(time.Minute)} {
		got, err := l.RevokeKey(ctx, "a", at)
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("revoked %+v, %v, want %+v", got, err, k)
		}
	}
	if got, err := l.Key(ctx, "a"); err != nil || !got.Revoked.Equal(k.Revoked) {
		t.Errorf("after the revocation: %+v, %v", got, err)
	}
	if has, err := l.HasKeys(ctx); err != nil || !has {
		t.Errorf("a ledger whose only key is revoked has keys: %v, %v", has, err)
	}
}

func tokens(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	for i := range 6 {
		k := full(fmt.Sprint("t", i))
		k.Principal.Expires = epoch.Add(time.Duration(i) * time.Minute)
		if i == 1 {
			k.Kind = ledger.Key
		}
		if i == 2 {
			k.Principal.Expires = time.Time{}
		}
		if err := l.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := l.RemoveTokens(ctx, epoch.Add(5*time.Minute), 2); err != nil || n != want {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	left, err := l.Keys(ctx, ledger.KeyQuery{AllTenants: true, Limit: 10})
	if err != nil || len(left) != 3 || left[0].ID != "t1" || left[1].ID != "t2" || left[2].ID != "t5" {
		t.Errorf("left %+v, %v", left, err)
	}
}

func audit(t *testing.T, l ledger.Ledger) {
	ctx := t.Context()
	if err := l.AddEntries(ctx, nil); err != nil {
		t.Error(err)
	}
	want := make([]ledger.Entry, 7)
	for i := range want {
		want[i] = ledger.Entry{
			Time: epoch.Add(time.Duration(i) * time.Minute), Tenant: []string{"", "acme"}[i%2],
			Principal: fmt.Sprint("p", i%3), Role: principal.Role(i % 3), Via: "k", From: "[::1]:8",
			Action: "Run.execute", Session: fmt.Sprint("s", i%2), Turn: "t", Subject: "x", Outcome: "ok",
		}
	}
	for _, part := range [][]ledger.Entry{want[:1], want[1:5], want[5:]} {
		if err := l.AddEntries(ctx, part); err != nil {
			t.Fatal(err)
		}
	}
	list := func(q ledger.EntryQuery) (out []int) {
		t.Helper()
		q.Limit = max(q.Limit, 1)
		got, err := l.Entries(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got {
			i := int(e.Time.Sub(epoch) / time.Minute)
			out = append(out, i)
			if e.Seq = 0; !reflect.DeepEqual(e, want[i]) {
				t.Errorf("read %+v\nwrote %+v", e, want[i])
			}
		}
		return out
	}
	first, err := l.Entries(ctx, ledger.EntryQuery{AllTenants: true, Limit: 3})
	if err != nil || len(first) != 3 || first[0].Seq >= first[1].Seq || first[1].Seq >= first[2].Seq {
		t.Fatalf("the first page is %+v, %v", first, err)
	}
	for name, tt := range map[string]struct {
		q    ledger.EntryQuery
		want string
	}{
		"all":       {ledger.EntryQuery{AllTenants: true, Limit: 10}, "[0 1 2 3 4 5 6]"},
		"page":      {ledger.EntryQuery{AllTenants: true, Limit: 2, After: first[2].Seq}, "[3 4]"},
		"no tenant": {ledger.EntryQuery{Limit: 10}, "[0 2 4 6]"},
		"tenant":    {ledger.EntryQuery{Tenant: "acme", Limit: 10}, "[1 3 5]"},
		"session":   {ledger.EntryQuery{AllTenants: true, Session: "s1", Limit: 10}, "[1 3 5]"},
		"principal": {ledger.EntryQuery{AllTenants: true, Principal: "p0", Limit: 10}, "[0 3 6]"},
		"since":     {ledger.EntryQuery{AllTenants: true, Since: epoch.Add(5 * time.Minute), Limit: 10}, "[5 6]"},
		"nothing":   {ledger.EntryQuery{Tenant: "acm", Limit: 10}, "[]"},
	} {
		if got := fmt.Sprint(list(tt.q)); got != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := l.RemoveEntries(ctx, epoch.Add(3*time.Minute), 2); err != nil || n != want {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	if got := fmt.Sprint(list(ledger.EntryQuery{AllTenants: true, Limit: 10})); got != "[3 4 5 6]" {
		t.Errorf("left %s", got)
	}
	if err := l.AddEntries(ctx, want[:1]); err != nil {
		t.Fatal(err)
	}
	last, err := l.Entries(ctx, ledger.EntryQuery{AllTenants: true, Limit: 10})
	if err != nil || len(last) != 5 || last[4].Seq <= last[3].Seq {
		t.Errorf("after another entry: %+v, %v", last, err)
	}
}

// races makes the same keys from many goroutines: each is made once.
func races(t *testing.T, l ledger.Ledger) {
	var made atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends with its keys
			for i := range 10 {
				switch err := l.CreateKey(t.Context(), full(fmt.Sprint(i))); {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, ledger.ErrKeyExists):
					t.Error(err)
				}
				if _, err := l.RevokeKey(t.Context(), fmt.Sprint(i), epoch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() != 10 {
		t.Errorf("%d keys were made, want 10", made.Load())
	}
}
