// Package retry is the store as the sessions of one server call it: a call that may succeed later is
// retried, with a longer wait each time, until the patience of the server ends. A caller gets a definite
// error of the store, see [Known], or an UNAVAILABLE that a client may read.
//
// Appends are the exception: Write makes one attempt, since a session decides when to retry its append.
//
// It knows neither sessions nor what records mean.
package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// tryTimeout bounds one try of a call of the store.
	tryTimeout = 10 * time.Second
	// The first and the longest wait before a retry.
	firstWait, longestWait = 5 * time.Millisecond, time.Second
)

// What the store cannot do, as clients read it.
const (
	TakeWrites = "take writes"
	BeRead     = "be read"
)

// Config is what a Store needs. All of it is set.
type Config struct {
	Store store.Store
	// Patience is how long a call that fails for an unknown reason is retried.
	Patience time.Duration
	Logger   *slog.Logger
	// OnFatal is called once, without a lock, when the store has failed for good.
	OnFatal func(error)
}

// Store retries calls of a store. Its methods may be called from any goroutine. They return a
// [fault.Error] of code UNAVAILABLE that wraps [ErrUnavailable] for what may pass, one of code
// INTERNAL for what is damaged, and other errors of package store as they are.
type Store struct {
	raw      store.Store
	patience time.Duration
	log      *slog.Logger
	onFatal  func(error)

	quit  chan struct{} // closed by Stop
	tries context.Context
	abort context.CancelFunc

	mu      sync.Mutex // protects the fields below
	stopped bool       // quit is closed
	failed  error      // the store has failed for good
}

// New returns the store of cfg with retries.
func New(cfg Config) *Store {
	s := &Store{
		raw:      cfg.Store,
		patience: cfg.Patience,
		log:      cfg.Logger,
		onFatal:  cfg.OnFatal,
		quit:     make(chan struct{}),
	}
	s.tries, s.abort = context.WithCancel(context.Background())
	return s
}

// Stop ends all retries. It may be called more than once.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.quit)
	}
}

// Abort ends the writes that are under way, and those to come.
func (s *Store) Abort() { s.abort() }

// Writing is the context of writes that no caller waits for: it ends with Abort.
func (s *Store) Writing() context.Context { return s.tries }

// Patience returns how long a call that fails for an unknown reason is retried.
func (s *Store) Patience() time.Duration { return s.patience }

// Failed returns why the store has failed for good, or nil.
func (s *Store) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// fail marks the store as failed for good. The caller holds no lock.
func (s *Store) fail(err error) {
	first := lock.Get(&s.mu, func() bool {
		first := s.failed == nil
		if first {
			s.failed = err
		}
		return first
	})
	if first {
		s.Stop()
		s.onFatal(err)
	}
}

// Known reports whether an error of the store is definite: a retry would not change it.
func Known(err error) bool {
	for _, known := range []error{
		store.ErrNoSession, store.ErrSessionExists, store.ErrConflict,
		store.ErrMalformed, store.ErrKeyTaken, store.ErrNotFound, store.ErrDamaged,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return (*store.NewSession)(nil).IsTooMany(err)
}

// ErrUnavailable marks an error of the store that may pass: it does not fail a turn.
var ErrUnavailable = errors.New("store: not available")

// Unavailable returns the error that a client reads when the store cannot do something, because of err.
func Unavailable(what string, err error) *fault.Error {
	why := "it does not respond as it should"
	switch {
	case errors.Is(err, store.ErrFull):
		why = "no space is left"
	case errors.Is(err, store.ErrFailed):
		why = "it has failed, the server stops"
	case errors.Is(err, store.ErrConflict):
		why = "another server writes the same session"
	}
	out := &fault.Error{
		Code:    fault.Unavailable,
		Message: "the store cannot " + what + ": " + why + "; try again later",
		Err:     fmt.Errorf("%w: %w", ErrUnavailable, err),
	}
	if errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrConflict) {
		return out // a retry at this server has no chance
	}
	return out.After(refusal.Later)
}

// Write makes one attempt of an append.
func (s *Store) Write(b store.Batch) error {
	ctx, cancel := context.WithTimeout(s.tries, tryTimeout)
	defer cancel()
	err := s.raw.Append(ctx, b)
	if errors.Is(err, store.ErrFailed) {
		s.fail(err)
	}
	return err
}

// withRetries calls the store until the call succeeds or fails for a known reason, the patience ends, or
// ctx ends.
func withRetries[T any](ctx context.Context, s *Store, what string, call func(context.Context) (T, error)) (T, error) {
	begun, waits := time.Now(), 0
	for {
		tryCtx, cancel := context.WithTimeout(ctx, tryTimeout)
		out, err := call(tryCtx)
		cancel()
		switch {
		case errors.Is(err, store.ErrDamaged):
			return out, s.damaged(err)
		case err == nil, Known(err), ctx.Err() != nil:
			return out, err
		case errors.Is(err, store.ErrFailed):
			s.fail(err)
			return out, Unavailable(what, err)
		case errors.Is(err, store.ErrFull), time.Since(begun) >= s.patience, !s.Pause(ctx, &waits):
			return out, Unavailable(what, err)
		}
	}
}

// damaged returns the error that a client reads for data that can never be read, and logs the cause.
func (s *Store) damaged(err error) *fault.Error {
	s.log.Error("the store holds what cannot be read", slog.String("error", err.Error()))
	return &fault.Error{
		Code:    fault.Internal,
		Message: "what is stored is damaged and cannot be read; trying again does not help, the server's log says more",
		Err:     err,
	}
}

// Pause waits before the next try, longer each time, and counts in waits. It returns false if no try may
// follow.
func (s *Store) Pause(ctx context.Context, waits *int) bool {
	timer := time.NewTimer(backoff.Half(firstWait, longestWait, *waits))
	defer timer.Stop()
	*waits++
	select {
	case <-timer.C:
		return true
	case <-s.quit:
	case <-ctx.Done():
	}
	return false
}

// Ping reports whether the store can take writes; it tries one.
func (s *Store) Ping(ctx context.Context) error {
	err := s.Failed()
	if err == nil {
		err = s.raw.Ping(ctx)
	}
	if errors.Is(err, store.ErrFailed) {
		s.fail(err)
	}
	return err
}
