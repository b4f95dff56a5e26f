// Package storage is a part of agentd, not an API: it is a store as the sessions of one server use it, with retries,
// the shared state, the budgets of tenants, the stalls, and the goroutines that write without a caller.
package storage

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/internal/account"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/stalls"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// StallAfter is how long writes fail before new turns are refused. A store without space refuses them at
// once.
const StallAfter = time.Second

// TendEvery is how often Store.Accounts.Tend is to be called.
const TendEvery = account.TendEvery

// Store is the store of the sessions of one server. Its methods may be called from any goroutine.
type Store struct {
	*retry.Store
	clock.Clock
	Log *slog.Logger

	SharedKeys *shared.State
	Recent     *recent.Memory      // what was read of logs a moment ago
	Accounts   *account.Accounts   // of the tenants
	Stalls     *stalls.Stalls[any] // the sessions that wait for the store
	Flushers   stalls.Flushers     // the goroutines that write without a caller
	Draining   atomic.Bool         // the server stops, see live.Session.Drain
	limits     atomic.Pointer[limits.Limits]
	Lags       atomic.Int64 // how often a watcher began to lag

	OnToolResult func(record.Outcome, time.Duration) // may be nil

	// Holder names the process: HOST/PID/RANDOM.
	Holder string
}

// Config is what a Store works with.
type Config struct {
	Store  store.Store
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now
	Limits limits.Limits    // with defaults
	// OnToolResult, if not nil, receives each tool call that is settled. It is called under the session's lock.
	OnToolResult func(outcome record.Outcome, took time.Duration)
	// Slices divide the budgets of tenants among servers; nil for a server that is alone.
	Slices share.Budgets
	// OnFatal is called once if the store fails for good.
	OnFatal func(error)
}

// New returns a Store.
func New(cfg Config) *Store {
	st := &Store{
		Clock:  clock.Clock{Now: cfg.Now},
		Log:    cfg.Logger,
		Stalls: stalls.New[any](cfg.Logger),

		OnToolResult: cfg.OnToolResult,
		Recent:       recent.New(),
		Holder:       holder(),
	}
	st.Store = retry.New(retry.Config{
		Store:    cfg.Store,
		Patience: cfg.Limits.StorePatience,
		Logger:   cfg.Logger,
		OnFatal: func(err error) {
			st.GiveUp()
			cfg.OnFatal(err)
		},
	})
	st.SetLimits(cfg.Limits)
	st.Accounts = account.New(account.Config{
		Spent: st.Spent, Now: st.Stamp,
		Budgets: func(tenant string) (day, month record.Budget) { return st.Limits().TenantBudgets(tenant) },
		Slices:  retriedSlices(st.Store, cfg.Slices),
	})
	st.SharedKeys = shared.New(st, shared.Use{Keys: cfg.Limits.MaxSharedKeys, Bytes: cfg.Limits.MaxSharedBytes})
	return st
}

// holder names the process.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// slices are those whose calls are tried again like those of the store.
type slices struct {
	share.Budgets
	store *retry.Store
}

func retriedSlices(s *retry.Store, of share.Budgets) share.Budgets {
	if of == nil {
		return nil
	}
	return slices{of, s}
}

// Slice implements share.Budgets.
func (s slices) Slice(ctx context.Context, ask share.Ask) (got share.Slice, err error) {
	err = s.store.Try(ctx, retry.BeRead, func(ctx context.Context) (err error) {
		got, err = s.Budgets.Slice(ctx, ask)
		return err
	})
	return got, err
}

// Limits returns the limits as they are now. They must not be changed.
func (st *Store) Limits() *limits.Limits { return st.limits.Load() }

// SetLimits changes the limits. What was derived from them before stays: timers that run, and what the
// Config was for.
func (st *Store) SetLimits(l limits.Limits) { st.limits.Store(&l) }

// Refuses returns why the store takes no new work that needs a write, or nil.
func (st *Store) Refuses() error {
	err := st.Failed()
	if err == nil {
		err = st.Stalls.Err()
	}
	if err == nil {
		return nil
	}
	return retry.Unavailable(retry.TakeWrites, err)
}

// Ready is Refuses, with a write to check the store.
func (st *Store) Ready(ctx context.Context) error {
	if err := st.Stalls.Err(); err != nil {
		return err
	}
	return st.Ping(ctx)
}

// GiveUp starts no goroutine and retries no call from now on.
func (st *Store) GiveUp() {
	st.Flushers.Stop()
	st.Stop()
}

// Drain lets turns begin no further step from now on; live.Driver.Drain looks at those that run.
func (st *Store) Drain() { st.Draining.Store(true) }
