package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// seekPage is how many records CursorAt reads at a time.
const seekPage = 64

// CursorAt returns the cursor of the last place of a session at which no turn runs and that is not behind seq: where
// the turn that runs at seq has begun, or where the last one has ended. "" is the beginning. It reads the log backward
// from seq, as far as that turn is long. An error that a client may see is of type *fault.Error.
func (m *Manager) CursorAt(ctx context.Context, id string, seq int64) (string, error) {
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return "", err
	}
	head, err := m.store.Head(ctx, key)
	if err == nil && head.Purged > 0 { // which reading it says
		return "", nil
	}
	last := min(position.Record(seq), head.LastSeq)
	for upTo := last; err == nil && upTo > 0; {
		from := max(0, upTo-seekPage)
		var at int64
		if at, err = m.boundary(ctx, key, from, upTo, seq); at > 0 {
			return render.Place{At: position.LastOf(at), From: at + 1}.Cursor(id), nil
		}
		upTo = from
	}
	if errors.Is(err, store.ErrNoSession) {
		return "", refusal.NoSession(key)
	}
	if err != nil {
		return "", fmt.Errorf("session %s: look for a place: %w", key, err)
	}
	return "", nil
}

// boundary returns the last record of a log, of those behind from and up to another one, behind which no turn runs and
// that is whole at seq; 0 for none.
func (m *Manager) boundary(ctx context.Context, key string, from, upTo, seq int64) (at int64, err error) {
	for from < upTo {
		page, err := m.store.Read(ctx, key, from, int(upTo-from))
		if err != nil || len(page) == 0 {
			return 0, err
		}
		for i := range page {
			rec := &page[i]
			switch from = rec.Seq; {
			case rec.Kind == record.KindTurnStarted:
				at = rec.Seq - 1
			case rec.Kind == record.KindTurnEnded && seq >= position.Of(rec.Seq, position.End):
				at = rec.Seq
			}
		}
	}
	return at, nil
}
