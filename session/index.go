package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/store"
)

// indexAll makes the index of sessions of an earlier version. A session whose log cannot be read gets none.
func (m *Manager) indexAll(ctx context.Context) error {
	for after := ""; ; {
		heads, err := m.store.Unindexed(ctx, after, live.ReadPage)
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
		if len(heads) < live.ReadPage {
			return nil
		}
	}
}

func (m *Manager) makeIndex(ctx context.Context, head store.Head) error {
	s := m.reader(head.ID)
	x, rows, err := s.ReadIndex(ctx, 0, head.LastSeq, head.ID)
	if err != nil {
		return err
	}
	b := store.Batch{SessionID: head.ID, Rows: rows, Usage: x.Usage, LastTurn: x.Last, LastStatus: x.LastAs}
	return m.store.Index(ctx, b, head.LastSeq)
}

// inMemory gives lists the state of the sessions in memory.
type inMemory struct{ m *Manager }

// InMemory reports whether a session is in memory, or about to be.
func (l inMemory) InMemory(key string) bool {
	return l.m.sessions.Find(key) != nil
}

// TurnNow returns a turn that is not over; see index.Live.
func (l inMemory) TurnNow(ctx context.Context, key, turnID string) (index.Turn, bool, error) {
	if l.m.owners != nil && l.m.sessionInMemory(key) == nil {
		return l.m.turnElsewhere(ctx, key, turnID)
	}
	ref, err := l.m.acquireKey(ctx, key)
	if err != nil {
		return index.Turn{}, false, err
	}
	defer l.m.release(ref)
	t, ok := ref.Value.TurnNow(turnID)
	return t, ok, nil
}

// LastNow returns the status of a turn if it is the last one of its session; see index.Live.
func (l inMemory) LastNow(key, turnID string) (index.Status, bool) {
	s := l.m.sessionInMemory(key)
	if s == nil {
		return 0, false
	}
	return s.LastIs(turnID), true
}

// turnElsewhere is TurnNow for a session that is not this server's, from the log. A turn whose server runs it counts as
// running if it can work.
func (m *Manager) turnElsewhere(ctx context.Context, key, turnID string) (index.Turn, bool, error) {
	env := m.env()
	env.Host = nil
	s, err := live.Load(ctx, env, key)
	if errors.Is(err, store.ErrNoSession) {
		err = refusal.NoSession(key)
	}
	if err != nil {
		return index.Turn{}, false, err
	}
	t, ok := s.TurnNow(turnID)
	if ok && t.Status == index.WaitingForClient && s.Prospect() != phase.OnlyWaits {
		address, err := m.ownerOf(ctx, key)
		if err != nil {
			return index.Turn{}, false, err
		}
		if address != "" {
			t.Status = index.Running
		}
	}
	return t, ok, nil
}
