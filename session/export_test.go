package session

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// HoldResuming keeps a session's turn from being made to run again until the
// function it returns is called.
func (m *Manager) HoldResuming(id string) (release func()) {
	m.mu.Lock()
	s := m.sessions[id].s
	m.mu.Unlock()
	s.resuming.Lock()
	return s.resuming.Unlock
}

// Reserve makes a session look as if somebody who has just started its turn had
// not yet let go of it.
func (m *Manager) Reserve(id string) (release func()) {
	m.mu.Lock()
	s := m.sessions[id].s
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = make(chan struct{})
	return s.unreserve
}

// Started returns when the turn has started.
func (t *Turn) Started() time.Time {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.started
}

// IndexOf is what the log of a session says of it: rows in order of their ids.
func IndexOf(ctx context.Context, store Store, runner Runner, info Info) (Batch, error) {
	cfg := Config{Store: store, Runner: runner, Logger: slog.New(slog.DiscardHandler), Limits: Limits{}.WithDefaults()}
	s := newSession(newPatient(cfg, func(error) {}), runner, cfg.Limits, info.ID)
	x, err := s.readIndex(s.records(ctx, 0, readPage), info.Inherited, info.LastSeq, info.ID)
	if err != nil {
		return Batch{}, err
	}
	rows := slices.Collect(maps.Values(x.rows))
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.ID, b.ID) })
	return Batch{SessionID: info.ID, Rows: rows, Usage: x.usage, LastTurn: x.last, LastStatus: x.lastAs}, nil
}

// Users is how many hold a session in memory.
func (m *Manager) Users(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.sessions[id]; h != nil {
		return h.users
	}
	return 0
}

// WakeReaders has those who read a session look, as if something had happened.
func (m *Manager) WakeReaders(id string) { m.readers.rouse(id) }

// Rouse has a reading look, as if something had happened.
func (w *SessionWatcher) Rouse() { w.rouse() }

// PanicOnUndrawnPhases has a change of phase panic that is not drawn.
func PanicOnUndrawnPhases() { undrawn = func(_ *Session, change string) { panic(change) } }
