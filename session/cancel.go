package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/record"
)

// Every cancel of a turn reaches one of three functions, by the phase of the turn:
//
//	a running turn           haltLocked   ends the attempt's context; the run makes the
//	                                      history valid, and drive records TurnEnded
//	a queued turn            drop         records TurnDropped
//	a suspended turn         closeAs      makes an attempt that only closes the history,
//	                                      and records TurnEnded
//
// Their callers:
//
//	CancelTurn, DeleteSession ── Manager.CancelTurn ──┬─ drop
//	                                                  ├─ halt ───────── haltLocked
//	                                                  └─ endSuspended ───── closeOpen ── closeAs
//	a stream's cancel ──┐
//	a stream's reset ───┼─ Turn.Cancel, Turn.End ─────┬─ drop
//	a stream's error ───┘                             ├─ haltLocked
//	                                                  └─ Manager.CancelTurn
//	a new prompt ───────┬─ enqueue (on_busy) ───────── halt
//	                    ├─ interruptWaiting ────────── haltLocked
//	                    ├─ suspendLocked ───────────── haltLocked
//	                    └─ tryStart ────────────────── closeOpen
//	a client stays away ┬─ cancelLeftLocked ────────── haltLocked    while it runs
//	                    ├─ leftQueuedLocked ────────── drop          while it is queued
//	                    └─ cancelNow (away.go) ─────── endSuspended  while it is suspended
//	an injected prompt that was canceled ───────────── haltLocked    with the turn it is in
//	the retention is over ── expire ─┬──────────────── haltWaiting ── haltLocked
//	                                 └──────────────── closeOpen
//	a fork with an open turn ── closeInherited ─────── closeOpen
//	a turn that kills the process ── quarantine ────── closeAs
//
// A turn that exceeds its time or its budget, or whose store fails, is not canceled but failed:
// attempt.cancel gets the error. A turn that is suspended gets ErrSuspended.
//
// A tool call is canceled by a result: see cancelcall.go.

// stopped is the cause with which the context of a canceled turn ends.
type stopped struct {
	reason  string
	at      time.Time
	receipt record.Receipt
}

func (e *stopped) Error() string { return e.reason }

// end returns the end of the canceled turn, as of now.
func (e *stopped) end() *record.TurnEnded {
	receipt := e.receipt
	receipt.Took = time.Since(e.at)
	return &record.TurnEnded{Reason: e.reason, Receipt: &receipt}
}

// Requests of clients.

// CancelTurn cancels a turn, or drops it if it is queued, and returns when nothing of it runs any more.
// "" is the session's last turn. A turn that has ended stays as it is; a turn that the session does not
// have is a *fault.Error.
func (m *Manager) CancelTurn(ctx context.Context, sessionID, turnID, reason string) error {
	ref, err := m.acquire(ctx, sessionID)
	if err != nil {
		return err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.checkPosition(nil); err != nil {
		return err
	}
	// The turn may change its phase before the cancel takes effect: then look once more.
	for {
		t, a, is := s.look(turnID)
		switch is {
		case absent: // an earlier turn that has ended is no error
			_, err := s.findOver(ctx, AttachRequest{TurnID: turnID})
			return err
		case over:
			return nil
		case waiting:
			if waits, err := s.drop(ctx, t, reason, true); waits || err != nil {
				return err
			}
			// It is just starting, or becoming a message.
			select {
			case err := <-t.end(reason):
				return err
			case <-a.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case active:
			a.halt(reason)
			if err := lock.Wait(ctx, a.done); err != nil {
				return err
			}
		case starting:
			if err := s.awaitStart(ctx); err != nil {
				return err
			}
		case suspended:
			err := m.endSuspended(ctx, ref, reason)
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.Busy {
				return err
			}
		}
	}
}

// state says what a cancel has to do about a turn.
type state int

const (
	absent    state = iota // neither the last turn nor one that waits for its start
	over                   // it has ended
	waiting                // it waits for its start
	active                 // it runs
	starting               // it is about to run
	suspended              // it is open and nothing drives it
)

// look returns a turn, its attempt and its state; "" is the last turn.
func (s *Session) look(turnID string) (*Turn, *attempt, state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queued {
		if q.id == turnID {
			return q, q.attempt, waiting
		}
	}
	t := s.turn
	switch {
	case turnID != "" && !t.isOrTook(turnID):
		return nil, nil, absent
	case t.ended != nil:
		return t, t.attempt, over
	case t.runs():
		return t, t.attempt, active
	case s.starting != nil:
		return t, t.attempt, starting
	default:
		return t, t.attempt, suspended
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
func (t *Turn) End(reason string) { t.end(reason) }

// end is End. The channel receives the error of a queued turn that could not be dropped; for any other turn
// it is nil.
func (t *Turn) end(reason string) <-chan error {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked(t)
	switch {
	case t.ended != nil:
	case slices.Contains(s.queued, t):
		t.haltLocked(reason) // in case it starts, or becomes a message, before the drop
		failed := make(chan error, 1)
		drop := func() {
			if _, err := s.drop(context.Background(), t, reason, false); err != nil {
				failed <- err // watchers receive the failure of the store
			}
		}
		if !s.store.flushers.Spawn(drop) {
			failed <- errSuspended
		}
		return failed
	case now.runs() || s.manager == nil:
		now.haltLocked(reason)
	default: // it is suspended, or about to run
		now.haltLocked(reason)
		s.store.flushers.Spawn(func() { // not in a server that stops: the turn stays open
			_ = s.manager.CancelTurn(context.Background(), s.id, t.id, reason)
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
		t.stop = &stopped{reason: reason, at: time.Now(), receipt: t.receiptLocked()}
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
		for _, call := range step {
			name := record.CallName{ID: call.ID, Name: call.Name}
			if _, ok := t.results[call.ID]; ok {
				r.Answered = append(r.Answered, name)
			} else {
				r.Cancelled = append(r.Cancelled, name)
			}
		}
	}
	return r
}

// onlyWaitsLocked reports whether a running turn only waits for results that no connected client can give.
func (s *Session) onlyWaitsLocked(t *Turn) bool {
	return t == s.turn && t.runs() && s.awaitsClientLocked(t) && len(t.modelCalls) == 0 && !t.recordsResult()
}

// haltWaiting cancels a turn that only waits.
func (s *Session) haltWaiting(t *Turn, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onlyWaitsLocked(t) {
		t.haltLocked(reason)
	}
}

// interruptWaiting cancels a running turn that only waits for an absent client, and waits for its end: a
// new prompt takes precedence. A turn that waits for a person is canceled only if the prompt interrupts.
func (s *Session) interruptWaiting(ctx context.Context, how agentdv1.OnBusy) error {
	halted := lock.Get(&s.mu, func() *attempt {
		t := s.turn
		if t == nil || !s.onlyWaitsLocked(t) || how != interrupt && s.asksPersonLocked() != "" {
			return nil
		}
		t.haltLocked(interrupted)
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
		t.haltLocked(disconnected)
	}
}

// Queued turns.

// drop removes a turn from the queue. It reports false if the turn is not queued. ctx bounds the wait for
// s.queueing. asked says that a client waits for the record: see entry.
func (s *Session) drop(ctx context.Context, t *Turn, reason string, asked bool) (waits bool, err error) {
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
		if waits = t.phase == turnQueued; waits {
			t.enter(turnDropping) // no run may claim it meanwhile
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
		lock.Do(&s.mu, func() { t.enter(turnQueued) })
	}
	return true, err
}

// dropQueued drops all queued turns. If the store has no space it fails at once.
func (s *Session) dropQueued(ctx context.Context, why string) error {
	for _, t := range s.queuedNow() {
		if _, err := s.drop(ctx, t, why, true); err != nil {
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
	s.store.flushers.Spawn(func() {
		// Watchers receive the failure of the store.
		if waits, _ := s.drop(context.Background(), q, disconnected, false); waits {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == q { // it has started; the turn that took its prompt as a message is left alone
			q.haltLocked(disconnected)
		}
	})
}

// Suspended turns.

// endSuspended ends the session's suspended turn.
func (m *Manager) endSuspended(ctx context.Context, ref *sessionRef, reason string) error {
	if err := m.admitEnd(); err != nil {
		return err
	}
	defer m.turns.Done()
	if err := ref.Value.reserve(); err != nil {
		return err
	}
	next, err := m.closeOpen(ctx, ref.Value, reason)
	if next == nil {
		ref.Value.unreserve()
		return err
	}
	m.launchNext(ctx, ref, next)
	return err
}

// closeOpen ends the open turn of a session that nothing drives, and what a fork has inherited. If the
// store has no space it fails at once. The caller has reserved the session; the turn to run next, if one
// is returned, takes over the reservation.
func (m *Manager) closeOpen(ctx context.Context, s *Session, reason string) (next *Run, err error) {
	if s.inherits() {
		reason = forked
		if err := s.dropQueued(ctx, reason); err != nil {
			return nil, err
		}
	}
	if !s.isOpen() {
		return nil, nil
	}
	return m.closeAs(ctx, s, func(r record.Receipt) (func() *record.TurnEnded, error) {
		stop := &stopped{reason: reason, at: time.Now(), receipt: r}
		return stop.end, stop
	})
}

// closeAs is closeOpen with an end of the caller's choice: how gets the receipt, and returns the end and
// the cause of the turn's context.
func (m *Manager) closeAs(
	ctx context.Context, s *Session, how func(record.Receipt) (end func() *record.TurnEnded, cause error),
) (next *Run, err error) {
	run, err := s.reopen(ctx, ownKeysOf(s))
	if err != nil {
		return nil, err
	}
	end, cause := how(s.beginClosing(run))
	defer func() {
		if err != nil {
			s.leaveOpen(run.t)
		}
		s.retire(run.t)
		close(run.a.done)
	}()
	// A run whose context has ended only makes the history valid.
	ended, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	err = m.run(ended, run)
	if err == nil {
		return nil, fmt.Errorf("session %s: turn %s ran although it was to end", s.id, run.t.id)
	}
	if !errors.Is(err, cause) {
		m.log.Error("repair of an interrupted turn failed",
			slog.String("session", s.id), slog.String("turn", run.t.id), slog.String("error", err.Error()))
	}
	return s.finish(ctx, run, end())
}

// beginClosing makes the attempt of a run the turn's own, which closes it, and returns the receipt.
func (s *Session) beginClosing(run *Run) record.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.a.closes = true
	run.t.attempt = run.a
	run.t.enter(turnClosing)
	return run.t.receiptLocked()
}

// leaveOpen suspends a turn that could not be closed.
func (s *Session) leaveOpen(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(turnSuspended)
	t.unseal()
}
