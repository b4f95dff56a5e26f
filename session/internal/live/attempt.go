package live

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/account"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// attempt is one run of a turn in this process: the goroutine that drives it, what is under way, and the
// timers. A queued turn already has one, so that its client can wait for done. The attempt of a suspended
// turn stays, without effect, until the turn is resumed with another one.
//
// Session.mu protects the fields, except those that never change.
type attempt struct {
	t    *Turn
	done chan struct{} // closed when nothing of the attempt runs any more

	closes bool // it only closes the turn

	spec   *record.Spec // nil for a turn that is read from the log and not resumed
	keys   keys.Of
	cancel context.CancelCauseFunc

	partials       map[string]*render.Partial      // by message id; nil before the first
	begun          int64                           // model calls, with those of earlier attempts that have ended
	modelCalls     map[*record.ModelCall]time.Time // model calls under way, and since when; nil before the first
	noCalls        chan struct{}                   // made by who waits; closed when no model call is under way
	awaited        int                             // awaits under way of calls without a result
	held, resting  int                             // waits before a model call, and between its tries; see Run.Wait
	debts          account.Debts                   // for calls whose usage is recorded later
	endTried       chan struct{}                   // of phase.TurnEnding: closed when the write has succeeded or failed
	stop           *halt.Canceled                  // the turn is canceled
	failed         *fault.Error                    // the error of the watchers when the run leaves no end in the log
	recordingLeave bool                            // a goroutine is in recordLeave
	asleep         hibernation
	// Timers, see reconcileLocked: the turn timeout; the last client stays away; the turn waits
	// for an absent client; the wall time of the budget; the turn is no suspect any more.
	deadline, leave, idle, wall, calm alarm.Alarm
	due                               time.Time     // when deadline fires
	left                              time.Duration // of the turn timeout, when deadline was last set or stopped
	expired                           bool          // deadline has fired
	stalled                           bool          // the turn waits for the store
}

// newAttempt returns an attempt of the turn, which has not run yet.
func (t *Turn) newAttempt() *attempt {
	return &attempt{t: t, done: make(chan struct{}), cancel: func(error) {}}
}

// noAttempt returns an attempt that does not run: done is closed.
func (t *Turn) noAttempt() *attempt {
	return &attempt{t: t, done: lock.Closed, cancel: func(error) {}}
}
