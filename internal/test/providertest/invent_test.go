package providertest

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestInvent reads what was invented as what it was meant to be, whole and as the
// events of its stream.
func TestInvent(t *testing.T) {
	want := Answer{
		Text:  "Grüße <&>",
		Calls: []ToolCall{{ID: "call_a", Name: "inspect", Args: `{"z":1,"a":"süd"}`}, {ID: "call_b", Name: "weather", Args: `{}`}},
		Usage: Usage{Prompt: 10, Completion: 5, Cached: 3, Total: 15},
	}
	for _, wire := range Wires {
		e := Invent(wire, want).Calls()[0]
		events, err := stream(wire, object{"stream_options": encode(map[string]any{"include_usage": true})}, e.JSON)
		if err != nil {
			t.Fatal(err)
		}
		streamed := *e
		streamed.JSON, streamed.Text = nil, string(encodeEvents(wire, events))
		streamed.Header = map[string][]string{"Content-Type": {"text/event-stream"}}
		for _, e := range []*Exchange{e, &streamed} {
			got, err := answerOf(e)
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != want.Text || got.Usage != want.Usage || !reflect.DeepEqual(got.Calls, want.Calls) || got.Finish == "" || got.Model == "" {
				t.Errorf("%s: %+v, want %+v", wire, got, want)
			}
		}
	}
}

// TestErrorBody reads back the message of an error.
func TestErrorBody(t *testing.T) {
	for _, wire := range Wires {
		body := ErrorBody(wire, 503, "some_code", "no luck")
		got, err := answerOf(&Exchange{Wire: wire, Status: 503, JSON: json.RawMessage(body)})
		if err != nil || got.Message != "no luck" || got.Status != 503 {
			t.Errorf("%s: %+v, %v", wire, got, err)
		}
	}
}
