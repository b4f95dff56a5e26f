package providertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// memory answers every request with a stream.
type memory struct{ stream string }

// RoundTrip implements http.RoundTripper.
func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(m.stream)),
	}, nil
}

// reader opens an adapter over a stream in memory.
func reader(tb testing.TB, wire providertest.Wire, from *memory) model.LLM {
	tb.Helper()
	var p model.Provider
	switch wire {
	case providertest.OpenAIChat:
		p = openai.New(openai.Config{APIKey: apiKey, API: openai.Chat, Transport: from})
	case providertest.OpenAIResponses:
		p = openai.New(openai.Config{APIKey: apiKey, API: openai.Responses, Transport: from})
	case providertest.Anthropic:
		p = anthropic.New(anthropic.Config{APIKey: apiKey, Transport: from})
	default:
		p = gemini.New(gemini.Config{APIKey: apiKey, Transport: from})
	}
	llm, err := p.Open("any", "")
	if err != nil {
		tb.Fatal(err)
	}
	return modelcall.Guard(llm, modelcall.Limits{})
}

// failer is what rapid's and testing's tests share.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// judge reads a stream with an adapter and compares what comes of it with what
// the bytes say. It returns the answer, nil if there is none.
func judge(t failer, wire providertest.Wire, llm model.LLM, from *memory, stream string) *model.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	from.stream = stream
	resp, err := llm.Generate(ctx, &model.Request{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{}}, func(model.Delta) {})
	heard := providertest.Hear(wire, stream)
	if err != nil {
		e, ok := errors.AsType[*model.Error](err)
		switch {
		case !ok:
			t.Errorf("error %v of type %T", err, err)
		case e.Kind != model.KindUnavailable && !heard.Refused:
			t.Errorf("error of kind %s, want %s: %v", e.Kind, model.KindUnavailable, err)
		}
		if panicked, ok := errors.AsType[*modelcall.PanicError](err); ok {
			t.Errorf("panic: %v\n%s", panicked.Value, panicked.Stack)
		}
		return nil
	}
	if difference := providertest.Differs(wire, heard, spoken(resp)); difference != "" {
		t.Errorf("a wrong success: %s\n%s", difference, stream)
	}
	return resp
}

// spoken is what an answer holds.
func spoken(resp *model.Response) providertest.Heard {
	h := providertest.Heard{Ended: true, Text: parts(resp.Content, false), Thoughts: parts(resp.Content, true)}
	for _, p := range contentParts(resp.Content) {
		if p.FunctionCall != nil {
			args, _ := p.PartMetadata[seam.MetaArgs].(string)
			h.Calls++
			h.Args += args
		}
	}
	return h
}

// each runs a test for each answer of each wire's synthetic recordings.
func each(t *testing.T, test func(t *testing.T, wire providertest.Wire, stream string)) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			streams := providertest.Streams(t, wire)
			for _, name := range slices.Sorted(maps.Keys(streams)) {
				t.Run(name, func(t *testing.T) { test(t, wire, streams[name]) })
			}
		})
	}
}

var everyEvent = flag.Bool("every-event", false, "cut also long answers behind every event")

// TestCutAtEveryEvent: an answer that breaks off behind any event is no answer,
// up to the one that ends it; from there on it is the whole one. With the real
// recordings at hand these are cut too.
func TestCutAtEveryEvent(t *testing.T) {
	for _, rec := range providertest.All(t) {
		for _, e := range rec.Calls() {
			if e.Status >= 400 {
				continue
			}
			stream, err := e.EventStream()
			if err != nil {
				t.Fatal(err)
			}
			from := &memory{}
			llm := reader(t, e.Wire, from)
			t.Run(rec.Name, func(t *testing.T) {
				whole := judge(t, e.Wire, llm, from, stream)
				if whole == nil && !providertest.Hear(e.Wire, stream).Refused {
					t.Fatal("the whole answer is not understood")
				}
				events := providertest.Events(stream)
				for n := range events {
					// Long answers are cut behind some of their events, unless told otherwise.
					if edge := min(n, len(events)-n); !*everyEvent && edge > 8 && n%(len(events)/10+1) != 0 {
						continue
					}
					cut := strings.Join(events[:n], "")
					got := judge(t, e.Wire, llm, from, cut)
					if got != nil && whole != nil && providertest.Differs(e.Wire, spoken(whole), spoken(got)) != "" {
						t.Errorf("cut behind event %d of %d: a success that is not the whole answer", n, len(events))
					}
				}
			})
		}
	}
}

// TestDamagedStreams: bytes and events that are lost, doubled, moved, changed or
// put in between, never become a success that the bytes do not say.
func TestDamagedStreams(t *testing.T) {
	each(t, func(t *testing.T, wire providertest.Wire, stream string) {
		from := &memory{}
		llm := reader(t, wire, from)
		events := providertest.Events(stream)
		rapid.Check(t, func(rt *rapid.T) {
			damaged := slices.Clone(events)
			for range rapid.IntRange(1, 3).Draw(rt, "times") {
				damaged = damage(rt, damaged)
			}
			whole := strings.Join(damaged, "")
			if rapid.Bool().Draw(rt, "bytes") {
				whole = damageBytes(rt, whole)
			}
			judge(rt, wire, llm, from, whole)
		})
	})
}

// strangers are events that do not belong.
var strangers = []string{
	"data: {\n\n", "data: null\n\n", "data: []\n\n", "data: {}\n\n", "data: \"x\"\n\n", ": keep-alive\n\n", "event: news\n\n", "\n\n",
	"<html><body>502 Bad Gateway</body></html>\n", "data: {\"error\":{\"message\":\"boom\"}}\n\n", "data: {\"error\":\"boom\"}\n\n",
	"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}\n\n",
	"data: {\"type\":\"ping\"}\n\n", "data: {\"type\":\"news\",\"delta\":{\"text\":\"x\"}}\n\n", "\x00\xff\xfe", "data: \xff\n\n",
	"data: {\"choices\":[]}\n\n", "data: {\"candidates\":[]}\n\n", "data: [DONE]\n\n",
}

// damage changes a list of events.
func damage(t *rapid.T, events []string) []string {
	if len(events) == 0 {
		return events
	}
	i, j := rapid.IntRange(0, len(events)-1).Draw(t, "event"), rapid.IntRange(0, len(events)-1).Draw(t, "other")
	switch rapid.SampledFrom([]string{"lose", "double", "swap", "move", "insert", "change", "cut"}).Draw(t, "damage") {
	case "lose":
		return slices.Delete(events, i, i+1)
	case "double":
		return slices.Insert(events, j, events[i])
	case "swap":
		events[i], events[j] = events[j], events[i]
		return events
	case "move":
		e := events[i]
		events = slices.Delete(events, i, i+1)
		return slices.Insert(events, min(j, len(events)), e)
	case "insert":
		return slices.Insert(events, i, rapid.SampledFrom(strangers).Draw(t, "stranger"))
	case "change":
		events[i] = change(t, events[i])
		return events
	default:
		return events[:i]
	}
}

// change changes the JSON of an event in one place.
func change(t *rapid.T, event string) string {
	head, data, ok := strings.Cut(event, "data: ")
	var v any
	if !ok || json.Unmarshal([]byte(data), &v) != nil {
		return event
	}
	v = mutate(t, v)
	out, err := json.Marshal(v)
	if err != nil {
		return event
	}
	return head + "data: " + string(out) + "\n\n"
}

func mutate(t *rapid.T, v any) any {
	if rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
		switch v := v.(type) {
		case map[string]any:
			if len(v) > 0 {
				key := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(t, "key")
				if rapid.IntRange(0, 5).Draw(t, "drop") == 0 {
					delete(v, key)
				} else {
					v[key] = mutate(t, v[key])
				}
				return v
			}
		case []any:
			if len(v) > 0 {
				i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
				if rapid.IntRange(0, 5).Draw(t, "again") == 0 {
					return append(v, v[i])
				}
				v[i] = mutate(t, v[i])
				return v
			}
		}
	}
	return rapid.SampledFrom([]any{nil, true, 0.0, 7.5, -1.0, 1e300, "", "x", "\u0000", []any{}, []any{"x"}, map[string]any{}, map[string]any{"x": 1.0}}).Draw(t, "value")
}

// damageBytes changes a stream in one place, wherever that falls.
func damageBytes(t *rapid.T, s string) string {
	at := rapid.IntRange(0, len(s)).Draw(t, "at")
	switch rapid.SampledFrom([]string{"cut", "insert", "lose", "flip"}).Draw(t, "byte damage") {
	case "cut":
		return s[:at]
	case "insert":
		return s[:at] + string(rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "garbage")) + s[at:]
	case "lose":
		return s[:at] + s[min(len(s), at+rapid.IntRange(1, 64).Draw(t, "length")):]
	default:
		if at == len(s) {
			return s
		}
		return s[:at] + string([]byte{s[at] ^ 1<<rapid.IntRange(0, 7).Draw(t, "bit")}) + s[at+1:]
	}
}
