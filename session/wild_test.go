package session_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// wild is a store that fails now and then, before or after it has done what it is
// asked for.
type wild struct {
	store.Store
	tame atomic.Bool
}

func (s *wild) fails(does func() error) error {
	if s.tame.Load() {
		return does()
	}
	switch rand.IntN(12) {
	case 0:
		return errBlip
	case 1:
		if err := does(); err != nil {
			return err
		}
		return errBlip
	case 2:
		return store.ErrFull
	default:
		return does()
	}
}

func (s *wild) Append(ctx context.Context, b store.Batch) error {
	return s.fails(func() error { return s.Store.Append(ctx, b) })
}

func (s *wild) Create(ctx context.Context, n store.NewSession, k *store.Key) error {
	return s.fails(func() error { return s.Store.Create(ctx, n, k) })
}

func (s *wild) Fork(ctx context.Context, f store.Fork) error {
	return s.fails(func() error { return s.Store.Fork(ctx, f) })
}

func (s *wild) Delete(ctx context.Context, id string, lastSeq int64) error {
	return s.fails(func() error { return s.Store.Delete(ctx, id, lastSeq) })
}

func (s *wild) Update(ctx context.Context, id string, c store.Change) (info store.Info, err error) {
	err = s.fails(func() error { info, err = s.Store.Update(ctx, id, c); return err })
	return info, err
}

// And so they do when the store fails now and then.
func TestIndexWhateverTheStoreDoes(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			store := &wild{Store: memory(t)}
			limits := limits.Limits{IdleTurn: 10 * time.Second, StorePatience: 30 * time.Second}
			pick := func(n int, _ string) int { return rand.IntN(n) }
			x := &world{pick: pick, atOnce: true, limits: limits, fixture: newFixture(t, store, limits)}
			x.on(busy)
			for range 40 {
				x.step(whatever[pick(len(whatever), "what")])
				synctest.Wait()
				checkIndex(t, x.store, x)
			}
			store.tame.Store(true)
			time.Sleep(time.Minute)
			x.settle()
		})
		if t.Failed() {
			return
		}
	}
}
