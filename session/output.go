package session

import (
	"cmp"
	"encoding/json"

	"google.golang.org/protobuf/types/known/structpb"
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

// Value is the protocol's form of a JSON value; nil for text that is none. Its
// numbers are float64: of an integer beyond 2^53 the last digits are lost.
func Value(text string) *structpb.Value {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil
	}
	value, err := structpb.NewValue(v)
	if err != nil {
		return nil // not reached: what came out of JSON goes in
	}
	return value
}
