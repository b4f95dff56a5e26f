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

// eventsBytes is the size of messages, in bytes, after which Events leaves the rest to the next call.
const eventsBytes = 4 << 20

// Events returns at most limit messages of a turn after a position, fewer if they are large, and whether
// there are more. keep, if not nil, selects the messages. It resumes no turn. Its errors are those of
// Attach.
func (m *Manager) Events(
	ctx context.Context, req AttachRequest, limit int, keep func(*agentdv1.RunResponse) bool,
) (msgs []*agentdv1.RunResponse, more bool, err error) {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, false, err
	}
	defer m.release(ref)
	s := ref.Value
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
		_, faulted := errors.AsType[*fault.Error](err)
		switch {
		case errors.Is(err, io.EOF), faulted, err == nil && !w.lagging():
			return msgs, false, nil
		case err != nil:
			return nil, false, err
		case size >= eventsBytes:
			return msgs, true, nil
		}
	}
}

// AnswerTurn records results of tool calls of a turn, and returns for each what Turn.Answer returns. It
// resumes the session's last turn if it is suspended. A turn that is over takes no more results, but a
// repeat of a recorded result is no error.
func (m *Manager) AnswerTurn(ctx context.Context, req AttachRequest, answers []Answer) ([]error, error) {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(ref)
	if err := ref.Value.checkPosition(nil); err != nil {
		return nil, err
	}
	t, err := ref.Value.findOwner(ctx, req.TurnID)
	if err == nil && ref.Value.isLast(t) {
		t, err = m.resumeLast(ctx, req)
	}
	if err == nil {
		t, err = ref.Value.withResults(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = t.Answer(ctx, a)
	}
	m.resumeAfter(ctx, ref.Value, req) // the turn may have been suspended meanwhile
	return errs, nil
}

// resumeAfter resumes the open turn of a session after something of it was recorded. It only logs an error:
// what was recorded stands.
func (m *Manager) resumeAfter(ctx context.Context, s *Session, req AttachRequest) {
	if !s.isOpen() {
		return
	}
	if _, err := m.resumeLast(ctx, req); err != nil {
		m.log.LogAttrs(ctx, slog.LevelInfo, "a turn that could go on waits for a client",
			slog.String("session", req.SessionID), slog.String("error", err.Error()))
	}
}
