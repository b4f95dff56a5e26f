package anthropic

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/sse"
)

// What quick reads of an event is what encoding/json reads of it, whatever the event before held.
func FuzzQuick(f *testing.F) {
	for _, stream := range providertest.Streams(f, providertest.Anthropic) {
		for ev, err := range sse.Read(strings.NewReader(stream), 0) {
			if err != nil {
				break
			}
			f.Add(ev.Data)
		}
	}
	f.Add([]byte(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\u003cb","text":"c"}}`))
	f.Add([]byte(`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"},"delta":{"text":"b"}}`))
	f.Add([]byte(`{"type":"content_block_delta","index":-1,"Delta":{"text":"a"}}`))
	f.Add([]byte(`{"type":"ping","type":"content_block_delta","delta":{"partial_json":null},"future":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := event{Index: 7, Delta: delta{Type: "text_delta", Text: "before"}}
		if !got.quick(data) {
			return
		}
		var want event
		if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n%+v\nwant\n%+v, %v", data, got, want, err)
		}
	})
}

// TestQuick: the pieces that most of a stream is of are read without encoding/json.
func TestQuick(t *testing.T) {
	for data, want := range map[string]bool{
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`:                    true,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`:            true,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`: true,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"a"}}`:          false,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`:                                          false,
		`{"index":0,"delta":{"type":"text_delta","text":"a"}}`:                                                 false,
	} {
		if got := new(event).quick([]byte(data)); got != want {
			t.Errorf("%s is read: %v, want %v", data, got, want)
		}
	}
}

// body answers each request with a stream.
type body string

func (b body) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(string(b)))}, nil
}

func BenchmarkStream(b *testing.B) {
	const events = 200
	said := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	stream := said("message_start", `{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}`) +
		said("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		strings.Repeat(said("content_block_delta",
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words of an answer "}}`), events) +
		said("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + said("message_stop", `{"type":"message_stop"}`)
	llm, err := New(Config{APIKey: "k", Transport: body(stream)}).Open("m", "")
	if err != nil {
		b.Fatal(err)
	}
	req := &model.Request{Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{genai.NewContentFromText("hello", genai.RoleUser)}}
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		n := 0
		if _, err := llm.Generate(b.Context(), req, func(model.Delta) { n++ }); err != nil || n != events {
			b.Fatalf("%d deltas, error %v", n, err)
		}
	}
}
