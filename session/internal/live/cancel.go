package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/record"
)

// Every cancel of a turn reaches one of three functions, by the phase of the turn:
//
//	a running turn           haltLocked   ends the attempt's context; the run makes the
//	                                      history valid, and TurnEnded is recorded
//	a queued turn            Drop         records TurnDropped
//	a suspended turn         CloseAs      makes an attempt that only closes the history,
//	                                      and records TurnEnded
//
// Their callers; those with "session:" are of package session:
//
//	session: CancelTurn, also for DeleteSession ────┬─ Drop
//	                                                ├─ Driver.Halt ────────── haltLocked
//	                                                └─ endSuspended ───────── CloseOpen ── CloseAs
//	a stream's cancel ──┐
//	a stream's reset ───┼─ Turn.Cancel, Turn.End ───┬─ Drop
//	a stream's error ───┘                           ├─ haltLocked
//	                                                └─ session: CancelTurn
//	a new prompt ───────┬─ Enqueue (on_busy) ──────── haltLocked
//	                    ├─ InterruptWaiting ───────── haltLocked
//	                    ├─ suspendLocked ──────────── haltLocked
//	                    └─ session: tryStart ──────── CloseOpen
//	a client stays away ┬─ cancelLeftLocked ───────── haltLocked     while the turn runs
//	                    ├─ leftQueuedLocked ───────── Drop           while it is queued
//	                    └─ session: cancelNow ─────── endSuspended   while it is suspended
//	an injected prompt that was canceled ──────────── haltLocked     with the turn it is in
//	session: expire, when the retention is over ────┬─ HaltWaiting ── haltLocked
//	                                                └─ CloseOpen
//	session: closeInherited, for a fork ───────────── CloseOpen
//	session: quarantine, for a turn that kills ────── CloseAs
//
// A turn that exceeds its time or its budget, or whose store fails, is not canceled but failed:
// attempt.cancel gets the error. A turn that is suspended gets ErrSuspended.
//
// A tool call is canceled by a result: see cancelcall.go.

// Requests of clients.

// State says what a cancel has to do about a turn.
type State int

// The states.
const (
	Absent    State = iota // neither the last turn nor one that waits for its start
	Over                   // it has ended
	Waiting                // it waits for its start
	Active                 // it runs
	Starting               // it is about to run
	Suspended              // it is open and nothing drives it
)

// Look returns the state of a turn, and the attempt of one that waits or is active; "" is the last turn.
func (s *Session) Look(turnID string) (*Driver, State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queued {
		if q.id == turnID {
			return &Driver{a: q.attempt}, Waiting
		}
	}
	t := s.turn
	switch {
	case turnID != "" && !t.isOrTook(turnID):
		return nil, Absent
	case t.ended != nil:
		return nil, Over
	case t.runs():
		return &Driver{a: t.attempt}, Active
	case s.starting != nil:
		return nil, Starting
	default:
		return nil, Suspended
	}
}

// Cancel cancels the turn, or drops it if it is queued. It does not wait: watchers receive the end.
func (t *Turn) Cancel(reason string) {
	if reason == "" {
		reason = "cancelled by the client"
	}
	t.End(reason)
}

// End is Cancel with a reason that is recorded as it is.
func (t *Turn) End(reason string) { t.s.End(t, reason) }

// End is [Turn.End]. The channel receives the error of a queued turn that could not be dropped; for any other
// turn it is nil.
func (s *Session) End(t *Turn, reason string) <-chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked(t)
	switch {
	case t.ended != nil:
	case slices.Contains(s.queued, t):
		t.haltLocked(reason) // in case it starts, or becomes a message, before the drop
		failed := make(chan error, 1)
		drop := func() {
			if _, err := s.Drop(context.Background(), t, reason, false); err != nil {
				failed <- err // watchers receive the failure of the store
			}
		}
		if !s.store.Flushers.Spawn(drop) {
			failed <- halt.ErrResumedLater
		}
		return failed
	case now.runs() || s.host == nil:
		now.haltLocked(reason)
	default: // it is suspended, or about to run
		now.haltLocked(reason)
		s.store.Flushers.Spawn(func() { // not in a server that stops: the turn stays open
			_ = s.host.CancelTurn(context.Background(), s.key, t.id, reason)
		})
	}
	return nil
}

// Running turns.

// halt is haltLocked for an attempt, unless the turn has another attempt by now.
func (a *attempt) halt(reason string) {
	a.t.s.mu.Lock()
	defer a.t.s.mu.Unlock()
	if a.t.attempt == a {
		a.t.haltLocked(reason)
	}
}

// haltLocked cancels the turn's run. The first reason stands.
func (t *Turn) haltLocked(reason string) {
	if t.stop == nil {
		t.stop = &halt.Canceled{Reason: reason, At: time.Now(), Receipt: t.receiptLocked()}
		t.cancel(t.stop)
		t.s.reconcileLocked()
	}
}

// receiptLocked returns the model calls under way and the tool calls of open responses.
func (t *Turn) receiptLocked() record.Receipt {
	var r record.Receipt
	for call, since := range t.modelCalls {
		r.Aborted = append(r.Aborted, record.AbortedCall{ModelCall: *call, Ran: time.Since(since)})
	}
	slices.SortFunc(r.Aborted, func(a, b record.AbortedCall) int { return strings.Compare(a.MessageID, b.MessageID) })
	for _, step := range t.steps {
		r.Add(step, t.results)
	}
	return r
}

// addLate adds to a receipt the tool calls that it does not name: of a response that was on its way into the log
// when the turn was canceled.
func (t *Turn) addLate(r *record.Receipt) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	r.AddNew(t.receiptLocked())
}

// onlyWaitsLocked reports whether a running turn only waits for results that no connected client can give.
func (s *Session) onlyWaitsLocked(t *Turn) bool {
	return t == s.turn && t.runs() && s.awaitsClientLocked(t) && len(t.modelCalls) == 0 && !t.recordsResult()
}

// HaltWaiting cancels a turn that only waits.
func (s *Session) HaltWaiting(t *Turn, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onlyWaitsLocked(t) {
		t.haltLocked(reason)
	}
}

// InterruptWaiting cancels a running turn that only waits for an absent client, and waits for its end: a
// new prompt takes precedence. A turn that waits for a person is canceled only if the prompt interrupts.
func (s *Session) InterruptWaiting(ctx context.Context, how agentdv1.OnBusy) error {
	halted := lock.Get(&s.mu, func() *attempt {
		t := s.turn
		if t == nil || !s.onlyWaitsLocked(t) || how != prompt.Interrupt && s.asksPersonLocked() != "" {
			return nil
		}
		t.haltLocked(Interrupted)
		return t.attempt
	})
	if halted == nil {
		return nil
	}
	return lock.Wait(ctx, halted.done)
}

// cancelLeftLocked cancels a turn whose clients have stayed away until cancelAt. If a client has come and
// left since the timer was set, cancelAt is later and the timer is set anew.
func (s *Session) cancelLeftLocked(t *Turn) {
	if s.cancelsIfLeftLocked(t) && t.cancelAt.Left() <= 0 {
		t.haltLocked(Disconnected)
	}
}

// Queued turns.

// Drop removes a turn from the queue. It reports false if the turn is not queued. ctx bounds the wait for
// s.queueing. asked says that a client waits for the record: see entry.
func (s *Session) Drop(ctx context.Context, t *Turn, reason string, asked bool) (waits bool, err error) {
	switch stall := lock.Get(&s.mu, func() error { return s.stall }); {
	case !slices.Contains(s.queuedNow(), t):
		return false, nil // a running turn need not wait for s.queueing
	case asked && stall != nil: // who holds s.queueing waits for the store
		return true, retry.Unavailable(retry.TakeWrites, stall)
	}
	select {
	case s.queueing <- struct{}{}:
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	defer func() { <-s.queueing }()
	lock.Do(&s.mu, func() {
		if waits = t.phase == phase.TurnQueued; waits {
			t.enter(phase.TurnDropping) // no run may claim it meanwhile
		}
	})
	if !waits {
		return false, nil
	}
	fact := &record.TurnDropped{Reason: reason}
	data, err := logjson.Marshal(fact)
	if err == nil {
		e := &entry{turn: t, kind: record.KindTurnDropped, data: data, fact: fact, asked: asked}
		_, err = s.commit(context.Background(), e)
	}
	if err != nil {
		lock.Do(&s.mu, func() { t.enter(phase.TurnQueued) })
	}
	return true, err
}

// DropQueued drops all queued turns. If the store has no space it fails at once.
func (s *Session) DropQueued(ctx context.Context, why string) error {
	for _, t := range s.queuedNow() {
		if _, err := s.Drop(ctx, t, why, true); err != nil {
			return err
		}
	}
	return nil
}

// leftQueuedLocked drops a queued turn whose clients have stayed away.
func (s *Session) leftQueuedLocked(q *Turn) {
	q.cancelAt = clock.Due{}
	if s.turn.failed != nil { // nothing runs here any more
		return
	}
	s.store.Flushers.Spawn(func() {
		// Watchers receive the failure of the store.
		if waits, _ := s.Drop(context.Background(), q, Disconnected, false); waits {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == q { // it has started; the turn that took its prompt as a message is left alone
			q.haltLocked(Disconnected)
		}
	})
}

// Suspended turns.

// CloseOpen ends the open turn of a session that nothing drives, and what a fork has inherited. If the
// store has no space it fails at once. The caller has reserved the session; the turn to run next, if one
// is returned, takes over the reservation.
func (s *Session) CloseOpen(ctx context.Context, reason string) (next *Driver, err error) {
	return s.closeOpen(ctx, reason, true)
}

// GiveWay is CloseOpen for a caller that starts another turn: none of the session's goal follows.
func (s *Session) GiveWay(ctx context.Context) (next *Driver, err error) {
	return s.closeOpen(ctx, Interrupted, false)
}

func (s *Session) closeOpen(ctx context.Context, reason string, goes bool) (next *Driver, err error) {
	if s.Inherits() {
		reason = Forked
		if err := s.DropQueued(ctx, reason); err != nil {
			return nil, err
		}
	}
	if !s.IsOpen() {
		return nil, nil
	}
	return s.closeAs(ctx, goes, func(r record.Receipt) (func() *record.TurnEnded, error) {
		stop := &halt.Canceled{Reason: reason, At: time.Now(), Receipt: r}
		return stop.End, stop
	})
}

// CloseAs is CloseOpen with an end of the caller's choice: how gets the receipt, and returns the end and
// the cause of the turn's context.
func (s *Session) CloseAs(
	ctx context.Context, how func(record.Receipt) (end func() *record.TurnEnded, cause error),
) (next *Driver, err error) {
	return s.closeAs(ctx, true, how)
}

func (s *Session) closeAs(
	ctx context.Context, goes bool, how func(record.Receipt) (end func() *record.TurnEnded, cause error),
) (next *Driver, err error) {
	d, err := s.Reopen(ctx, ownKeysOf(s))
	if err != nil {
		return nil, err
	}
	end, cause := how(d.beginClosing())
	defer func() {
		if err != nil {
			s.leaveOpen(d.a.t)
		}
		d.Retire()
		d.Over()
	}()
	// A run whose context has ended only makes the history valid.
	ended, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	err = d.Drive(ended)
	if err == nil {
		return nil, fmt.Errorf("session %s: turn %s ran although it was to end", s.id, d.a.t.id)
	}
	if !errors.Is(err, cause) {
		s.store.Log.Error("repair of an interrupted turn failed",
			slog.String("session", s.id), slog.String("turn", d.a.t.id), slog.String("error", err.Error()))
	}
	return s.finish(ctx, d, end(), goes)
}

// beginClosing makes an attempt of Reopen the turn's own, which closes it, and returns the receipt.
func (d *Driver) beginClosing() record.Receipt {
	a := d.a
	a.t.s.mu.Lock()
	defer a.t.s.mu.Unlock()
	a.closes = true
	a.t.attempt = a
	a.t.enter(phase.TurnClosing)
	return a.t.receiptLocked()
}

// leaveOpen suspends a turn that could not be closed.
func (s *Session) leaveOpen(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(phase.TurnSuspended)
	t.unseal()
}

// Forked is the reason with which a fork ends the open turn that it has inherited.
const Forked = "the session was forked here"
