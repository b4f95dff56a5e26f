package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
)

// clientsLost sets the timer that cancels a suspended turn, if its clients have asked for that and do not
// come back in time. The server has lost their connections.
func (m *Manager) clientsLost(s *live.Session) {
	if turnID, when := s.ClientsLost(); turnID != "" {
		m.cancelLater(s.Key(), turnID, when)
	}
}

// cancelLater sets the timer that calls cancelNow.
func (m *Manager) cancelLater(key, turnID string, when clock.Due) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return
	}
	if timer := m.cancels[key]; timer != nil {
		timer.Stop()
	}
	m.cancels[key] = time.AfterFunc(when.Left(), func() {
		if next := m.cancelNow(key, turnID, when); !next.IsZero() {
			m.cancelLater(key, turnID, next)
		}
	})
}

// cancelNow cancels a suspended turn whose time has come, by what its session says now. It returns when to
// call cancelNow next, zero for never.
func (m *Manager) cancelNow(key, turnID string, when clock.Due) (next clock.Due) {
	if !m.admitCancel(key) {
		return clock.Due{} // the next server does it
	}
	defer m.turns.Done()
	ctx := context.Background()
	ref, err := m.acquireKey(ctx, key)
	if err == nil {
		defer m.release(ref)
		var is live.State
		if is, when = ref.Value.LeaveDue(turnID, when); is == live.Over {
			return clock.Due{}
		}
		if is != live.Suspended || when.Left() > 0 {
			return when
		}
		err = m.endSuspended(ctx, ref, live.Disconnected)
	}
	if err == nil || refusal.IsGone(err) {
		return clock.Due{}
	}
	m.log.LogAttrs(ctx, slog.LevelWarn, "a turn whose client is gone is left open for now",
		slog.String("session", key),
		slog.String("turn", turnID), slog.String("error", err.Error()))
	return m.store.In(live.ReturnTime)
}

// admitCancel forgets the timer that has fired, and counts the caller in m.turns. It reports false in a
// server that stops.
func (m *Manager) admitCancel(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cancels, key)
	if !m.draining {
		m.turns.Add(1)
	}
	return !m.draining
}
