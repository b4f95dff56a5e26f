package session

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/storage"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// HoldResuming keeps a session's turn from being resumed until the function that it
// returns is called.
func (m *Manager) HoldResuming(id string) (release func()) {
	s := m.sessions.Find(id).Value
	s.Resuming.Lock()
	return s.Resuming.Unlock
}

// Reserve makes a session look as if somebody who has just started its turn had
// not yet let go of it.
func (m *Manager) Reserve(id string) (release func()) {
	s := m.sessions.Find(id).Value
	return s.HoldStart()
}

// Started returns when a turn has started.
func Started(t *Turn) time.Time { return live.StartedAt(t) }

// IndexOf is what the log of a session says of it: rows in order of their ids.
func IndexOf(ctx context.Context, db store.Store, runner Runner, info store.Info) (store.Batch, error) {
	limits := limits.Limits{}.WithDefaults()
	st := storage.New(storage.Config{Store: db, Logger: slog.New(slog.DiscardHandler), Limits: limits})
	s := live.NewSession(live.Env{Store: st, Runner: runner}, info.ID)
	x, rows, err := s.ReadIndex(ctx, info.Inherited, info.LastSeq, info.ID)
	if err != nil {
		return store.Batch{}, err
	}
	slices.SortFunc(rows, func(a, b store.Row) int { return strings.Compare(a.ID, b.ID) })
	return store.Batch{SessionID: info.ID, Rows: rows, Usage: x.Usage, LastTurn: x.Last, LastStatus: x.LastAs}, nil
}

// Users is how many hold a session in memory.
func (m *Manager) Users(id string) (n int) {
	m.sessions.Each(func(s *live.Session, users, _ int) {
		if s.ID() == id {
			n = users
		}
	})
	return n
}

// WakeReaders has those who read a session look, as if something had happened.
func (m *Manager) WakeReaders(id string) { m.rouseReaders(id) }

// Rouse has a reading look, as if something had happened.
func (w *SessionWatcher) Rouse() { w.rouse() }

// PanicOnUndrawnPhases has a change of phase panic that is not drawn.
func PanicOnUndrawnPhases() { live.Undrawn = func(_ *live.Session, change string) { panic(change) } }

// CheckTimers says what is in force of the timers of all sessions that does not follow from
// their phases, or the other way round. Nothing may happen meanwhile.
func (m *Manager) CheckTimers() []string {
	var wrong []string
	m.sessions.Each(func(s *live.Session, _, _ int) { wrong = append(wrong, s.CheckTimers()...) })
	return wrong
}

// Recent is about how many bytes are kept of the logs that were read last.
func (m *Manager) Recent() int64 { return m.store.Recent.Weight() }

// Running returns how many turns run.
func (m *Manager) Running() int { return len(m.runningNow()) }
