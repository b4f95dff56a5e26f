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

// stallAfter is how long writes fail before new turns are refused; a store
// that says that it has no space left is believed at once.
const stallAfter = time.Second

// patient is the store as the sessions of one manager see it. It knows which sessions wait
// for the store to take writes, and owns the goroutines that write for nobody who waits.
type patient struct {
	*retry.Store
	clock.Clock
	log *slog.Logger

	shared    *shared.State
	retention time.Duration  // Limits.Retention
	cleared   func(*Session) // its turn, which was made to run more than once, has made a step forward
	calmed    func(*Session) // its turn runs and only waits

	stalls   *stalls.Stalls[*Session] // the sessions that wait for the store
	flushers stalls.Flushers          // goroutines that write for nobody who waits
}

func newPatient(cfg Config, onFatal func(error)) *patient {
	p := &patient{
		Clock:     clock.Clock{Now: cfg.Now},
		log:       cfg.Logger,
		stalls:    stalls.New[*Session](cfg.Logger),
		retention: cfg.Limits.Retention,
	}
	p.Store = retry.New(retry.Config{
		Store:    cfg.Store,
		Patience: cfg.Limits.StorePatience,
		Logger:   cfg.Logger,
		OnFatal: func(err error) {
			p.giveUp()
			onFatal(err)
		},
	})
	p.shared = shared.New(p, shared.Use{Keys: cfg.Limits.MaxSharedKeys, Bytes: cfg.Limits.MaxSharedBytes})
	return p
}

// refuses says why nothing may begin that needs a write; nil when it may.
func (p *patient) refuses() error {
	err := p.Failed()
	if err == nil {
		err = p.stalls.Err()
	}
	if err == nil {
		return nil
	}
	return retry.Unavailable(retry.TakeWrites, err)
}

// ready is refuses, and a write of its own.
func (p *patient) ready(ctx context.Context) error {
	if err := p.stalls.Err(); err != nil {
		return err
	}
	return p.Ping(ctx)
}

// giveUp starts no goroutine and retries no call from now on.
func (p *patient) giveUp() {
	p.flushers.Stop()
	p.Stop()
}
