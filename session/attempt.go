package session

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
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

	closes bool // it only ends the turn; never changes

	spec   *record.Spec // nil for a turn that was read from the log and has not run since
	keys   Keys
	cancel context.CancelCauseFunc

	partials   map[string]*render.Partial      // by message id
	begun      int64                           // model calls, with those of earlier attempts whose end is in the log
	modelCalls map[*record.ModelCall]time.Time // model calls under way, and since when
	noCalls    chan struct{}                   // closed when none is under way; made by who waits for that
	awaited    int                             // awaits under way of calls without a result
	endTried   chan struct{}                   // of turnEnding: closed when the write has succeeded or failed
	stop       *stopped                        // somebody has stopped the turn
	failed     *fault.Error                    // why the turn has no end in the log
	noting     bool                            // noteLeave is at work
	// Timers, see reconcileLocked: the turn's time is over; its last client stays away; it
	// waits for a client that is not there; its budget's time is over; it is no suspect.
	deadline, leave, idle, wall, calm alarm.Alarm
	due                               time.Time     // when deadline goes off
	left                              time.Duration // of the turn's time, when deadline was last set or stopped
	expired                           bool          // deadline has gone off
	stalled                           bool          // the turn waits for the store
}

// newAttempt returns an attempt of the turn that is to run.
func (t *Turn) newAttempt() *attempt {
	return &attempt{
		t:          t,
		done:       make(chan struct{}),
		cancel:     func(error) {},
		partials:   map[string]*render.Partial{},
		modelCalls: map[*record.ModelCall]time.Time{},
	}
}

// noAttempt returns the attempt of a turn that does not run.
func (t *Turn) noAttempt() *attempt {
	a := t.newAttempt()
	close(a.done)
	return a
}
