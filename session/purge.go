package session

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// purgeAll removes the logs of sessions that nobody uses. It leaves what fails
// to the next round.
func (m *Manager) purgeAll(ctx context.Context) {
	for ctx.Err() == nil {
		heads, err := m.store.Idle(ctx, time.Now().Add(-m.limits.PurgeAfter), readPage)
		if err != nil {
			return
		}
		done := 0
		for _, head := range heads {
			switch err := m.purge(ctx, head); {
			case err == nil:
				done++
				m.log.LogAttrs(ctx, slog.LevelInfo, "session purged", slog.String("session", head.ID), slog.Time("last_used", head.UpdatedAt))
			case !errors.Is(err, ErrConflict) && ctx.Err() == nil:
				m.log.LogAttrs(ctx, slog.LevelWarn, "the log of a session that is not used is kept", slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < readPage || done == 0 {
			return
		}
	}
}

// purge removes the log of a session that nobody uses at the moment; one that
// somebody uses is an ErrConflict.
func (m *Manager) purge(ctx context.Context, head Head) error {
	m.mu.Lock()
	if h := m.sessions[head.ID]; h != nil {
		if h.users > 0 {
			m.mu.Unlock()
			return ErrConflict
		}
		m.idle.Remove(h.idle)
		delete(m.sessions, head.ID)
	}
	// Who asks for the session meanwhile waits.
	h := &held{id: head.ID, ready: make(chan struct{}), users: 1}
	m.sessions[head.ID] = h
	m.mu.Unlock()
	err := m.store.Purge(ctx, head.ID, head.LastSeq)
	h.err = errPurged(head.ID)
	if err != nil {
		h.err = Errorf(codeUnavailable, "session %q was about to be purged: try again", head.ID)
	}
	close(h.ready)
	m.release(h)
	return err
}
