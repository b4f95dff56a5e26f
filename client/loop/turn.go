package loop

import (
	"context"
	"iter"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/client"
)

// turn is one try of a request. Unless a field says otherwise, the goroutine of Run owns it.
type turn struct {
	r         *Request
	sessionID string
	forks     bool
	resp      Response
	stopped   string        // why the turn ended without an error before it was complete
	over      chan struct{} // closed when no more events are read

	modelled bool            // OnActivity was called with the model
	used     map[string]bool // the calls of which OnToolUse was told

	mu    sync.Mutex               // protects shown
	shown map[string]chan struct{} // closed when OnToolUse was told of a call of this client
}

func newTurn(r *Request) *turn {
	return &turn{
		r: r, sessionID: r.SessionID, forks: r.ForkSession, over: make(chan struct{}),
		used: map[string]bool{}, shown: map[string]chan struct{}{},
	}
}

// watch passes events on and notes what they say.
func (t *turn) watch(events iter.Seq2[*client.Event, error]) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		for event, err := range events {
			if event != nil {
				t.note(event)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

func (t *turn) note(event *client.Event) {
	if event.SessionID != "" {
		t.resp.SessionID = event.SessionID
	}
	switch d := event.Data.(type) {
	case *client.AgentStarted:
		t.model(d.Model)
		if len(d.AgentPath) > 1 {
			t.activity(ActivityAgentStarted, strings.Join(d.AgentPath, "/"))
		}
	case *client.AgentEnded:
		if len(d.AgentPath) > 1 {
			t.activity(ActivityAgentEnded, strings.Join(d.AgentPath, "/"))
		}
	case *client.ModelCallEnded:
		t.model(d.Model)
		if d.Outcome == client.OutcomeAnswered || d.Outcome == "" {
			t.resp.NumTurns++
			t.resp.Model, t.resp.StopReason = d.ServedModel, stopReason(d.StopReason)
			if t.resp.Model == "" {
				t.resp.Model = d.Model
			}
		}
	case *client.ToolCall:
		t.toolUse(d.ID, d.Name, string(d.Input))
		t.markShown(d.ID)
	case *client.ToolCallAnnounced:
		t.toolUse(d.ID, d.Name, string(d.Input))
	case *client.End:
		if !d.Completed {
			if t.stopped = d.Reason; t.stopped == "" {
				t.stopped = "no reason was given"
			}
		}
	}
}

// stopReason returns the word for a stop reason: a model that has said all has ended its turn.
func stopReason(s client.StopReason) string {
	if s == client.StopReasonStop {
		return "end_turn"
	}
	return string(s)
}

// model tells of the turn's model, once.
func (t *turn) model(name string) {
	if name != "" && !t.modelled {
		t.modelled = true
		t.activity(ActivityModel, name)
	}
}

func (t *turn) activity(activity, detail string) {
	if t.r.OnActivity != nil {
		t.r.OnActivity(activity, detail)
	}
}

func (t *turn) toolUse(id, name, input string) {
	if t.r.OnToolUse != nil && !t.used[id] {
		t.used[id] = true
		t.r.OnToolUse(name, input)
	}
}

// shownOf returns what is closed when OnToolUse was told of a call.
func (t *turn) shownOf(id string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown[id] == nil {
		t.shown[id] = make(chan struct{})
	}
	return t.shown[id]
}

func (t *turn) markShown(id string) {
	shown := t.shownOf(id)
	select {
	case <-shown:
	default:
		close(shown)
	}
}

// awaitShown keeps the handler of a call back until OnToolUse was told of it.
func (t *turn) awaitShown(ctx context.Context, call *client.ToolCall) {
	select {
	case <-t.shownOf(call.ID):
	case <-t.over:
	case <-ctx.Done():
	}
}
