package live

import (
	"context"

	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
)

// A server that stops lets the requests to models that are under way finish, and begins no further step of
// a turn: no model call, no other try of one, no offer of a tool call. A turn is suspended as soon as it
// waits, has no such request under way, and writes nothing: what its steps have brought is in the log.

// Drain suspends the turn if it waits. Otherwise it is suspended when it waits.
func (d *Driver) Drain() {
	s := d.a.t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcileLocked()
}

// drainLocked suspends the running turn of a server that stops, if it waits.
func (s *Session) drainLocked() {
	t := s.turn
	if !s.drainsLocked() || s.flushing || t == nil || !t.runs() {
		return
	}
	if t.requests() == 0 && t.awaited+t.held+t.resting > 0 || t.asleep.begun {
		t.cancel(halt.ErrSuspended)
	}
}

// requests returns how many requests to models are under way.
func (a *attempt) requests() int { return len(a.modelCalls) - a.resting }

// Wait calls wait, which waits between two steps of the run: before a model call or, with inCall, between
// the tries of a model call that is under way. In a server that stops, the next step does not begin: Wait
// returns when ctx ends, with the cause.
func (r *Run) Wait(ctx context.Context, inCall bool, wait func(context.Context) error) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	waits := &r.a.held
	if inCall {
		waits = &r.a.resting
	}
	return r.s.waitLocked(ctx, waits, wait)
}

// waitLocked is Wait for a counter of waits. It gives up the lock.
func (s *Session) waitLocked(ctx context.Context, waits *int, wait func(context.Context) error) (err error) {
	*waits++
	defer s.reconcileLocked()
	defer func() { *waits-- }()
	s.reconcileLocked()
	lock.Without(&s.mu, func() { err = wait(ctx) })
	if s.drainsLocked() {
		lock.Without(&s.mu, func() { <-ctx.Done() })
		err = context.Cause(ctx)
	}
	return err
}
