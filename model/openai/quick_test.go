package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/sse"
)

// addEvents adds the events of recorded streams to a fuzz test.
func addEvents(f *testing.F, wire providertest.Wire) {
	for _, stream := range providertest.Streams(f, wire) {
		for ev, err := range sse.Read(strings.NewReader(stream), 0) {
			if err != nil {
				break
			}
			f.Add(ev.Data)
		}
	}
}

// commonChunk is an event as OpenAI sends most of them.
const commonChunk = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","system_fingerprint":null,` +
	`"choices":[{"index":0,"delta":{"content":"some words of an answer "},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}`

// What quick reads of an event is what encoding/json reads of it, whatever the event before held.
func FuzzQuickChat(f *testing.F) {
	addEvents(f, providertest.OpenAIChat)
	f.Add([]byte(commonChunk))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a","content":null,"reasoning":"b","reasoning":null,"refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`))
	f.Add([]byte(`{"choices":[{"index":1,"delta":{"reasoning_content":"\u00e4"},"content_filter_results":{"hate":{"filtered":true}}}],"choices":[{}]}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}],"Model":"n"}`))
	f.Add([]byte(`{"choices":[],"usage":null,"error":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var q quickChunk
		if q.read([]byte(commonChunk), "m") == nil {
			t.Fatal("the common event is not read")
		}
		got := q.read(data, "m")
		if got == nil {
			return
		}
		var want chunk
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q is no event, and was read: %v", data, err)
		}
		for _, c := range want.Choices {
			if c.Delta == nil || c.Delta.Content == nil {
				continue
			}
			if err := json.Unmarshal(c.Delta.Content, &c.Delta.text); err != nil {
				t.Errorf("the content of %q is no text: %v", data, err)
			}
			c.Delta.Content = nil
		}
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%q:\n%+v\nwant\n%+v", data, got, &want)
		}
	})
}

func FuzzQuickResponses(f *testing.F) {
	addEvents(f, providertest.OpenAIResponses)
	f.Add([]byte(`{"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"a","logprobs":[],"sequence_number":4}`))
	f.Add([]byte(`{"type":"response.output_text.delta","Delta":"a","output_index":null}`))
	f.Add([]byte(`{"type":"response.refusal.delta","delta":"\ud83d\ude00","delta":"b","summary_index":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := responsesEvent{Type: "response.output_text.delta", Delta: "before", OutputIndex: 3}
		if !got.quick(data) {
			return
		}
		var want responsesEvent
		if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n%+v\nwant\n%+v, %v", data, got, want, err)
		}
	})
}

// TestQuick: the pieces that most of a stream is of are read without encoding/json.
func TestQuick(t *testing.T) {
	for data, want := range map[string]bool{
		commonChunk: true,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}]}`: true,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`:                                             true,
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`:                                        true,
		`{"choices":[{"index":0,"delta":{"tool_calls":[]}}]}`:                                                     false,
		`{"error":{"message":"no"}}`:                                                                              false,
	} {
		if got := new(quickChunk).read([]byte(data), "") != nil; got != want {
			t.Errorf("%s is read: %v, want %v", data, got, want)
		}
	}
	for data, want := range map[string]bool{
		`{"type":"response.output_text.delta","output_index":0,"delta":"a","logprobs":[]}`: true,
		`{"type":"response.reasoning_summary_text.delta","summary_index":1,"delta":"a"}`:   true,
		`{"type":"response.function_call_arguments.delta","delta":"{\"a\""}`:               true,
		`{"type":"response.output_item.done","item":{}}`:                                   false,
		`{"type":"response.output_text.done","delta":"a"}`:                                 false,
		`{"type":"error","message":"no"}`:                                                  false,
		`{"delta":"a"}`:                                                                    false,
	} {
		if got := new(responsesEvent).quick([]byte(data)); got != want {
			t.Errorf("%s is read: %v, want %v", data, got, want)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	const events = 200
	responses := func(n int) string {
		return strings.Repeat("event: response.output_text.delta\ndata: "+
			`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"some words of an answer ","logprobs":[],"sequence_number":5}`+"\n\n", n) +
			"event: response.completed\ndata: " + `{"type":"response.completed","response":{"status":"completed","model":"m","output":[]}}` + "\n\n"
	}
	for api, stream := range map[API]string{
		Chat:      strings.Repeat("data: "+commonChunk+"\n\n", events) + "data: " + `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}` + "\n\ndata: [DONE]\n\n",
		Responses: responses(events),
	} {
		b.Run(string(api), func(b *testing.B) {
			llm, err := New(Config{APIKey: "k", API: api, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
					Body: io.NopCloser(strings.NewReader(stream))}, nil
			})}).Open("m", "")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				n := 0
				if _, err := llm.Generate(b.Context(), hello(), func(model.Delta) { n++ }); err != nil || n != events {
					b.Fatalf("%d deltas, error %v", n, err)
				}
			}
		})
	}
}
