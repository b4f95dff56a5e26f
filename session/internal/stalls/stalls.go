// Package stalls keeps which sessions wait for the store to take writes, and runs the goroutines that write
// without a caller.
//
// The package must not know what is written, nor the store.
package stalls

import (
	"log/slog"
	"sync"
	"time"
)

// Stalls are the sessions that wait for the store. Their methods may be called from any goroutine.
type Stalls[S comparable] struct {
	log *slog.Logger

	mu    sync.Mutex  // protects the fields below
	why   map[S]error // the sessions that wait, and why
	since time.Time   // when the first of them began to wait
}

// New returns stalls without a session.
func New[S comparable](log *slog.Logger) *Stalls[S] {
	return &Stalls[S]{log: log, why: map[S]error{}}
}

// Err returns why a session waits for the store, or nil if none does.
func (s *Stalls[S]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.why {
		return err
	}
	return nil
}

// Begin adds a session that waits for the store, and why. name is its name in the server's log.
func (s *Stalls[S]) Begin(session S, name string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.why) == 0 {
		s.since = time.Now()
		s.log.Warn("the store cannot take writes: turns wait, new ones are refused",
			slog.String("session", name), slog.String("error", why.Error()))
	}
	s.why[session] = why
}

// End removes a session. written reports whether its records are in the log.
func (s *Stalls[S]) End(session S, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.why[session]; !ok {
		return
	}
	delete(s.why, session)
	if len(s.why) == 0 && written {
		s.log.Info("the store takes writes again", slog.Duration("after", time.Since(s.since)))
	}
}

// Flushers run functions on goroutines until they are stopped. The zero value has none. Its methods may
// be called from any goroutine.
type Flushers struct {
	running sync.WaitGroup // added to under mu

	mu      sync.Mutex // protects the field below
	stopped bool
}

// Spawn runs f on a goroutine. It reports false, having done nothing, after Stop.
func (g *Flushers) Spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.running.Go(f)
	}
	return !g.stopped
}

// Stop refuses new goroutines. Those that run continue.
func (g *Flushers) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

// Wait returns when no goroutine runs any more. It is called after Stop.
func (g *Flushers) Wait() { g.running.Wait() }
