package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/retry"
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

	shared  *shared
	cleared func(*Session) // its turn, which was made to run more than once, has made a step forward
	calmed  func(*Session) // its turn runs and only waits

	flushers sync.WaitGroup // goroutines that retry appends; added to under mu

	mu      sync.Mutex         // protects the fields below
	stalled map[*Session]error // the sessions that wait, and why
	since   time.Time          // when the first of them began to
	stopped bool               // no goroutine is started any more
}

func newPatient(cfg Config, onFatal func(error)) *patient {
	p := &patient{
		Clock:   clock.Clock{Now: cfg.Now},
		log:     cfg.Logger,
		stalled: map[*Session]error{},
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
	p.shared = newShared(p, &cfg.Limits)
	return p
}

// refuses says why nothing may begin that needs a write; nil when it may.
func (p *patient) refuses() error {
	err := p.Failed()
	if err == nil {
		err = p.stalls()
	}
	if err == nil {
		return nil
	}
	return retry.Unavailable(retry.TakeWrites, err)
}

// stalls says why a session waits for the store; nil if none does.
func (p *patient) stalls() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, err := range p.stalled {
		return err
	}
	return nil
}

// ready is refuses, and a write of its own.
func (p *patient) ready(ctx context.Context) error {
	if err := p.stalls(); err != nil {
		return err
	}
	return p.Ping(ctx)
}

// stall takes note of a session that waits for the store.
func (p *patient) stall(s *Session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stalled) == 0 {
		p.since = time.Now()
		p.log.Warn("the store cannot take writes: turns wait, new ones are refused",
			slog.String("session", s.id), slog.String("error", err.Error()))
	}
	p.stalled[s] = err
}

// unstall says that a session waits no longer; written says whether its records are
// in the log.
func (p *patient) unstall(s *Session, written bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.stalled[s]; !ok {
		return
	}
	delete(p.stalled, s)
	if len(p.stalled) == 0 && written {
		p.log.Info("the store takes writes again", slog.Duration("after", time.Since(p.since)))
	}
}

// spawn runs f on a goroutine of the manager's. It reports false, having done
// nothing, after giveUp.
func (p *patient) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.flushers.Go(f)
	}
	return !p.stopped
}

// giveUp starts no goroutine and retries no call from now on.
func (p *patient) giveUp() {
	lock.Do(&p.mu, func() { p.stopped = true })
	p.Stop()
}
