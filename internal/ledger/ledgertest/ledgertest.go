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
