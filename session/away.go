package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
)

// returnTime is the least time that clients get to come back after the server was down or has suspended
// their turn.
const returnTime = time.Minute

// ClientsLeft records when a turn is canceled if its clients stay away, so that the next server knows. The
// timer of a running turn is the attempt's, see reconcileLocked; that of a suspended turn is in
// Manager.cancels.

// recordLeaveLocked records cancelAt if it differs from the log. A turn that is canceled at once needs no
// record.
func (s *Session) recordLeaveLocked(t *Turn) {
	d := t.onDisconnect
	if t.recordingLeave || !d.Cancel || d.Grace == 0 && t.cancelLogged.IsZero() || t.cancelAt.At.Equal(t.cancelLogged) {
		return
	}
	t.recordingLeave = s.store.flushers.Spawn(func() { s.recordLeave(t) })
}

// recordLeave writes until the log has cancelAt. It ignores an error: only a later server misses the
// record.
func (s *Session) recordLeave(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t.ended == nil && !t.cancelAt.At.Equal(t.cancelLogged) {
		fact := &record.ClientsLeft{CancelAt: t.cancelAt.At}
		data, err := logjson.Marshal(fact)
		if err == nil {
			e := &entry{turn: t, kind: record.KindClientsLeft, data: data, fact: fact}
			lock.Without(&s.mu, func() { _, err = s.commit(context.Background(), e) })
		}
		if err != nil {
			break
		}
	}
	t.recordingLeave = false
}

// applyClientsLeftLocked applies the time at which a turn is canceled.
func (s *Session) applyClientsLeftLocked(t *Turn, f *record.ClientsLeft) {
	t = s.nowLocked(t)
	t.cancelLogged = f.CancelAt
	if !t.runs() && !t.cancelAt.At.Equal(f.CancelAt) { // the log is being read
		t.cancelAt = s.store.At(f.CancelAt, max(t.onDisconnect.Grace, returnTime))
	}
}

// clientsLost sets the timer that cancels a suspended turn, if its clients have asked for that and do not
// come back in time. The server has lost their connections.
func (m *Manager) clientsLost(s *Session) {
	if turnID, when := s.clientsLost(); turnID != "" {
		m.cancelLater(s.id, turnID, when)
	}
}

// clientsLost returns the open turn, and when it is canceled if no client comes back; "" if it is not.
func (s *Session) clientsLost() (turnID string, when clock.Due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.ended != nil || !t.onDisconnect.Cancel {
		return "", clock.Due{}
	}
	if t.cancelAt.IsZero() { // they were there until now
		t.cancelAt = s.store.In(max(t.onDisconnect.Grace, returnTime))
	}
	return t.id, t.cancelAt
}

// cancelLater sets the timer that calls cancelNow.
func (m *Manager) cancelLater(sessionID, turnID string, when clock.Due) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return
	}
	if timer := m.cancels[sessionID]; timer != nil {
		timer.Stop()
	}
	m.cancels[sessionID] = time.AfterFunc(when.Left(), func() {
		if next := m.cancelNow(sessionID, turnID, when); !next.IsZero() {
			m.cancelLater(sessionID, turnID, next)
		}
	})
}

// cancelNow cancels a suspended turn whose time has come, by what its session says now. It returns when to
// call cancelNow next, zero for never.
func (m *Manager) cancelNow(sessionID, turnID string, when clock.Due) (next clock.Due) {
	if !m.admitCancel(sessionID) {
		return clock.Due{} // the next server does it
	}
	defer m.turns.Done()
	ctx := context.Background()
	ref, err := m.acquire(ctx, sessionID)
	if err == nil {
		defer m.release(ref)
		var is state
		if is, when = ref.Value.leaveDue(turnID, when); is == over {
			return clock.Due{}
		}
		if is != suspended || when.Left() > 0 {
			return when
		}
		err = m.endSuspended(ctx, ref, disconnected)
	}
	if err == nil || refusal.IsGone(err) {
		return clock.Due{}
	}
	m.log.LogAttrs(ctx, slog.LevelWarn, "a turn whose client is gone is left open for now",
		slog.String("session", sessionID),
		slog.String("turn", turnID), slog.String("error", err.Error()))
	return m.store.In(returnTime)
}

// admitCancel forgets the timer that has fired, and counts the caller in m.turns. It reports false in a
// server that stops.
func (m *Manager) admitCancel(sessionID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cancels, sessionID)
	if !m.draining {
		m.turns.Add(1)
	}
	return !m.draining
}

// leaveDue returns the state of a turn that was to be canceled at when, and when it is to be canceled
// now. A running turn counts as over: its own timer cancels it.
func (s *Session) leaveDue(turnID string, when clock.Due) (state, clock.Due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	switch {
	case t == nil || t.id != turnID || t.ended != nil:
		return over, when
	case t.runs():
		if t.cancelAt.IsZero() && !s.attendedLocked() {
			t.cancelAt = when
			s.reconcileLocked()
		}
		return over, when
	case s.starting != nil:
		return starting, s.store.In(returnTime)
	case !t.cancelAt.IsZero() && !t.cancelAt.At.Equal(when.At): // else the session may have been reloaded since
		when = t.cancelAt
	}
	return suspended, when
}
