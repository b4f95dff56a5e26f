package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/internal/ledger"
)

// RunShared holds two ledgers of one database against each other, as two servers have them. open returns both, of a new
// database.
func RunShared(t *testing.T, open func(*testing.T) [2]ledger.Ledger) {
	t.Run("keys", func(t *testing.T) {
		both := open(t)
		var made atomic.Int64
		each(t, both, func(ctx context.Context, l ledger.Ledger, i int) error {
			err := l.CreateKey(ctx, full(fmt.Sprint(i)))
			if err == nil {
				made.Add(1)
			}
			return unless(err, ledger.ErrKeyExists)
		})
		if made.Load() != rounds {
			t.Errorf("%d keys were made, want %d", made.Load(), rounds)
		}
	})
	t.Run("agents", func(t *testing.T) { sharedAgents(t, open(t)) })
	t.Run("objects", func(t *testing.T) { sharedObjects(t, open(t)) })
	t.Run("audit", func(t *testing.T) { sharedAudit(t, open(t)) })
}

const (
	rounds  = 20
	writers = 4 // of each ledger
)

// each calls f rounds times from several goroutines for each ledger, and returns when all have ended.
func each(t *testing.T, both [2]ledger.Ledger, f func(context.Context, ledger.Ledger, int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, l := range both {
		for range writers {
			wg.Go(func() {
				for i := range rounds {
					if err := f(t.Context(), l, i); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}

// unless is err, unless that is one of those.
func unless(err error, those ...error) error {
	for _, known := range those {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}

// sharedAgents has writers add versions of the same agents: each is added once, and no bound is passed.
func sharedAgents(t *testing.T, both [2]ledger.Ledger) {
	const names, versions = 3, 7
	var made atomic.Int64
	var count atomic.Int64
	each(t, both, func(ctx context.Context, l ledger.Ledger, i int) error {
		_, is, err := l.AddAgent(ctx, ledger.Agent{
			Tenant: "acme", Name: fmt.Sprint("a", i%5), Hash: fmt.Sprintf("%08x", count.Add(1)), Created: epoch,
			Content: []byte{1},
		}, ledger.AnyVersion, names, versions)
		if is && err == nil {
			made.Add(1)
		}
		return unless(err, ledger.ErrTooMany)
	})
	newest, err := both[0].Agents(t.Context(), ledger.AgentQuery{Tenant: "acme", Limit: 100})
	if err != nil || len(newest) != names {
		t.Fatalf("%d agents, %v, want %d", len(newest), err, names)
	}
	for i := range newest {
		list, err := both[1].Agents(t.Context(), ledger.AgentQuery{Tenant: "acme", Name: newest[i].Name, Limit: 100})
		if err != nil || len(list) != versions || list[0].Version != versions {
			t.Errorf("agent %s has %d versions, %v, want %d", newest[i].Name, len(list), err, versions)
		}
	}
	if made.Load() != names*versions {
		t.Errorf("%d versions were made, want %d", made.Load(), names*versions)
	}
}

// sharedObjects has writers change one object, each by what it has read: no change is lost.
func sharedObjects(t *testing.T, both [2]ledger.Ledger) {
	at := ledger.Object{Tenant: "acme", Face: "f", Kind: "k", ID: "a"}
	each(t, both, func(ctx context.Context, l ledger.Ledger, _ int) error {
		for {
			now, err := l.Object(ctx, at)
			if err := unless(err, ledger.ErrNoObject); err != nil {
				return err
			}
			next := at
			next.Version, next.Data = now.Version, append(slices.Clone(now.Data), 'x')
			_, err = l.PutObject(ctx, next, 1)
			if changed := (*ledger.ChangedError)(nil); errors.As(err, &changed) {
				continue
			}
			return err
		}
	})
	const want = 2 * writers * rounds
	o, err := both[0].Object(t.Context(), at)
	if err != nil || o.Version != want || len(o.Data) != want {
		t.Errorf("version %d with %d changes, %v, want %d", o.Version, len(o.Data), err, want)
	}
}

// sharedAudit reads the audit trail on while it is written: who reads behind the last entry misses none.
func sharedAudit(t *testing.T, both [2]ledger.Ledger) {
	const want = 2 * writers * rounds * 2
	written := make(chan struct{})
	read := make(chan int, 1)
	go func() { // ends when it has read all that was written
		n, q, last := 0, ledger.EntryQuery{AllTenants: true, Limit: 7}, false
		for {
			list, err := both[0].Entries(t.Context(), q)
			n += len(list)
			if len(list) > 0 {
				q.After = list[len(list)-1].Seq
				continue
			}
			if err != nil || last {
				read <- n
				return
			}
			select {
			case <-written:
				last = true
			default:
			}
		}
	}()
	each(t, both, func(ctx context.Context, l ledger.Ledger, _ int) error {
		e := ledger.Entry{Time: epoch, Action: "x", Outcome: "ok"}
		return l.AddEntries(ctx, []ledger.Entry{e, e})
	})
	close(written)
	if n := <-read; n != want {
		t.Errorf("read %d entries, want %d", n, want)
	}
}
