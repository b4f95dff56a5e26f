package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// tryTimeout bounds one try of a call of the store.
	tryTimeout = 10 * time.Second
	// The first and the longest wait before a call of the store is tried again.
	firstWait, longestWait = 5 * time.Millisecond, time.Second
	// stallAfter is how long writes fail before new turns are refused; a store
	// that says that it has no space left is believed at once.
	stallAfter = time.Second
	// What the store cannot do, as clients are told.
	takeWrites, beRead = "take writes", "be read"
)

// patient is the store as the sessions of one manager see it. What may pass is
// tried again; what is left is a *fault.Error, UNAVAILABLE, or one of the store's
// errors that say how things are. It knows which sessions wait for the store to
// take writes, and owns the goroutines that try.
type patient struct {
	raw      Store
	patience time.Duration
	log      *slog.Logger
	clock    func() time.Time // Config.Now
	onFatal  func(error)

	quit  chan struct{}      // closed when nothing is tried again any more
	tries context.Context    // of writes
	abort context.CancelFunc // ends the writes under way

	shared  *shared
	cleared func(*Session) // its turn, which was made to run more than once, has made a step forward
	calmed  func(*Session) // its turn runs and only waits

	flushers sync.WaitGroup // goroutines that try appends again; added to under mu

	mu      sync.Mutex         // protects the fields below
	stalled map[*Session]error // the sessions that wait, and why
	since   time.Time          // when the first of them began to
	stopped bool               // quit is closed
	failed  error              // the store has failed for good
}

func newPatient(cfg Config, onFatal func(error)) *patient {
	p := &patient{
		raw:      cfg.Store,
		patience: cfg.Limits.StorePatience,
		log:      cfg.Logger,
		clock:    cfg.Now,
		onFatal:  onFatal,
		quit:     make(chan struct{}),
		stalled:  map[*Session]error{},
	}
	if p.clock == nil {
		p.clock = time.Now
	}
	p.shared = newShared(p, &cfg.Limits)
	p.tries, p.abort = context.WithCancel(context.Background())
	return p
}

// now is the time of a record, or another one for the store.
func (p *patient) now() time.Time { return p.clock().UTC().Truncate(time.Microsecond) }

// settled tells whether an error of the store says how things are, so that
// nothing is to be tried again.
func settled(err error) bool {
	for _, known := range []error{ErrNoSession, ErrSessionExists, ErrConflict, ErrMalformed, ErrKeyTaken, ErrNotFound, ErrDamaged} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// write makes one try of an append.
func (p *patient) write(b Batch) error {
	ctx, cancel := context.WithTimeout(p.tries, tryTimeout)
	defer cancel()
	err := p.raw.Append(ctx, b)
	if errors.Is(err, ErrFailed) {
		p.fail(err)
	}
	return err
}

// again calls the store until that succeeds, fails for a known reason, has been
// tried for long enough, or ctx ends.
func again[T any](ctx context.Context, p *patient, what string, call func(context.Context) (T, error)) (T, error) {
	begun, waits := time.Now(), 0
	for {
		tryCtx, cancel := context.WithTimeout(ctx, tryTimeout)
		out, err := call(tryCtx)
		cancel()
		switch {
		case errors.Is(err, ErrDamaged):
			return out, p.damaged(err)
		case err == nil, settled(err), ctx.Err() != nil:
			return out, err
		case errors.Is(err, ErrFailed):
			p.fail(err)
			return out, unavailable(what, err)
		case errors.Is(err, ErrFull), time.Since(begun) >= p.patience, !p.pause(ctx, &waits):
			return out, unavailable(what, err)
		}
	}
}

// damaged is what a client is told of what cannot be read, now or later.
func (p *patient) damaged(err error) *fault.Error {
	p.log.Error("the store holds what cannot be read", slog.String("error", err.Error()))
	return &fault.Error{
		Code:    fault.Internal,
		Message: "what is stored is damaged and cannot be read; trying again does not help, the server's log says more",
		Err:     err,
	}
}

// pause waits before the next try, longer each time, and counts in waits. It returns
// false if no try is to follow.
func (p *patient) pause(ctx context.Context, waits *int) bool {
	timer := time.NewTimer(backoff.Half(firstWait, longestWait, *waits))
	defer timer.Stop()
	*waits++
	select {
	case <-timer.C:
		return true
	case <-p.quit:
	case <-ctx.Done():
	}
	return false
}

// Create makes a session whose id nobody else can have taken.
func (p *patient) Create(ctx context.Context, n NewSession, key *Key) error {
	return p.once(ctx, ErrSessionExists, func(ctx context.Context) error { return p.raw.Create(ctx, n, key) })
}

func (p *patient) Head(ctx context.Context, id string) (Head, error) {
	return again(ctx, p, beRead, func(ctx context.Context) (Head, error) { return p.raw.Head(ctx, id) })
}

func (p *patient) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]record.Record, error) { return p.raw.Read(ctx, id, after, limit) })
}

func (p *patient) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	return again(ctx, p, beRead, func(ctx context.Context) (map[string]json.RawMessage, error) { return p.raw.Shared(ctx, scope) })
}

func (p *patient) Idle(ctx context.Context, before time.Time, limit int) ([]Head, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]Head, error) { return p.raw.Idle(ctx, before, limit) })
}

// Purge is not tried again: the next sweep does it.
func (p *patient) Purge(ctx context.Context, id string, lastSeq int64) error {
	err := p.raw.Purge(ctx, id, lastSeq)
	if errors.Is(err, ErrFailed) {
		p.fail(err)
	}
	return err
}

// SetShared may be repeated.
func (p *patient) SetShared(ctx context.Context, values []SharedValue) error {
	_, err := again(ctx, p, takeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.raw.SetShared(ctx, values)
	})
	return err
}

// SetAttempts may be repeated.
func (p *patient) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	_, err := again(ctx, p, takeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.raw.SetAttempts(ctx, id, attempts, waits)
	})
	return err
}

func (p *patient) OpenTurns(ctx context.Context, after string, limit int) ([]Head, error) {
	return again(ctx, p, beRead, func(ctx context.Context) ([]Head, error) { return p.raw.OpenTurns(ctx, after, limit) })
}

// errStore marks what has gone wrong in the store and may pass: a turn that
// meets it does not fail.
var errStore = errors.New("session: the store is not available")

// unavailable is what a client is told when the store cannot do something.
func unavailable(what string, err error) *fault.Error {
	why := "it does not answer as it should"
	switch {
	case errors.Is(err, ErrFull):
		why = "no space is left"
	case errors.Is(err, ErrFailed):
		why = "it has failed, the server stops"
	case errors.Is(err, ErrConflict):
		why = "another server writes the same session"
	}
	out := &fault.Error{Code: fault.Unavailable, Message: "the store cannot " + what + ": " + why + "; try again later", Err: fmt.Errorf("%w: %w", errStore, err)}
	if errors.Is(err, ErrFailed) || errors.Is(err, ErrConflict) {
		return out // by this server never
	}
	return out.After(retryLater)
}

// refuses says why nothing may begin that needs a write; nil when it may.
func (p *patient) refuses() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return unavailable(takeWrites, p.failed)
	}
	for _, err := range p.stalled {
		return unavailable(takeWrites, err)
	}
	return nil
}

// ready is refuses, and a write of its own.
func (p *patient) ready(ctx context.Context) error {
	err := locked(&p.mu, func() error {
		for _, err := range p.stalled {
			return err
		}
		return p.failed
	})
	if err == nil {
		err = p.raw.Ping(ctx)
	}
	if errors.Is(err, ErrFailed) {
		p.fail(err)
	}
	return err
}

// stall takes note of a session that waits for the store.
func (p *patient) stall(s *Session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stalled) == 0 {
		p.since = time.Now()
		p.log.Warn("the store cannot take writes: turns wait, new ones are refused", slog.String("session", s.id), slog.String("error", err.Error()))
	}
	p.stalled[s] = err
}

// unstall says that a session waits no longer; how says whether its records are
// written.
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
// nothing, when nothing is tried again any more.
func (p *patient) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.flushers.Go(f)
	}
	return !p.stopped
}

// giveUp has nothing tried again from now on.
func (p *patient) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.quit)
	}
}

// fail says that the store has failed for good. The caller holds no lock.
func (p *patient) fail(err error) {
	first := locked(&p.mu, func() bool {
		first := p.failed == nil
		if first {
			p.failed = err
		}
		return first
	})
	if first {
		p.giveUp()
		p.onFatal(err)
	}
}
