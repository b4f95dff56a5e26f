package session

import (
	"context"
	"errors"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
)

// The cancel.go of package live draws every way in which a turn is canceled.

// CancelTurn cancels a turn, or drops it if it is queued, and returns when nothing of it runs any more.
// "" is the session's last turn. A turn that has ended stays as it is; a turn that the session does not
// have is a *fault.Error.
func (m *Manager) CancelTurn(ctx context.Context, sessionID, turnID, reason string) error {
	key, err := m.keyOf(ctx, sessionID)
	if err != nil {
		return err
	}
	return m.cancelTurn(ctx, key, turnID, reason)
}

// cancelTurn is CancelTurn for the key of a session.
func (m *Manager) cancelTurn(ctx context.Context, key, turnID, reason string) error {
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.CheckPosition(nil); err != nil {
		return err
	}
	// The turn may change its phase before the cancel takes effect: then look once more.
	for {
		d, is := s.Look(turnID)
		switch is {
		case live.Absent: // an earlier turn that has ended is no error
			_, err := s.FindOver(ctx, live.Wanted{TurnID: turnID})
			return err
		case live.Over:
			return nil
		case live.Waiting:
			if waits, err := s.Drop(ctx, d.Turn(), reason, true); waits || err != nil {
				return err
			}
			// It is just starting, or becoming a message.
			select {
			case err := <-s.End(d.Turn(), reason):
				return err
			case <-d.Ended():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case live.Active:
			d.Halt(reason)
			if err := lock.Wait(ctx, d.Ended()); err != nil {
				return err
			}
		case live.Starting:
			if err := s.AwaitStart(ctx); err != nil {
				return err
			}
		case live.Suspended:
			err := m.endSuspended(ctx, ref, reason)
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.Busy {
				return err
			}
		}
	}
}

// endSuspended ends the session's suspended turn.
func (m *Manager) endSuspended(ctx context.Context, ref *sessionRef, reason string) error {
	if err := m.admitEnd(); err != nil {
		return err
	}
	defer m.turns.Done()
	if err := ref.Value.Reserve(); err != nil {
		return err
	}
	next, err := ref.Value.CloseOpen(ctx, reason)
	if next == nil {
		ref.Value.Unreserve()
		return err
	}
	m.launchNext(ctx, ref, next)
	return err
}
