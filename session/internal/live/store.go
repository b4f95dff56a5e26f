package live

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

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

// stallAfter is how long writes fail before new turns are refused. A store without space refuses them at
// once.
const stallAfter = time.Second

// Store is the store as the sessions of one server use it: with retries, the shared state, the stalls, and
// the goroutines that write without a caller.
type Store struct {
	*retry.Store
	clock.Clock
	log *slog.Logger

	SharedKeys *shared.State
	Recent     *recent.Memory           // what was read of logs a moment ago
	Accounts   *account.Accounts        // of the tenants
	stalls     *stalls.Stalls[*Session] // the sessions that wait for the store
	Flushers   stalls.Flushers          // the goroutines that write without a caller
	draining   atomic.Bool              // the server stops, see Drain
	limits     atomic.Pointer[limits.Limits]
	Lags       atomic.Int64 // how often a watcher began to lag

	onToolResult func(record.Outcome, time.Duration) // may be nil
}

// StoreConfig is what a Store works with.
type StoreConfig struct {
	Store  store.Store
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now
	Limits limits.Limits    // with defaults
	// OnToolResult, if not nil, receives each tool call that is settled. It is called under the session's lock.
	OnToolResult func(outcome record.Outcome, took time.Duration)
	// OnFatal is called once if the store fails for good.
	OnFatal func(error)
}

// NewStore returns a Store.
func NewStore(cfg StoreConfig) *Store {
	st := &Store{
		Clock:  clock.Clock{Now: cfg.Now},
		log:    cfg.Logger,
		stalls: stalls.New[*Session](cfg.Logger),

		onToolResult: cfg.OnToolResult,
		Recent:       recent.New(),
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
	})
	st.SharedKeys = shared.New(st, shared.Use{Keys: cfg.Limits.MaxSharedKeys, Bytes: cfg.Limits.MaxSharedBytes})
	return st
}

// Limits returns the limits as they are now. They must not be changed.
func (st *Store) Limits() *limits.Limits { return st.limits.Load() }

// SetLimits changes the limits. What was derived from them before stays: timers that run, and what the
// StoreConfig was for.
func (st *Store) SetLimits(l limits.Limits) { st.limits.Store(&l) }

// Refuses returns why the store takes no new work that needs a write, or nil.
func (st *Store) Refuses() error {
	err := st.Failed()
	if err == nil {
		err = st.stalls.Err()
	}
	if err == nil {
		return nil
	}
	return retry.Unavailable(retry.TakeWrites, err)
}

// Ready is Refuses, with a write to check the store.
func (st *Store) Ready(ctx context.Context) error {
	if err := st.stalls.Err(); err != nil {
		return err
	}
	return st.Ping(ctx)
}

// GiveUp starts no goroutine and retries no call from now on.
func (st *Store) GiveUp() {
	st.Flushers.Stop()
	st.Stop()
}
