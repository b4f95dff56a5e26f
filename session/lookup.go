package session

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// eventsBytes is how much the messages of one Events hold, in bytes, before it
// leaves the rest to the next one.
const eventsBytes = 4 << 20

// Events returns at most limit messages of a turn after a position, fewer if they
// are large, and whether there are more. With keep, those do not count that it refuses.
// The turn is left as it is. Its errors are as those of Attach.
func (m *Manager) Events(
	ctx context.Context, req AttachRequest, limit int, keep func(*agentdv1.RunResponse) bool,
) (msgs []*agentdv1.RunResponse, more bool, err error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, false, err
	}
	defer m.release(h)
	s := h.Value
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
		_, aside := errors.AsType[*fault.Error](err)
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
	if err := h.Value.checkPosition(nil); err != nil {
		return nil, err
	}
	t, err := h.Value.findOwner(ctx, req.TurnID)
	if err == nil && h.Value.isLast(t) {
		t, err = m.resumeLast(ctx, req)
	}
	if err == nil {
		t, err = h.Value.withResults(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = t.Answer(ctx, a)
	}
	m.resumeAfter(ctx, h.Value, req) // it may have been suspended meanwhile
	return errs, nil
}

// resumeAfter has the open turn of a session go on, of which something was recorded.
// That stands, whether or not the turn can go on now.
func (m *Manager) resumeAfter(ctx context.Context, s *Session, req AttachRequest) {
	if !s.isOpen() {
		return
	}
	if _, err := m.resumeLast(ctx, req); err != nil {
		m.log.LogAttrs(ctx, slog.LevelInfo, "a turn that could go on waits for a client",
			slog.String("session", req.SessionID), slog.String("error", err.Error()))
	}
}
