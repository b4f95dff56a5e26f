package adkbridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	adkmodel "google.golang.org/adk/v2/model"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session/record"
)

// BenchmarkModelCall is a turn of one model call that takes no time, after so
// many events of about half a kilobyte. x10 is the time compared with that after
// 10 events: it should stay near 1.
func BenchmarkModelCall(b *testing.B) {
	for name, tree := range map[string]func() (s, author string){
		"llm":        func() (string, string) { return "llm", "root" },
		"sequential": func() (string, string) { return "sequential", "a" },
	} {
		kind, author := tree()
		base := 0.0
		for _, n := range []int{10, 100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/events=%d", name, n), func(b *testing.B) {
				root := llm("root")
				if kind == "sequential" {
					root = seq("root", llm("a"))
				}
				s := &script{always: func(string) step { return say("ok") }}
				r := New(Config{Resolve: s.Resolve})
				run := &fakeRun{
					spec:   &record.Spec{Agent: root, Tools: newFakeRun(nil, root, "").spec.Tools},
					limit:  -1,
					result: map[string]record.ToolResult{}, calls: map[string]record.ToolCall{}, asked: map[string]int{},
				}
				hist := benchHistory(b, run, n, author)
				hist.prompt(author, "", 0)
				saved := *hist.prompts[promptKey{author, ""}]
				items := len(hist.items)
				b.ReportAllocs()
				for b.Loop() {
					s.requests = nil
					run.recs = run.recs[:n]
					run.begin("go on")
					r.cache.put(cacheKey{id: run.SessionID()}, hist)
					if err := r.runTurn(b.Context(), run); err != nil {
						b.Fatal(err)
					}
					if got := len(s.requests[0].contents); got != n+1 {
						b.Fatalf("%d contents, want %d", got, n+1)
					}
					// Back to n events.
					p := saved
					hist.items, hist.upto = hist.items[:items], int64(n)
					hist.prompts[promptKey{author, ""}] = &p
				}
				if per := float64(b.Elapsed().Nanoseconds()) / float64(b.N); base == 0 {
					base = per
				} else {
					b.ReportMetric(per/base, "x10")
				}
			})
		}
	}
}

// benchHistory returns a history of n events: prompts, responses with a call, results.
func benchHistory(b *testing.B, run *fakeRun, n int, author string) *history {
	text := strings.Repeat("lorem ipsum ", 40)
	add := func(kind record.Kind, v any) {
		data, ok := v.([]byte)
		if !ok {
			var err error
			if data, err = json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := run.store(kind, data); err != nil {
			b.Fatal(err)
		}
	}
	event := func(m *meta, c *genai.Content) []byte {
		data, err := encode(&adksession.Event{Author: author, LLMResponse: adkmodel.LLMResponse{Content: c}}, m)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	for i := range n {
		call := &genai.FunctionCall{ID: fmt.Sprint("call_", i-i%5), Name: "search", Args: map[string]any{"q": text}}
		switch i % 5 {
		case 0:
			call.ID = fmt.Sprint("call_", i)
			add(record.KindTurnStarted, record.TurnStarted{Prompt: text})
		case 1:
			add(record.KindEvent, event(&meta{LLM: "x"}, &genai.Content{Role: "model", Parts: []*genai.Part{{FunctionCall: call}}}))
		case 2:
			add(record.KindEvent, event(&meta{}, &genai.Content{Role: "user", Parts: []*genai.Part{responsePart(call, map[string]any{"out": text})}}))
		default:
			add(record.KindEvent, event(&meta{LLM: "x"}, genai.NewContentFromText(text, "model")))
		}
	}
	hist := newHistory()
	run.start = int64(n + 1)
	if _, err := hist.load(b.Context(), run); err != nil {
		b.Fatal(err)
	}
	return hist
}
