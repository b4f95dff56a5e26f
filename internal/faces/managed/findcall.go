package managed

import (
	"context"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxSearched is how many turns may be searched for a call: a turn and those that were queued while it ran.
const maxSearched = 256

// find returns the call of an event, as it is now; nil if the id is none of a call of the session.
func (p *posting) find(ctx context.Context, eventID string) (*openCall, error) {
	seq, ok := seqOf(eventID)
	if !ok || seq > p.session.GetLastSeq() {
		return nil, nil
	}
	if c := p.open[eventID]; c != nil {
		return p.findIn(ctx, c.turn, seq)
	}
	if last := p.session.GetLastTurnId(); last != "" {
		if c, err := p.findIn(ctx, last, seq); c != nil || err != nil {
			return c, err
		}
	}
	var turns []string
	err := p.eachTurn(ctx, p.session.GetId(), func(t *agentdv1.Turn) bool {
		if t.GetAfterSeq() < seq && t.GetId() != p.session.GetLastTurnId() {
			turns = append(turns, t.GetId())
		}
		return len(turns) < maxSearched
	})
	if err != nil {
		return nil, err
	}
	for _, turn := range turns {
		if c, err := p.findIn(ctx, turn, seq); c != nil || err != nil {
			return c, err
		}
	}
	return nil, nil
}

// findIn reads a turn from the event of a call on, and returns what has become of the call; nil if the turn has none
// there.
func (p *posting) findIn(ctx context.Context, turn string, seq int64) (c *openCall, err error) {
	before := seq - 1
	state := &fold{sessionID: p.session.GetId(), running: running{turn: turn, calls: map[string]*call{}}}
	err = p.eachOfTurn(ctx, p.session.GetId(), turn, &before, func(e *agentdv1.RunResponse) bool {
		made := state.add(e)
		if c == nil {
			if e.GetSeq() != seq || len(state.order) == 0 {
				return false
			}
			c = &openCall{turn: turn}
		}
		if len(state.order) > 0 {
			c.call = *state.order[0]
		}
		for _, m := range made {
			switch m.kind {
			case "user.tool_confirmation":
				if m.is("tool_use_id", c.event) {
					if c.allowed = m; c.done {
						c.allowed, c.settled = nil, m
					}
				}
			case "user.tool_result", "user.custom_tool_result":
				if m.is("tool_use_id", c.event) || m.is("custom_tool_use_id", c.event) {
					c.settled, c.over = m, c.over || e.GetToolCallAnswered() == nil && e.GetInteractionResolved() == nil
				}
			case "session.status_idle":
				c.over = c.over || e.GetEnd() != nil
			}
		}
		return c.settled == nil && !c.over
	})
	return c, err
}

// is reports whether an event has a field of a value.
func (e *event) is(name, value string) bool {
	for _, f := range e.fields {
		if f.name == name {
			return f.value == value
		}
	}
	return false
}
