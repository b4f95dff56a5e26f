package live

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// ReturnTime is the least time that clients get to come back after the server was down or has suspended their turn.
const ReturnTime = time.Minute

// ClientsLeft records when a turn is canceled if its clients stay away, so that the next server knows. The
// timer of a running turn is the attempt's, see reconcileLocked; that of a suspended turn is
// the server's.

// recordLeaveLocked records cancelAt if it differs from the log. A turn that is canceled at once needs no
// record.
func (s *Session) recordLeaveLocked(t *Turn) {
	d := t.onDisconnect
	if t.recordingLeave || !d.Cancel || d.Grace == 0 && t.cancelLogged.IsZero() || t.cancelAt.At.Equal(t.cancelLogged) {
		return
	}
	t.recordingLeave = s.store.Flushers.Spawn(func() { s.recordLeave(t) })
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
		t.cancelAt = s.store.At(f.CancelAt, max(t.onDisconnect.Grace, ReturnTime))
	}
}

// ClientsLost returns the open turn, and when it is canceled if no client comes back; "" if it is not.
func (s *Session) ClientsLost() (turnID string, when clock.Due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.ended != nil || !t.onDisconnect.Cancel {
		return "", clock.Due{}
	}
	if t.cancelAt.IsZero() { // they were there until now
		t.cancelAt = s.store.In(max(t.onDisconnect.Grace, ReturnTime))
	}
	return t.id, t.cancelAt
}

// LeaveDue returns the state of a turn that was to be canceled at when, and when it is to be canceled
// now. A running turn counts as over: its own timer cancels it.
func (s *Session) LeaveDue(turnID string, when clock.Due) (State, clock.Due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	switch {
	case t == nil || t.id != turnID || t.ended != nil:
		return Over, when
	case t.runs():
		if t.cancelAt.IsZero() && !s.attendedLocked() {
			t.cancelAt = when
			s.reconcileLocked()
		}
		return Over, when
	case s.starting != nil:
		return Starting, s.store.In(ReturnTime)
	case !t.cancelAt.IsZero() && !t.cancelAt.At.Equal(when.At): // else the session may have been reloaded since
		when = t.cancelAt
	}
	return Suspended, when
}
