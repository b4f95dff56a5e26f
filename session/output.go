package session

import (
	"cmp"
	"encoding/json"

	"github.com/apzuk3/agentd/session/internal/logjson"
)

// final tells whether the event is an answer that a turn may end with: one that
// says something and asks the client for nothing. The last one is the turn's
// output.
func (e *Event) final() bool { return e.Text != "" && len(e.Calls) == 0 && e.Injected == "" }

// output is what an agent has answered in the end.
func (e *Event) output() string { return cmp.Or(e.Output, e.Text) }

// answered takes what a model has answered into what is known of its turn.
func (t *TurnInfo) answered(ev *Event) {
	if ev.final() {
		t.Output, t.Structured = ev.output(), ev.Structured
	}
	if ev.MessageID != "" {
		t.Model, t.Stop = ev.Model, ev.Stop
	}
}

// Structured is the protocol's form of a structured output: the text itself, of which
// every number keeps its digits; "" for text that is not JSON.
func Structured(text string) string {
	if !json.Valid([]byte(text)) {
		return ""
	}
	return logjson.Readable(text)
}
