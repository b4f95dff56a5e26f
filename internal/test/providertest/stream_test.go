package providertest

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/jsondiff"
)

// TestStreamRoundTrip joins every answer that is streamed back to the answer that
// was recorded.
func TestStreamRoundTrip(t *testing.T) {
	for _, rec := range All(t) {
		for i, e := range rec.Calls() {
			if e.Status >= 400 || e.Stream() {
				continue
			}
			want, err := answerOf(e)
			if err != nil {
				t.Fatalf("%s, call %d: %v", rec.Name, i, err)
			}
			got, err := answerOf(streamed(t, e))
			if err != nil {
				t.Fatalf("%s, call %d: %v", rec.Name, i, err)
			}
			got.Thoughts = []string{strings.Join(got.Thoughts, "")}
			want.Thoughts = []string{strings.Join(want.Thoughts, "")}
			for j := range min(len(want.Calls), len(got.Calls)) {
				if jsondiff.Equal(want.Calls[j].Args, got.Calls[j].Args) {
					got.Calls[j].Args = want.Calls[j].Args
				}
			}
			for j := range min(len(want.Items), len(got.Items)) {
				if jsondiff.Equal(want.Items[j].Args, got.Items[j].Args) {
					got.Items[j].Args = want.Items[j].Args
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, call %d:\n%+v, want\n%+v", rec.Name, i, got, want)
			}
		}
	}
}

// streamed is an exchange as a client that streams gets it.
func streamed(t testing.TB, e *Exchange) *Exchange {
	t.Helper()
	request := object{"stream_options": encode(object{"include_usage": encode(true)})}
	events, err := stream(e.Wire, request, e.JSON)
	if err != nil {
		t.Fatal(err)
	}
	s := *e
	s.Text = string(encodeEvents(e.Wire, events))
	s.Header = e.Header.Clone()
	s.Header.Set("Content-Type", "text/event-stream")
	return &s
}

// TestTruncated cuts streams behind every event but the last: none may be read
// as an answer.
func TestTruncated(t *testing.T) {
	for _, rec := range Synthetic(t) {
		for _, e := range rec.Calls() {
			if e.Status >= 400 || strings.Contains(rec.Name, "blocked") {
				continue
			}
			s := e
			if !e.Stream() {
				s = streamed(t, e)
			}
			pieces := splitEvents([]byte(s.Text))
			ends := 1
			if e.Wire == OpenAIChat {
				ends = 3 // finish reason, usage, [DONE]
			}
			for n := range len(pieces) - ends + 1 {
				cut := *s
				cut.Text = string(bytes.Join(pieces[:n], nil))
				if a, err := answerOf(&cut); err == nil {
					t.Fatalf("%s: %d of %d events count as an answer: %+v", rec.Name, n, len(pieces), a)
				}
			}
		}
	}
}

func TestStreamShapes(t *testing.T) {
	names := func(rec string, call int) []string {
		for _, r := range Synthetic(t) {
			if r.Name != rec {
				continue
			}
			var out []string
			for _, ev := range parseEvents(streamed(t, r.Calls()[call]).Text) {
				if len(out) == 0 || out[len(out)-1] != ev.name {
					out = append(out, ev.name)
				}
			}
			return out
		}
		t.Fatalf("no recording %s", rec)
		return nil
	}
	tests := map[string]struct{ got, want []string }{
		"anthropic": {names("anthropic_tools", 0), []string{
			"message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
		}},
		"responses": {names("responses_tools", 1), []string{
			"response.created", "response.in_progress",
			"response.output_item.added", "response.output_item.done",
			"response.output_item.added", "response.content_part.added", "response.output_text.delta",
			"response.output_text.done", "response.content_part.done", "response.output_item.done",
			"response.output_item.added", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done", "response.completed",
		}},
		"responses, reasoning": {names("responses_thoughts", 0)[:9], []string{
			"response.created", "response.in_progress", "response.output_item.added",
			"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
			"response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
			"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
		}},
		"responses, incomplete": {names("responses_incomplete", 0)[7:], []string{"response.output_item.done", "response.incomplete"}},
		"chat":                  {names("chat_tools", 0), []string{""}},
	}
	for name, tt := range tests {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s:\n%q, want\n%q", name, tt.got, tt.want)
		}
	}
}

// TestUsageChunk checks that the usage of a chat comes only when asked for.
func TestUsageChunk(t *testing.T) {
	body := object{"usage": encode(object{"total_tokens": encode(1)}), "choices": encode([]object{{"finish_reason": encode("stop")}})}
	for _, ev := range streamChat(object{}, body) {
		if strings.Contains(ev.data, "usage") {
			t.Errorf("a client that did not ask for usage got %s", ev.data)
		}
	}
}

func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		got := pieces(s)
		if strings.Join(got, "") != s {
			t.Fatalf("%q in pieces is %q", s, got)
		}
		for _, p := range got {
			if p == "" || !utf8.ValidString(p) {
				t.Fatalf("%q has the piece %q", s, p)
			}
		}
	})
}

func TestSplitEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wire := rapid.SampledFrom([]Wire{OpenAIChat, Gemini}).Draw(t, "wire")
		var events []event
		for _, data := range rapid.SliceOf(rapid.StringMatching(`[a-z{}":, ]+[a-z]`)).Draw(t, "events") {
			events = append(events, event{data: strings.TrimSpace(data)})
		}
		raw := encodeEvents(wire, events)
		got := splitEvents(raw)
		if len(got) != len(events) || !bytes.Equal(bytes.Join(got, nil), raw) {
			t.Fatalf("%q in pieces is %q", raw, got)
		}
		if back := parseEvents(string(raw)); len(back) != len(events) || len(back) > 0 && !reflect.DeepEqual(back, events) {
			t.Fatalf("%q reads as %v", raw, back)
		}
	})
}
