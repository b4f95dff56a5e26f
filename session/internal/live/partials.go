package live

import (
	"fmt"

	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// publishDelta sends a delta to the watchers, and adds it to the partial of its message.
func (s *Session) publishDelta(a *attempt, d record.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := a.t
	if t != s.turn || a != t.attempt || t.ended != nil {
		return
	}
	m := t.partials[d.MessageID]
	if m == nil {
		m = &render.Partial{ID: d.MessageID, Path: d.Path}
		if t.partials == nil {
			t.partials = map[string]*render.Partial{}
		}
		t.partials[d.MessageID] = m
	}
	for piece := range render.Pieces(d) {
		if s.deltas >= position.MaxDeltas {
			return
		}
		pos := position.Of(s.seq, position.Deltas+s.deltas)
		s.deltas++
		it := m.Add(pos, piece)
		if len(s.watchers) > 1 {
			it.Shared = new(render.Shared)
		}
		s.publishLocked(it)
	}
}

// partialsLocked returns the deltas of partials after a position.
func (s *Session) partialsLocked(t *Turn, after int64) ([]render.Item, error) {
	var out []render.Item
	if t != s.turn {
		return nil, nil
	}
	for _, m := range t.partials {
		items, err := m.Items(after)
		if err != nil {
			return nil, fmt.Errorf("session %s: message %s: %w", s.id, m.ID, err)
		}
		out = append(out, items...)
	}
	return out, nil
}
