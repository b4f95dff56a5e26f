package session

import (
	"context"
	"time"
)

// attempt is what a process does about a turn: the goroutine that drives it, what is under
// way, and the timers. A turn that waits for its start has one already, so that its client
// can wait for its end. When the turn is suspended its attempt stays, without effect, until
// the turn is resumed with another one.
//
// The fields are protected by Session.mu, but for those that never change.
type attempt struct {
	t    *Turn
	done chan struct{} // closed when nothing of the attempt runs any more

	spec   *Spec // nil for a turn that was read from the log and has not run since
	keys   Keys
	cancel context.CancelCauseFunc

	running    bool                     // a goroutine here drives the turn
	partials   map[string]*message      // by message id
	begun      int64                    // model calls begun, in the whole turn but for those of earlier processes whose end is not in the log
	modelCalls map[*ModelCall]time.Time // model calls under way, and since when
	noCalls    chan struct{}            // closed when none is under way; made by who waits for that
	awaited    int                      // awaits under way of calls without a result
	calm       *time.Timer              // see calmLocked
	ending     bool                     // the end is on its way into the log: nothing may follow
	endTried   chan struct{}            // closed when that has come to an end itself
	leaving    bool                     // the turn is being suspended
	closing    bool                     // the turn runs nowhere, and somebody waits for its end
	stop       *stopped                 // somebody has stopped the turn
	failed     *Error                   // why the turn has no end in the log
	// Timers: the turn's time is over; its last client stays away; it waits for
	// nobody; its budget's time is over.
	deadline, leave, idle, wall *time.Timer
	due                         time.Time     // when deadline fires
	left                        time.Duration // what was left of the turn's time when it was stopped; 0 while it runs
	noting                      bool          // noteLeave is at work
}

// newAttempt returns an attempt of the turn that is to run.
func (t *Turn) newAttempt() *attempt {
	return &attempt{
		t:          t,
		done:       make(chan struct{}),
		cancel:     func(error) {},
		partials:   map[string]*message{},
		modelCalls: map[*ModelCall]time.Time{},
	}
}

// noAttempt returns the attempt of a turn that does not run.
func (t *Turn) noAttempt() *attempt {
	a := t.newAttempt()
	close(a.done)
	return a
}
