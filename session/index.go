package session

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/store"
)

// indexAll makes the index of sessions of an earlier version. A session whose log cannot be read gets none.
func (m *Manager) indexAll(ctx context.Context) error {
	for after := ""; ; {
		heads, err := m.store.Unindexed(ctx, after, readPage)
		if err != nil {
			return fmt.Errorf("session: find sessions without an index: %w", err)
		}
		if after == "" && len(heads) > 0 {
			m.log.LogAttrs(ctx, slog.LevelInfo, "sessions of an earlier version are indexed, once")
		}
		for _, head := range heads {
			after = head.ID
			if err := m.makeIndex(ctx, head); err != nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a session is left without an index",
					slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < readPage {
			return nil
		}
	}
}

func (m *Manager) makeIndex(ctx context.Context, head store.Head) error {
	s := newSession(m.store, m.runner, m.limits, head.ID) // only read from
	x, rows, err := s.readIndex(ctx, 0, head.LastSeq, head.ID)
	if err != nil {
		return err
	}
	b := store.Batch{SessionID: head.ID, Rows: rows, Usage: x.Usage, LastTurn: x.Last, LastStatus: x.LastAs}
	return m.store.Index(ctx, b, head.LastSeq)
}

// readIndex returns the index of the log up to a record, and its rows under the id as. The records up to
// inherited are another session's.
func (s *Session) readIndex(
	ctx context.Context, inherited, upTo int64, as string,
) (*index.Index, []store.Row, error) {
	x := &index.Index{Inherited: inherited}
	rows, err := x.Read(s.records(ctx, 0, readPage), s.decode, upTo, as)
	return x, rows, err
}

// lists has the methods of the manager that find sessions, turns and interactions.
type lists = index.Lists

// live gives lists the state of the sessions in memory.
type live struct{ m *Manager }

// InMemory reports whether a session is in memory, or about to be.
func (l live) InMemory(id string) bool {
	return l.m.sessions.Find(id) != nil
}

// TurnNow returns a turn that is not over; see index.Live.
func (l live) TurnNow(ctx context.Context, sessionID, turnID string) (index.Turn, bool, error) {
	ref, err := l.m.acquire(ctx, sessionID)
	if err != nil {
		return index.Turn{}, false, err
	}
	defer l.m.release(ref)
	t, ok := ref.Value.turnNow(turnID)
	return t, ok, nil
}

// LastNow returns the status of a turn if it is the last one of its session; see index.Live.
func (l live) LastNow(sessionID, turnID string) (index.Status, bool) {
	s := l.m.sessionInMemory(sessionID)
	if s == nil {
		return 0, false
	}
	return s.lastIs(turnID), true
}

// turnNow returns a turn that is not over; false for any other.
func (s *Session) turnNow(id string) (index.Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.index.Turn(s.id, id, s.limits.Retention)
	if t.Status == index.Running {
		t.Status = s.statusLocked()
	}
	return t, ok
}

// lastIs returns the status of a turn if it is the session's last one, else 0.
func (s *Session) lastIs(id string) index.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.index.StatusOf(id)
	if is == index.Running {
		is = s.statusLocked()
	}
	return is
}

// statusLocked returns the status of the open turn.
func (s *Session) statusLocked() index.Status {
	t := s.turn
	switch {
	case s.starting != nil:
		return index.Running
	case t == nil:
		return index.WaitingForClient
	case !t.runs():
		return t.waitsFor()
	case len(t.pending) == 0 || len(t.modelCalls) > 0:
		return index.Running
	}
	for _, p := range t.pending {
		if p.owner != nil || p.phase == callRecording {
			return index.Running
		}
	}
	return t.waitsFor()
}

// onlyWaits reports whether a running turn waits for a person or an absent client, and nothing of it works.
func (s *Session) onlyWaits(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := a.t
	if t != s.turn || a != t.attempt || !t.runs() {
		return false
	}
	status := s.statusLocked()
	return status == index.WaitingForClient || status == index.WaitingForInput
}

// waitsFor returns the status of a turn that only waits.
func (t *Turn) waitsFor() index.Status {
	for _, p := range t.pending {
		if p.call.Asks != nil {
			return index.WaitingForInput
		}
	}
	return index.WaitingForClient
}
