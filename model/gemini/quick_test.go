package gemini

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/sse"
)

// reading is a response that is being read, with its deltas.
type reading struct {
	collector
	deltas []model.Delta
}

func newReading() *reading {
	r := &reading{collector: collector{model: "m"}}
	r.parts = &adapter.Builder{Provider: name, Emit: func(d model.Delta) { r.deltas = append(r.deltas, d) }}
	return r
}

// result is all that has come of the events so far.
func (r *reading) result(err error) any {
	return []any{r.deltas, r.parts.Content(), r.usage, r.finish, r.detail, r.rated, r.model, r.seen, fmt.Sprint(err)}
}

// What quick reads of an event is what encoding/json reads of it.
func FuzzQuick(f *testing.F) {
	for _, stream := range providertest.Streams(f, providertest.Gemini) {
		for ev, err := range sse.Read(strings.NewReader(stream), 0) {
			if err != nil {
				break
			}
			f.Add(string(ev.Data), string(ev.Data))
		}
	}
	const text = `{"candidates":[{"content":{"parts":[{"text":"a","thought":true},{"text":"\u003cb"}],"role":"model"},"index":0}],"modelVersion":"m"}`
	f.Add(text, `{"candidates":[{"content":{"parts":[{"text":"c"}]},"finishReason":"STOP","safetyRatings":[{"category":"X","blocked":true}]}],"usageMetadata":{"promptTokenCount":3,"thoughtsTokenCount":-1}}`)
	f.Add(text, `{"candidates":[{"content":{"parts":[{"text":"c"}],"parts":[{"thought":true}]}}],"candidates":[{"index":1}]}`)
	f.Add(text, `{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]}}],"usageMetadata":{"Prompttokencount":3},"modelVersion":null}`)
	f.Add(text, `{"candidates":[],"usageMetadata":null}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		l := &llm{model: "m", secret: "canary-key-0123456789"}
		quick, whole := newReading(), newReading()
		for _, data := range []string{first, second} {
			var err error
			c := &chunk{}
			if json.Unmarshal([]byte(data), c) != nil {
				if quick.quick.read([]byte(data), quick.model) != nil {
					t.Errorf("%q is no event, and was read", data)
				}
				return
			}
			err = l.chunk(&whole.collector, c, []byte(data))
			got, want := quick.result(l.event(&quick.collector, []byte(data))), whole.result(err)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q:\n%#v\nwant\n%#v", data, got, want)
			}
		}
	})
}

// TestQuick: the events that most of a stream is of are read without encoding/json, and nothing of one stays for the next.
func TestQuick(t *testing.T) {
	var q quickChunk
	for _, data := range []string{
		`{"candidates":[{"content":{"parts":[{"text":"a","thought":true},{"text":"b"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":3,"totalTokenCount":4,"promptTokensDetails":[{"modality":"TEXT","tokenCount":3}]},"modelVersion":"m","responseId":"r"}`,
		`{"candidates":[{"content":{"parts":[{"text":"c"}]},"finishReason":"STOP","safetyRatings":[]}]}`,
		`{}`,
	} {
		got := q.read([]byte(data), "m")
		if got == nil {
			t.Fatalf("%s was not read", data)
		}
		want := &chunk{}
		if err := json.Unmarshal([]byte(data), want); err != nil {
			t.Fatal(err)
		}
		for i := range want.Candidates {
			for j, p := range want.Candidates[i].Content.Parts {
				var text genai.Part
				if err := json.Unmarshal(p.raw, &text); err != nil {
					t.Fatal(err)
				}
				want.Candidates[i].Content.Parts[j] = chunkPart{text: text.Text, thought: text.Thought}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", data, got, want)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	const events = 200
	event := `data: {"candidates":[{"content":{"parts":[{"text":"some words of an answer "}],"role":"model"},"index":0}],` +
		`"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":7,"totalTokenCount":18},"modelVersion":"gemini-2.5-pro","responseId":"abc"}` + "\r\n\r\n"
	body := strings.Repeat(event, events) + `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n"
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		n := 0
		p := &player{llm: llm{model: "m"}, body: body}
		if _, err := p.Generate(b.Context(), nil, func(model.Delta) { n++ }); err != nil || n != events {
			b.Fatalf("%d deltas, error %v", n, err)
		}
	}
}
