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

// Every way in which a turn is canceled comes to one of three functions, by the turn's
// phase, and all of them are in this file:
//
//	a turn that runs         haltLocked   ends the attempt's context; its run makes the
//	                                      history valid, and drive records TurnEnded
//	a turn that is queued    drop         records TurnDropped
//	a suspended turn         closeAs      has an attempt only close the history, and
//	                                      records TurnEnded
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
//	a client stays away ┬─ cancelLeftLocked ────────── haltLocked   while it runs
//	                    ├─ leftQueuedLocked ────────── drop         while it is queued
//	                    └─ cancelNow (away.go) ─────── endSuspended     while it is suspended
//	an injected prompt that was canceled ───────────── haltLocked   with the turn it is in
//	the retention is over ── expire ─┬──────────────── haltWaiting ── haltLocked
//	                                 └──────────────── closeOpen
//	a fork with an open turn ── closeInherited ─────── closeOpen
//	a turn that kills the process ── quarantine ────── closeAs
//
// A turn that has used up its time, or its budget, or whose store fails, is not canceled but
// failed: attempt.cancel gets the error. One that is to go on later gets ErrSuspended.
//
// A tool call is canceled by a result: see cancelcall.go.

// stopped is the cause with which a turn's context ends when a client stops
// it.
type stopped struct {
	reason  string
	at      time.Time
	receipt record.Receipt
}

func (e *stopped) Error() string { return e.reason }

// end is the end of the turn that was stopped, now.
func (e *stopped) end() *record.TurnEnded {
	receipt := e.receipt
	receipt.Took = time.Since(e.at)
	return &record.TurnEnded{Reason: e.reason, Receipt: &receipt}
}

// What a client asks for.

// CancelTurn stops a turn, or keeps it from starting, and returns when nothing
// of it runs any more. "" is the session's last turn. One that is over stays as
// it is; one that the session does not have is a *fault.Error.
func (m *Manager) CancelTurn(ctx context.Context, sessionID, turnID, reason string) error {
	h, err := m.acquire(ctx, sessionID)
	if err != nil {
		return err
	}
	defer m.release(h)
	s := h.Value
	if err := s.checkPosition(nil); err != nil {
		return err
	}
	// What is done about a turn may come too late for what it was: look again.
	for {
		t, a, is := s.look(turnID)
		switch is {
		case absent: // one that is over is none
			_, err := s.findOver(ctx, AttachRequest{TurnID: turnID})
			return err
		case over:
			return nil
		case waiting:
			if waits, err := s.drop(ctx, t, reason, true); waits || err != nil {
				return err
			}
			// It starts, or becomes a message, right now.
			select {
			case err := <-t.end(reason):
				return err
			case <-a.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case moving:
			a.halt(reason)
			if err := lock.Wait(ctx, a.done); err != nil {
				return err
			}
		case starting:
			if err := s.awaitStart(ctx); err != nil {
				return err
			}
		case suspended:
			err := m.endSuspended(ctx, h, reason)
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.Busy {
				return err
			}
		}
	}
}

// state is how a turn is to who wants to stop it.
type state int

const (
	absent    state = iota // neither the last turn nor one that waits for its start
	over                   // it has ended
	waiting                // it waits for its start
	moving                 // it runs
	starting               // it is made to run
	suspended              // it is open and runs nowhere
)

// look finds a turn, "" is the last one, with its attempt, and says how it is.
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
		return t, t.attempt, moving
	case s.starting != nil:
		return t, t.attempt, starting
	default:
		return t, t.attempt, suspended
	}
}

// Cancel stops the turn, or keeps it from starting. A watcher tells the end.
func (t *Turn) Cancel(reason string) {
	if reason == "" {
		reason = "cancelled by the client"
	}
	t.End(reason)
}

// End stops the turn at the client's wish; the reason is echoed as it is.
func (t *Turn) End(reason string) { t.end(reason) }

// end is End. The channel gives why a turn that waits could not be kept from
// starting; of any other turn it gives nothing.
func (t *Turn) end(reason string) <-chan error {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked(t)
	switch {
	case t.ended != nil:
	case slices.Contains(s.queued, t):
		t.haltLocked(reason) // should it become a turn or a message nevertheless
		failed := make(chan error, 1)
		drop := func() {
			if _, err := s.drop(context.Background(), t, reason, false); err != nil {
				failed <- err // if the store has failed, the watchers are told
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
		s.store.flushers.Spawn(func() { // a server that stops leaves it open
			_ = s.manager.CancelTurn(context.Background(), s.id, t.id, reason)
		})
	}
	return nil
}

// A turn that runs.

// halt stops an attempt, if the turn has not got another one.
func (a *attempt) halt(reason string) {
	a.t.s.mu.Lock()
	defer a.t.s.mu.Unlock()
	if a.t.attempt == a {
		a.t.haltLocked(reason)
	}
}

func (t *Turn) haltLocked(reason string) {
	if t.stop == nil {
		t.stop = &stopped{reason: reason, at: time.Now(), receipt: t.receiptLocked()}
		t.cancel(t.stop)
		t.s.reconcileLocked()
	}
}

// receiptLocked is what is under way.
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

// onlyWaitsLocked tells whether a turn that runs here does nothing but wait for
// what no client here can bring.
func (s *Session) onlyWaitsLocked(t *Turn) bool {
	return t == s.turn && t.runs() && s.awaitsClientLocked(t) && len(t.modelCalls) == 0 && !t.recordsResult()
}

// haltWaiting stops a turn that only waits.
func (s *Session) haltWaiting(t *Turn, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onlyWaitsLocked(t) {
		t.haltLocked(reason)
	}
}

// interruptWaiting ends a turn that runs here and only waits for a client that
// is not there: a new prompt is worth more. If it asks a person, only a prompt is
// that interrupts.
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

// cancelLeftLocked cancels a turn whose clients stay away. One for which somebody came
// meanwhile, who may have left again, is looked at later.
func (s *Session) cancelLeftLocked(t *Turn) {
	if s.wantsLeaveLocked(t) && t.cancelAt.Left() <= 0 {
		t.haltLocked(disconnected)
	}
}

// A turn that waits for its start.

// drop keeps a turn from starting. It reports false if the turn does not wait. ctx
// bounds the wait for those at work on the queue. asked says that a client waits for
// the record: see entry.
func (s *Session) drop(ctx context.Context, t *Turn, reason string, asked bool) (waits bool, err error) {
	switch stall := lock.Get(&s.mu, func() error { return s.stall }); {
	case !slices.Contains(s.queuedNow(), t):
		return false, nil // a turn that runs is not to wait for what happens to others
	case asked && stall != nil: // who is at work on the queue waits for the store
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
			t.enter(turnDropping) // nobody may take it up meanwhile
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

// dropQueued keeps the turns from starting that wait for it. A store without space
// refuses that at once.
func (s *Session) dropQueued(ctx context.Context, why string) error {
	for _, t := range s.queuedNow() {
		if _, err := s.drop(ctx, t, why, true); err != nil {
			return err
		}
	}
	return nil
}

// leftQueuedLocked drops a turn that waits for its start, whose clients stay away.
func (s *Session) leftQueuedLocked(q *Turn) {
	q.cancelAt = clock.Due{}
	if s.turn.failed != nil { // nothing runs here any more
		return
	}
	s.store.flushers.Spawn(func() {
		// If the store has failed, the watchers are told.
		if waits, _ := s.drop(context.Background(), q, disconnected, false); waits {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == q { // not the turn that its prompt has become a message of
			q.haltLocked(disconnected)
		}
	})
}

// A turn that is suspended.

// endSuspended ends a suspended turn.
func (m *Manager) endSuspended(ctx context.Context, h *held, reason string) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.turns.Done()
	if err := h.Value.reserve(); err != nil {
		return err
	}
	next, err := m.closeOpen(ctx, h.Value, reason)
	if next == nil {
		h.Value.unreserve()
		return err
	}
	m.launchNext(ctx, h, next)
	return err
}

// closeOpen ends a turn that the log has open and nobody runs, and what a fork has
// inherited. A store without space refuses that at once. The caller has
// reserved the session; if it returns a turn to run next, that one has the
// reservation.
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

// closeAs ends a turn that the log has open and nobody runs. how gets what is under
// way, and says what the turn's end is and why it ends. Otherwise it is closeOpen.
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

// beginClosing makes the attempt of a run the one that closes its turn, and returns what is
// under way.
func (s *Session) beginClosing(run *Run) record.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.a.closes = true
	run.t.attempt = run.a
	run.t.enter(turnClosing)
	return run.t.receiptLocked()
}

// leaveOpen has a turn wait again that could not be closed.
func (s *Session) leaveOpen(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(turnSuspended)
	t.unseal()
}
