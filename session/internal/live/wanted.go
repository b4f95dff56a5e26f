package live

import (
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/position"
)

// Wanted says which turn of a session a client wants, and what it has of it.
type Wanted struct {
	// TurnID names the turn; "" is the session's last turn.
	TurnID string
	// After is the position of the last message the client has; nil is the beginning of the turn.
	After *int64
	// Tools are the names of the tools that the client runs. Starter says that it has sent the prompt: it
	// runs all tools of the turn.
	Tools   []string
	Starter bool
	// Keys are the caller's own provider keys.
	Keys keys.Of
}

// from returns what a watcher of the turn begins with. If the client names no turn, the watcher receives
// the session's events from the start of the turn, and none from the time in the queue.
func (w *Wanted) from(t *Turn) watch {
	first := max(t.startSeq, 1)
	if w.TurnID != "" && t.queuedSeq > 0 {
		first = t.queuedSeq
	}
	from := watch{only: w.TurnID != "", after: position.Of(first, 0) - 1}
	if w.After != nil {
		from.after = *w.After
	}
	return from
}

// Attach returns a watcher of a turn for a client that takes part in it.
func (s *Session) Attach(t *Turn, w Wanted) *Watcher {
	from := w.from(t)
	from.asks = true
	tools := w.Tools
	if w.Starter {
		tools = t.toolNames()
	}
	if len(tools) > 0 {
		from.tools = map[string]bool{}
		for _, name := range tools {
			from.tools[name] = true
		}
	}
	return s.watch(t, from)
}

// Replay returns a watcher of a turn for a caller that takes no part in it.
func (s *Session) Replay(t *Turn, w Wanted) *Watcher { return s.watch(t, w.from(t)) }

// toolNames returns the names of the tools of a turn that is not over.
func (t *Turn) toolNames() []string {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	spec := t.spec
	if spec == nil && t.waits != nil { // it was read from the log
		spec, _ = t.waits.ReadSpec() // an error comes up when the turn starts
	}
	if spec == nil {
		return nil
	}
	var names []string
	for _, tool := range spec.Tools {
		names = append(names, tool.GetName())
	}
	return names
}
