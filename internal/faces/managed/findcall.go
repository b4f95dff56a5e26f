package managed

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxSearched is how many turns may be searched for a call: a turn and those that were queued while it ran.
const maxSearched = 256

// find returns the call of an event, as it is now; nil if the id is none of a call of the session.
func (p *posting) find(ctx context.Context, eventID string) (*openCall, error) {
	seq, ok := seqOf(p.session.GetId(), eventID)
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
	s := p.search(turn, seq)
	err = p.eachOfTurn(ctx, p.session.GetId(), turn, &before, s.add)
	return s.call, err
}

// awaitResult waits until the result of a call that was given to the server is in the log: of two equal ones that come
// at the same time the second one may be taken before the first one is written.
func (p *posting) awaitResult(ctx context.Context, turn string, seq int64) (*openCall, error) {
	// A deadline would be told to the watch, which could then end a moment before ctx does.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(resultWait, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	unwritten := func(err error) error {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return &failure{status: http.StatusGatewayTimeout, message: notWritten}
		}
		return err
	}
	before := seq - 1
	in, err := p.env.Sessions.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: p.session.GetId(), TurnId: turn, AfterSeq: &before, Observe: true,
	}))
	if err != nil {
		return nil, unwritten(err)
	}
	defer func() { _ = in.Close() }() // what is left of it is of no use
	for s := p.search(turn, seq); in.Receive(); {
		if e := in.Msg().GetEvent(); e.GetSeq() > 0 && !s.add(e) {
			return s.call, nil
		}
	}
	return nil, unwritten(&failure{status: statusOverloaded, message: notWritten})
}

const notWritten = "the result is not written yet: send it again"

// resultWait is how long a request waits for a result that is being written.
const resultWait = 10 * time.Second

// callSearch reads what has become of a call from its event on.
type callSearch struct {
	seq   int64
	turn  string
	state *fold
	call  *openCall // nil until it is found
}

func (p *posting) search(turn string, seq int64) *callSearch {
	state := &fold{sessionID: p.session.GetId(), running: running{turn: turn, calls: map[string]*call{}}}
	return &callSearch{seq: seq, turn: turn, state: state}
}

// add takes an event, and reports whether those behind it may say more.
func (s *callSearch) add(e *agentdv1.RunResponse) bool {
	made := s.state.add(e)
	if s.call == nil {
		if e.GetSeq() != s.seq || len(s.state.order) == 0 {
			return false
		}
		s.call = &openCall{turn: s.turn}
	}
	c := s.call
	if len(s.state.order) > 0 {
		c.call = *s.state.order[0]
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
