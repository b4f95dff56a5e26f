package session

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// eventsBytes is how much the messages of one Events hold, in bytes, before it
// leaves the rest to the next one.
const eventsBytes = 4 << 20

// Events returns at most limit messages of a turn after a position, fewer if they
// are large, and whether there are more. With keep, those do not count that it refuses. The turn is left
// as it is. Its errors are as those of Attach.
func (m *Manager) Events(ctx context.Context, req AttachRequest, limit int, keep func(*agentdv1.RunResponse) bool) (msgs []*agentdv1.RunResponse, more bool, err error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, false, err
	}
	defer m.release(h)
	s := h.s
	if err := s.checkPosition(req.After); err != nil {
		return nil, false, err
	}
	t, err := s.find(ctx, req)
	if err != nil {
		return nil, false, err
	}
	w := s.watch(t, req.from(t))
	defer w.Close()
	for size := 0; ; {
		next, err := w.Next(ctx)
		for _, msg := range next {
			if keep == nil || keep(msg) {
				msgs = append(msgs, msg)
				size += proto.Size(msg)
			}
		}
		if len(msgs) > limit {
			return msgs[:limit], true, nil
		}
		_, aside := errors.AsType[*Error](err)
		switch {
		case errors.Is(err, io.EOF), aside, err == nil && !w.lagging():
			return msgs, false, nil
		case err != nil:
			return nil, false, err
		case size >= eventsBytes:
			return msgs, true, nil
		}
	}
}

// AnswerTurn answers tool calls of a turn, and returns for each answer what
// Turn.Answer returns. The session's last turn is resumed if it is suspended; one
// that is over takes no more answers, but knows a repeat of those that it has
// got.
func (m *Manager) AnswerTurn(ctx context.Context, req AttachRequest, answers []Answer) ([]error, error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	if err := h.s.checkPosition(nil); err != nil {
		return nil, err
	}
	t, err := h.s.findOwner(ctx, req.TurnID)
	if err == nil && h.s.isLast(t) {
		t, err = m.goOn(ctx, req)
	}
	if err == nil {
		t, err = h.s.withResults(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = t.Answer(ctx, a)
	}
	m.goOnAfter(ctx, h.s, req) // it may have been put aside meanwhile
	return errs, nil
}

// goOnAfter has the open turn of a session go on, of which something was recorded.
// That stands, whether or not the turn can go on now.
func (m *Manager) goOnAfter(ctx context.Context, s *Session, req AttachRequest) {
	if !s.isOpen() {
		return
	}
	if _, err := m.goOn(ctx, req); err != nil {
		m.log.LogAttrs(ctx, slog.LevelInfo, "a turn that could go on waits for a client",
			slog.String("session", req.SessionID), slog.String("error", err.Error()))
	}
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
			if err := wait(ctx, a.done); err != nil {
				return err
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
	waiting               // it waits for its start
	moving                // it runs
	starting              // it is made to run
	aside                 // it is open and runs nowhere
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
		return t, t.attempt, aside
	}
}

// endAside ends a turn that was put aside.
func (m *Manager) endAside(ctx context.Context, h *held, reason string) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.turns.Done()
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
