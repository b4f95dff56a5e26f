package live

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/endlog"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/record"
)

// Driver is one attempt of a turn as the server uses it: [Driver.Begin], [Driver.Drive], once more each time that
// [Driver.Hibernates] says so, [Session.Finish], [Driver.StopRunning], [Driver.Log], [Driver.Retire] and [Driver.Over],
// in this order, from one goroutine at a time. Halt, Suspend, Drain and Ended may be called from any goroutine once it
// has begun.
type Driver struct {
	a   *attempt
	run *Run // what the engine has of it
}

// Turn returns the turn of the attempt.
func (d *Driver) Turn() *Turn { return d.a.t }

// Key returns the key of the session.
func (d *Driver) Key() string { return d.a.t.s.key }

// Suspend ends the run of an attempt that has begun: its turn is suspended. It returns how many requests to
// models it cuts off.
func (d *Driver) Suspend() (cut int) {
	cut = lock.Get(&d.a.t.s.mu, d.a.requests)
	d.a.cancel(halt.ErrSuspended)
	return cut
}

// Halt cancels the turn, unless the turn has another attempt by now. The first reason stands.
func (d *Driver) Halt(reason string) { d.a.halt(reason) }

// Ended is closed when nothing of the attempt runs any more.
func (d *Driver) Ended() <-chan struct{} { return d.a.done }

// Begin marks the turn as running. stop ends the context of the goroutine that drives it.
func (d *Driver) Begin(stop context.CancelCauseFunc) {
	s, t := d.a.t.s, d.a.t
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(phase.TurnRunning)
	t.cancel = stop
	if t.stop != nil { // stopped before it ran
		stop(t.stop)
	}
	s.restartDeadline(t.attempt)
	s.reconcileLocked()
}

// Drive has the engine run the turn, and returns its panic as an error.
func (d *Driver) Drive(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the engine panicked: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, let := context.WithCancelCause(ctx)
	defer let(nil)
	d.runsAgain(let)
	if cause := context.Cause(ctx); errors.Is(cause, halt.ErrSuspended) || halt.IsMoved(cause) {
		return cause // the engine has nothing to do, and the log may be long
	}
	if err = d.a.t.s.runner.Run(ctx, d.run); err != nil { // else the end of the turn takes along what waits
		d.a.t.s.writeLater(true)
	}
	return err
}

// WaitsForClient reports whether the turn is suspending because it waits for a client, who may stay away
// for as long as the retention lets it.
func (d *Driver) WaitsForClient() bool {
	t := d.a.t
	return lock.Get(&t.s.mu, func() bool { return t.phase == phase.TurnSuspending && !t.onDisconnect.Cancel })
}

// StopRunning marks that nothing drives the turn any more. A turn that has not ended is suspended with open
// calls; its watchers fail with why, if it is not nil.
func (d *Driver) StopRunning(why *fault.Error) {
	s, t := d.a.t.s, d.a.t
	s.writeLater(true) // nothing, unless the end could not be written
	s.mu.Lock()
	defer s.mu.Unlock()
	d.a.debts.Close()
	d.a.keys = nil
	waits := t.phase == phase.TurnSuspending
	if t.phase != phase.TurnEnded {
		t.enter(phase.TurnSuspended)
	}
	t.unseal()
	s.reconcileLocked()
	if why != nil {
		s.failLocked(t, why, waits)
	}
}

// Retire drops from the session what it needs no more of an ended turn: its results, its facts and its
// records. They stay in memory only with those that have a reference to the turn.
func (d *Driver) Retire() {
	s, t := d.a.t.s, d.a.t
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t && t.ended != nil {
		s.turn = t.over()
		s.tail.Shorten() // the session may stay in memory for long
	}
}

// Over marks that nothing of the attempt runs any more.
func (d *Driver) Over() {
	d.a.cancel(nil)
	close(d.a.done)
}

// Log logs the end of the turn.
func (d *Driver) Log(end *record.TurnEnded, err error) {
	a, t := d.a, d.a.t
	endlog.Log(t.s.store.Log, endlog.Turn{
		Session: t.s.id, ID: t.id, Agent: a.spec.Agent.GetName(), Took: time.Since(t.began), Trace: t.trace.TraceID(),
		Usage: lock.Get(&t.s.mu, func() record.Usage { return t.usage }),
	}, end, err)
}
