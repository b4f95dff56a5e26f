package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// returnTime is the least time that clients get to come back which the server has
// lost: it was gone, or could not go on.
const returnTime = time.Minute

// When a turn is canceled because its clients stay away is in the log (ClientsLeft),
// so that a server that comes later keeps to it. While the turn runs its own timer
// waits for that time, see reconcileLocked; while it is suspended a timer of the manager
// does, which looks at the session when it fires.

// noteLeaveLocked has the log say when the running turn is canceled, or that it is
// not. A turn that is canceled at once needs no record.
func (s *Session) noteLeaveLocked(t *Turn) {
	d := t.onDisconnect
	if t.noting || !d.Cancel || d.Grace == 0 && t.cancelLogged.IsZero() || t.cancelAt.At.Equal(t.cancelLogged) {
		return
	}
	t.noting = s.store.flushers.Spawn(func() { s.noteLeave(t) })
}

// noteLeave writes until the log says what is so now. A record that cannot be written
// is missed by a later server alone.
func (s *Session) noteLeave(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t.ended == nil && !t.cancelAt.At.Equal(t.cancelLogged) {
		fact := &record.ClientsLeft{CancelAt: t.cancelAt.At}
		data, err := logjson.Marshal(fact)
		if err == nil {
			lock.Without(&s.mu, func() {
				_, err = s.commit(context.Background(), &entry{turn: t, kind: record.KindClientsLeft, data: data, fact: fact})
			})
		}
		if err != nil {
			break
		}
	}
	t.noting = false
}

// clientsLeftLocked takes when a turn is canceled, as the log says it.
func (s *Session) clientsLeftLocked(t *Turn, f *record.ClientsLeft) {
	t = s.nowLocked(t)
	t.cancelLogged = f.CancelAt
	if !t.runs() && !t.cancelAt.At.Equal(f.CancelAt) { // the log is being read
		t.cancelAt = s.store.At(f.CancelAt, max(t.onDisconnect.Grace, returnTime))
	}
}

// lost has the open turn of a session canceled whose clients the server has lost, if
// that is what they have asked for and none is back in time.
func (m *Manager) lost(s *Session) {
	if turnID, when := s.lost(); turnID != "" {
		m.cancelLater(s.id, turnID, when)
	}
}

// lost says which turn is canceled, and when, if none of its clients comes back; "" for
// none.
func (s *Session) lost() (turnID string, when clock.Due) {
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

// cancelLater has a turn canceled at a time if it is suspended then and nobody has
// come for it.
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
		if again := m.cancelNow(sessionID, turnID, when); !again.IsZero() {
			m.cancelLater(sessionID, turnID, again)
		}
	})
}

// cancelNow cancels a turn that was to be canceled by now, unless the log says
// otherwise. It returns when to look again, zero for not at all.
func (m *Manager) cancelNow(sessionID, turnID string, when clock.Due) (again clock.Due) {
	if !m.enterToCancel(sessionID) {
		return clock.Due{} // for the next server
	}
	defer m.turns.Done()
	ctx := context.Background()
	h, err := m.acquire(ctx, sessionID)
	if err == nil {
		defer m.release(h)
		var is state
		if is, when = h.Value.leaveDue(turnID, when); is == over {
			return clock.Due{}
		}
		if is != suspended || when.Left() > 0 {
			return when
		}
		err = m.endSuspended(ctx, h, disconnected)
	}
	if e, ok := errors.AsType[*fault.Error](err); err == nil || ok && (e.Code == fault.SessionNotFound || e.Code == fault.HistoryPurged) {
		return clock.Due{}
	}
	m.log.LogAttrs(ctx, slog.LevelWarn, "a turn whose client is gone is left open for now",
		slog.String("session", sessionID),
		slog.String("turn", turnID), slog.String("error", err.Error()))
	return m.store.In(returnTime)
}

// enterToCancel forgets the timer that has fired, and counts the caller in m.turns. It
// reports false in a server that stops.
func (m *Manager) enterToCancel(sessionID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cancels, sessionID)
	if !m.draining {
		m.turns.Add(1)
	}
	return !m.draining
}

// leaveDue says how a turn is that was to be canceled at a time, and when it is to
// be. A turn that runs sees to that itself, and is over to who asks.
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
	case !t.cancelAt.IsZero() && !t.cancelAt.At.Equal(when.At): // else its session may have been read again since
		when = t.cancelAt
	}
	return suspended, when
}
