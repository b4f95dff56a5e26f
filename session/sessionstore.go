package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/stalls"
)

// stallAfter is how long writes fail before new turns are refused. A store without space refuses them at
// once.
const stallAfter = time.Second

// sessionStore is the store as the sessions of one manager use it: with retries, the shared state, the
// stalls, and the goroutines that write without a caller.
type sessionStore struct {
	*retry.Store
	clock.Clock
	log *slog.Logger

	shared  *shared.State
	cleared func(*Session) // called when a turn with more than one attempt makes a step forward
	calmed  func(*Session) // called when a suspect has only waited for calmAfter

	stalls   *stalls.Stalls[*Session] // the sessions that wait for the store
	flushers stalls.Flushers          // the goroutines that write without a caller
}

func newSessionStore(cfg Config, onFatal func(error)) *sessionStore {
	st := &sessionStore{
		Clock:  clock.Clock{Now: cfg.Now},
		log:    cfg.Logger,
		stalls: stalls.New[*Session](cfg.Logger),
	}
	st.Store = retry.New(retry.Config{
		Store:    cfg.Store,
		Patience: cfg.Limits.StorePatience,
		Logger:   cfg.Logger,
		OnFatal: func(err error) {
			st.giveUp()
			onFatal(err)
		},
	})
	st.shared = shared.New(st, shared.Use{Keys: cfg.Limits.MaxSharedKeys, Bytes: cfg.Limits.MaxSharedBytes})
	return st
}

// refuses returns why the store takes no new work that needs a write, or nil.
func (st *sessionStore) refuses() error {
	err := st.Failed()
	if err == nil {
		err = st.stalls.Err()
	}
	if err == nil {
		return nil
	}
	return retry.Unavailable(retry.TakeWrites, err)
}

// ready is refuses, with a write to check the store.
func (st *sessionStore) ready(ctx context.Context) error {
	if err := st.stalls.Err(); err != nil {
		return err
	}
	return st.Ping(ctx)
}

// giveUp starts no goroutine and retries no call from now on.
func (st *sessionStore) giveUp() {
	st.flushers.Stop()
	st.Stop()
}
