package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/given"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// A client may ask a person about a call that it runs. The call stays with the client, but its time stands still
// until nothing is asked about it any more.

// raised is a question about a call that nobody has resolved.
type raised struct {
	record.Question

	t     *Turn
	p     *pending      // the call
	tried chan struct{} // not nil while a resolution is on its way into the log; closed when that has ended
}

// Raise records a question of a client about a call of the last turn, durably, before it returns its id. again
// reports that one of that number was asked before: it stands. A call that no client runs, or that is over, is a
// *fault.Error of code FAILED_PRECONDITION; a number that would leave a gap is INVALID_REQUEST.
func (s *Session) Raise(
	ctx context.Context, callID string, q record.Question,
) (id string, again bool, err error) {
	if err := given.CheckQuestion(&q, s.limits()); err != nil {
		return "", false, err
	}
	q.Raise(callID, principal.Of(ctx).ID)
	t, p, err := s.callToRaise(ctx, callID, q.N)
	if p == nil || err != nil {
		return q.ID, err == nil, err
	}
	e := &entry{turn: t, kind: record.KindInteractionRaised, fact: &q, asked: true, raises: p}
	if e.data, err = logjson.Marshal(&q); err != nil {
		lock.Do(&s.mu, p.endRaiseLocked)
		return "", false, err
	}
	_, err = s.commit(ctx, e)
	if over, ok := errors.AsType[*fault.Error](err); ok && over.Code == fault.Invalid {
		return "", false, errNoneRuns(callID) // the turn has ended
	}
	return q.ID, false, err
}

// callToRaise claims a call for a question of a number, and returns it with its turn; no call if that was asked before.
func (s *Session) callToRaise(ctx context.Context, callID string, n uint32) (t *Turn, p *pending, err error) {
	who := principal.Of(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if t, p = s.turn, nil; t != nil {
			p = t.pending[callID]
		}
		switch {
		case p == nil:
			return nil
		case p.raising != nil:
			return p.raising
		}
		return p.fateLocked(t)
	})
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil || !p.open():
		return nil, nil, errNoneRuns(callID)
	case !who.Runs(p.call.Name):
		return nil, nil, fault.Errorf(fault.Denied,
			"tool call %q is one of the tool %q, which the token does not allow", callID, p.call.Name)
	case n <= p.raised:
		return t, nil, nil
	case n > p.raised+1:
		return nil, nil, fault.Errorf(fault.Invalid,
			"n: the next question about tool call %q is number %d, not %d", callID, p.raised+1, n).
			Breaking("n", fault.RuleRange)
	}
	p.raising = make(chan struct{})
	return t, p, nil
}

func errNoneRuns(callID string) error {
	return fault.Errorf(fault.Precondition,
		"tool call %q: no client runs it, so nothing can be asked about it: it is over, or there is none", callID)
}

// endRaiseLocked lets the next question of the call be raised.
func (p *pending) endRaiseLocked() {
	close(p.raising)
	p.raising = nil
}

// applyRaisedLocked applies that a person is asked about a call: its time stands still.
func (s *Session) applyRaisedLocked(t *Turn, f *record.Question) {
	t = s.nowLocked(t)
	p := t.pending[f.CallID]
	if p == nil {
		return
	}
	p.raised = f.N
	p.asks = append(p.asks, &raised{Question: *f, t: t, p: p})
	if p.phase == phase.CallOffered && p.alarm.IsSet() {
		p.left = max(time.Until(p.due), 1)
		p.alarm.Stop()
	}
}

// answeredLocked applies that a question about a call is resolved: after the last one its time goes on.
func (s *Session) answeredLocked(t *Turn, p *pending, n uint32) {
	p.asks = slices.DeleteFunc(p.asks, func(q *raised) bool { return q.N == n })
	if p.phase == phase.CallOffered && !p.alarm.IsSet() {
		s.timeLocked(t, p)
	}
}

// timeLocked has a call that a client runs time out, unless a person is asked about it.
func (s *Session) timeLocked(t *Turn, p *pending) {
	if len(p.asks) > 0 {
		return
	}
	p.due = time.Now().Add(p.left)
	late := fmt.Sprintf("no result within %v", t.timeout(p.call.Name))
	s.alarms.Set(&p.alarm, p.left, func() { s.settleSoonLocked(t, p, record.TimedOut, late) })
}

// isAsked reports whether a person is asked about the call, by an agent or a client.
func (p *pending) isAsked() bool { return p.call.Asks != nil || len(p.asks) > 0 }

// raisedToResolve claims a question that was raised about a call; nil if none that waits has the id. It waits for
// another resolution, and for a run that has sealed the call.
func (s *Session) raisedToResolve(ctx context.Context, id string) (q *raised, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		q = s.raisedLocked(id)
		switch {
		case q == nil:
			return nil
		case q.tried != nil:
			return q.tried
		}
		return q.p.fateLocked(q.t)
	})
	switch {
	case err != nil || q == nil:
		return nil, err
	case q.p.phase == phase.CallRecording:
		return nil, errNotAsked(id)
	}
	q.tried = make(chan struct{})
	return q, nil
}

func (s *Session) raisedLocked(id string) *raised {
	if s.turn == nil {
		return nil
	}
	for _, p := range s.turn.pending {
		for _, q := range p.asks {
			if q.ID == id {
				return q
			}
		}
	}
	return nil
}

// answer records what a person has said to a question that was raised.
func (s *Session) answer(ctx context.Context, q *raised, r record.Resolution) (err error) {
	e := &entry{turn: q.t, kind: record.KindInteractionResolved, asked: true, answers: q}
	defer func() {
		if e.data == nil {
			lock.Do(&s.mu, q.triedLocked)
		}
	}()
	asking := q.Asking(lock.Get(&s.mu, func() record.ToolCall { return q.p.call }))
	if err := given.CheckResolution(asking, &r, s.limits()); err != nil {
		return err
	}
	fact := &record.InteractionResolved{ID: asking.ID, N: q.N, By: principal.Of(ctx).ID, Resolution: r}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return err
	}
	e.fact, e.data = fact, data
	_, err = s.commit(ctx, e)
	if over, ok := errors.AsType[*fault.Error](err); ok && over.Code == fault.Invalid {
		return errNotAsked(q.ID) // the turn has ended
	}
	return err
}

// triedLocked ends the write of a resolution.
func (q *raised) triedLocked() {
	close(q.tried)
	q.tried = nil
}
