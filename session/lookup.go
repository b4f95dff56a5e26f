package session

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
)

// eventsBytes is the size of messages, in bytes, after which Events leaves the rest to the next call.
const eventsBytes = 4 << 20

// Events returns at most limit messages of a turn after a position, fewer if they are large, and whether
// there are more. keep, if not nil, selects the messages. It resumes no turn. Its errors are those of
// Attach.
func (m *Manager) Events(
	ctx context.Context, req AttachRequest, limit int, keep func(*agentdv1.RunResponse) bool,
) (msgs []*agentdv1.RunResponse, more bool, err error) {
	ref, err := m.acquireAt(ctx, req.SessionID, req.After)
	if err != nil {
		return nil, false, err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.CheckPosition(req.After); err != nil {
		return nil, false, err
	}
	t, err := s.Find(ctx, req.wanted())
	if err != nil {
		return nil, false, err
	}
	w := s.Replay(t, req.wanted())
	live.Own(w)
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
		case errors.Is(err, io.EOF), faulted, err == nil && !w.Lags():
			return msgs, false, nil
		case err != nil:
			return nil, false, err
		case size >= eventsBytes:
			return msgs, true, nil
		}
	}
}
