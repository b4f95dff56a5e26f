package session

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Status is how a turn is.
type Status int

// The states of a turn.
const (
	Pending          Status = iota + 1 // it waits for the turns before it
	Running                            // it runs
	WaitingForClient                   // nobody is asked for what it needs, or it lacks its caller's key
	WaitingForInput                    // it waits for a person, and nothing else of it goes on
	Succeeded                          // the tree has finished naturally
	Failed                             // an error has ended it
	Stopped                            // somebody has stopped it
)

// TurnInfo is what is known of a turn.
type TurnInfo struct {
	// ID and SessionID name it.
	ID, SessionID string
	// Status is how it is.
	Status Status
	// Prompt is what the user said.
	Prompt string
	// Output is the last complete answer without tool calls.
	Output string
	// Usage is what it has used so far.
	Usage Usage
	// Created is when its prompt was recorded, Started when it began to run, and
	// Ended when it was over; zero for what has not happened.
	Created, Started, Ended time.Time
	// After is the position before its first message.
	After int64
	// Open are the tool calls without a result, in order, but for those about which
	// a person is asked.
	Open []ToolCall
	// Asking is what people are asked, in order.
	Asking []*Interaction
	// End is its end, nil before.
	End *TurnEnded
	// Into is the turn of which its prompt has become a message, "" for none.
	Into string
}

// Turns returns the turns of a session, in the order in which their prompts were
// recorded. It reads the whole log. Its errors are as those of Attach.
func (m *Manager) Turns(ctx context.Context, sessionID string) ([]TurnInfo, error) {
	h, err := m.acquire(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	s := h.s
	// What runs is looked at first: the log is then at least as new.
	live, status := s.live()
	l := turnList{byID: map[string]*TurnInfo{}, asked: asked{sessionID: s.id}}
	for rec, err := range s.records(ctx, 0, readPage) {
		if err != nil {
			return nil, err
		}
		fact, err := s.decode(rec)
		if err != nil {
			return nil, err
		}
		l.add(s.id, rec, fact)
	}
	for _, in := range l.asked.pending {
		t := l.byID[in.TurnID]
		t.Asking = append(t.Asking, in)
	}
	now, _ := s.live()
	statusOf := func(t *TurnInfo) Status {
		switch {
		case t.End != nil && t.End.Completed:
			return Succeeded
		case t.End != nil && t.End.Code != 0:
			return Failed
		case t.End != nil:
			return Stopped
		case t.Started.IsZero():
			return Pending
		case t.ID == live:
			return status
		case t.ID == now:
			return Running // it has begun meanwhile
		case len(t.Asking) > 0:
			return WaitingForInput
		default:
			return WaitingForClient
		}
	}
	out := make([]TurnInfo, len(l.turns))
	for i, t := range l.turns {
		out[i] = *t
		out[i].Status = statusOf(t)
		if into := l.byID[t.Into]; into != nil {
			out[i].Status = statusOf(into)
		}
	}
	return out, nil
}

// live returns the turn that runs here, "" for none, and how it is.
func (s *Session) live() (id string, is Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || !t.running || t.ended != nil {
		return "", 0
	}
	if len(t.pending) == 0 || len(t.modelCalls) > 0 {
		return t.id, Running
	}
	is = WaitingForClient
	for _, p := range t.pending {
		if p.owner != nil {
			return t.id, Running
		}
		if p.call.Asks != nil {
			is = WaitingForInput
		}
	}
	return t.id, is
}

// turnList is the turns of a log.
type turnList struct {
	turns []*TurnInfo // in the order of their first records
	byID  map[string]*TurnInfo
	asked asked
}

func (l *turnList) add(sessionID string, rec Record, fact any) {
	t := l.byID[rec.TurnID]
	if t == nil {
		t = &TurnInfo{ID: rec.TurnID, SessionID: sessionID, Created: rec.Time, After: position(rec.Seq, 0) - 1}
		l.turns = append(l.turns, t)
		l.byID[t.ID] = t
	}
	for _, in := range l.asked.add(rec, fact) {
		if f, ok := fact.(*InteractionResolved); ok && f.Decision == Approve {
			t.Open = append(t.Open, f.open(in.Call))
		}
	}
	switch f := fact.(type) {
	case *TurnQueued:
		t.Prompt = f.Prompt
	case *TurnDropped:
		t.Ended, t.End = rec.Time, &TurnEnded{Reason: f.Reason}
	case *TurnStarted:
		t.Prompt, t.Started = f.Prompt, rec.Time
	case *Event:
		if told := l.byID[f.Injected]; told != nil {
			told.Into = rec.TurnID
			return
		}
		if f.Usage != nil {
			t.Usage = t.Usage.Add(*f.Usage)
		}
		if f.Text != "" && len(f.Calls) == 0 {
			t.Output = f.Text
		}
		t.Open = append(t.Open, forClients(f.Calls...)...)
	case *ToolCall:
		t.Open = append(t.Open, forClients(*f)...)
	case *ToolResult:
		t.Open = slices.DeleteFunc(t.Open, func(c ToolCall) bool { return c.ID == f.CallID })
	case *TurnEnded:
		t.Ended, t.End, t.Open = rec.Time, f, nil
	}
}

// forClients are the calls of which no person is asked.
func forClients(calls ...ToolCall) []ToolCall {
	return slices.DeleteFunc(slices.Clone(calls), func(c ToolCall) bool { return c.Asks != nil })
}

// Events returns at most limit messages of a turn after a position, and whether
// there are more. The turn is left as it is. Its errors are as those of Attach.
func (m *Manager) Events(ctx context.Context, req AttachRequest, limit int) (msgs []*agentdv1.RunResponse, more bool, err error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, false, err
	}
	defer m.release(h)
	s := h.s
	if err := s.checkPosition(req.After); err != nil {
		return nil, false, err
	}
	t, first, err := s.named(ctx, req)
	if err != nil {
		return nil, false, err
	}
	w := s.watch(t, req.from(first))
	defer w.Close()
	for {
		next, err := w.Next(ctx)
		msgs = append(msgs, next...)
		if len(msgs) > limit {
			return msgs[:limit], true, nil
		}
		_, aside := errors.AsType[*Error](err)
		switch {
		case errors.Is(err, io.EOF), aside, err == nil && !w.lagging():
			return msgs, false, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// named returns the turn that a request names, with its first record.
func (s *Session) named(ctx context.Context, req AttachRequest) (_ *Turn, first int64, err error) {
	if req.TurnID != "" {
		if t, err := s.other(ctx, req); err != nil || t != nil {
			return t, firstOf(t), err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn, s.turn.startSeq, nil
}

// AnswerTurn answers tool calls of a session's last turn, which goes on if it was
// put aside, and returns for each answer what Turn.Answer returns.
func (m *Manager) AnswerTurn(ctx context.Context, req AttachRequest, answers []Answer) ([]error, error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	if err := h.s.checkPosition(nil); err != nil {
		return nil, err
	}
	if req.TurnID != "" && !h.s.isLast(req.TurnID) {
		return nil, Errorf(codeInvalid, "turn_id %q: session %q has another last turn, and no other can be answered", req.TurnID, req.SessionID)
	}
	t, err := m.goOn(ctx, req)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = t.Answer(ctx, a)
	}
	return errs, nil
}

// isLast tells whether a turn is the session's last one, or its prompt has become
// a message of that.
func (s *Session) isLast(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn != nil && (s.turn.id == id || slices.Contains(s.turn.injected, id))
}

// CancelTurn stops a turn, or keeps it from starting, and returns when nothing
// of it runs any more. "" is the session's last turn. One that is over stays as
// it is; one that the session does not have is an *Error.
func (m *Manager) CancelTurn(ctx context.Context, sessionID, turnID, reason string) error {
	h, err := m.acquire(ctx, sessionID)
	if err != nil {
		return err
	}
	defer m.release(h)
	s := h.s
	if err := s.checkPosition(nil); err != nil {
		return err
	}
	// What is done about a turn may come too late for what it was: look again.
	for {
		t, is := s.look(turnID)
		switch is {
		case absent: // one that is over is none
			_, err := s.other(ctx, AttachRequest{SessionID: sessionID, TurnID: turnID})
			return err
		case over:
			return nil
		case moving:
			t.End(reason)
			select {
			case <-t.Done():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case starting:
			if err := s.awaitStart(ctx); err != nil {
				return err
			}
		case aside:
			err := m.endAside(ctx, h, reason)
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != codeBusy {
				return err
			}
		}
	}
}

// state is how a turn is to who wants to stop it.
type state int

const (
	absent   state = iota // neither the last turn nor one that waits for its start
	over                  // it has ended
	moving                // it runs, or waits for its start
	starting              // it is made to run
	aside                 // it is open and runs nowhere
)

// look finds a turn, "" is the last one, and says how it is.
func (s *Session) look(turnID string) (*Turn, state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queued {
		if q.id == turnID {
			return q, moving
		}
	}
	t := s.turn
	switch {
	case turnID != "" && t.id != turnID && !slices.Contains(t.injected, turnID):
		return nil, absent
	case t.ended != nil:
		return t, over
	case t.running:
		return t, moving
	case s.starting != nil:
		return t, starting
	default:
		return t, aside
	}
}

// endAside ends a turn that was put aside.
func (m *Manager) endAside(ctx context.Context, h *held, reason string) error {
	if err := m.admit(); err != nil {
		return err
	}
	defer m.turns.Done()
	defer m.admitted()
	if err := h.s.reserve(); err != nil {
		return err
	}
	next, err := m.closeOpen(ctx, h.s, reason)
	if next == nil {
		h.s.unreserve()
		return err
	}
	m.launchNext(ctx, h, next)
	return err
}
