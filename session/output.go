package session

import (
	"encoding/json"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// answered takes what a model has answered into what is known of its turn.
func (t *TurnInfo) answered(ev *record.Event) {
	if ev.Final() {
		t.Output, t.Structured = ev.FinalText(), ev.Structured
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
