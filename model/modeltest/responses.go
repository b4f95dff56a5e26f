package modeltest

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// responseCase is a response and what the provider's wire must be able to say.
type responseCase struct {
	name     string
	response Response
	skip     bool
}

// usage is what responses report, as far as the wire can say it.
func (h Harness) usage() model.Usage {
	u := model.Usage{Prompt: 120, Completion: 34, Total: 154}
	if h.Can.CachedUsage {
		u.Cached = 64
	}
	if h.Can.CacheWriteUsage {
		u.CacheWrite = 12
	}
	if h.Can.ThoughtsUsage {
		u.Thoughts = 7
	}
	return u
}

// cases are the responses that every adapter must translate.
func (h Harness) cases() []responseCase {
	id := func(s string) string {
		if h.Can.CallIDs {
			return s
		}
		return ""
	}
	text := func(pieces ...string) []Piece {
		var out []Piece
		for _, p := range pieces {
			out = append(out, Piece{Text: p})
		}
		return out
	}
	return []responseCase{
		{name: "text", response: Response{Pieces: text("Hel", "lo, ", "wörld ", "\n", "<&>\u2028", `"q"`, "😀")}},
		{name: "max tokens", response: Response{Pieces: text("cut he"), Finish: genai.FinishReasonMaxTokens}},
		{name: "empty", response: Response{}},
		{
			name: "thoughts", skip: !h.Can.Thoughts,
			response: Response{Pieces: []Piece{{Thought: "let me "}, {Thought: "think"}, {Text: "done"}, {Text: "!"}}},
		},
		{
			name: "one call", skip: !h.Can.CallIDs,
			response: Response{Pieces: []Piece{{Text: "calling"},
				calling("call_1", "greet", `{"name":"Ann"}`)}},
		},
		{
			name: "parallel calls",
			response: Response{Pieces: []Piece{
				calling(id("call_1"), "greet", `{"name":"Ann"}`),
				calling(id("call_2"), "greet", `{"name":"Bob"}`),
				calling(id("call_3"), "add", `{"z":1,"a":{"y":[1,2.50,9007199254740993],"b":null}}`),
			}},
		},
		{
			name: "parallel calls without ids", skip: !h.Can.CallsWithoutID,
			response: Response{Pieces: []Piece{
				calling("", "greet", `{"name":"Ann"}`),
				calling("", "greet", `{"name":"Bob"}`),
			}},
		},
		{name: "no arguments", response: Response{Pieces: []Piece{calling(id("call_1"), "now", `{}`)}}},
		{
			name: "bad arguments", skip: !h.Can.BadArgs,
			response: Response{Pieces: []Piece{
				calling(id("call_1"), "greet", `{"name":"Ann`),
				calling(id("call_2"), "greet", `["Ann"]`),
				calling(id("call_3"), "greet", `{"name":"Bob"}`),
			}},
		},
	}
}

// calling is a piece with a function call.
func calling(id, name, args string) Piece {
	return Piece{Call: &struct{ ID, Name, Args string }{id, name, args}}
}

// responses checks that complete responses arrive whole.
func (h Harness) responses(t *testing.T) {
	for _, c := range h.cases() {
		if c.skip {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.response.Usage = h.usage()
			w := h.Encode(c.response)
			r := h.ask(t, w)
			if r.err != nil {
				t.Fatal(r.err)
			}
			h.checkResponse(t, c.response, r)

			// Comments, as proxies send them to keep a connection open, change nothing.
			var commented []string
			for _, f := range w.Frames {
				commented = append(commented, ": keep-alive\n\n", f)
			}
			second := h.ask(t, Wire{Status: w.Status, Header: w.Header, Frames: commented})
			if second.err != nil {
				t.Fatalf("with comments in the stream: %v", second.err)
			}
			h.checkResponse(t, c.response, second)
		})
	}
	t.Run("concurrently", h.concurrently)
}

// checkResponse holds a result against the response that was served.
func (h Harness) checkResponse(t testing.TB, a Response, r result) {
	t.Helper()
	var texts [2]strings.Builder
	var calls []Piece
	for _, p := range a.Pieces {
		texts[0].WriteString(p.Text)
		texts[1].WriteString(p.Thought)
		if p.Call != nil {
			calls = append(calls, p)
		}
	}
	for i, kind := range []string{"text", "thoughts"} {
		want := texts[i].String()
		if got := r.text(i == 1); got != want {
			t.Errorf("%s of the deltas %q, want %q", kind, got, want)
		}
		if got := partsText(r.resp, i == 1); got != want {
			t.Errorf("%s of the response %q, want %q", kind, got, want)
		}
	}
	want := a.Finish
	if want == "" {
		want = genai.FinishReasonStop
	}
	if r.resp.FinishReason != want {
		t.Errorf("finish reason %q, want %q", r.resp.FinishReason, want)
	}
	if r.resp.Usage != a.Usage {
		t.Errorf("usage %+v, want %+v", r.resp.Usage, a.Usage)
	}
	if r.resp.Model == "" {
		t.Error("the response names no model")
	}
	if r.resp.Content != nil && r.resp.Content.Role != genai.RoleModel {
		t.Errorf("the response has role %q", r.resp.Content.Role)
	}
	for _, d := range r.deltas {
		if d.Text == "" {
			t.Error("an empty delta was emitted")
		}
	}
	h.checkCalls(t, r.resp, calls)
}

// checkCalls holds the calls of a response against those that were served.
func (h Harness) checkCalls(t testing.TB, resp *model.Response, want []Piece) {
	t.Helper()
	var got []*genai.Part
	if resp.Content != nil {
		for _, p := range resp.Content.Parts {
			if p.FunctionCall != nil {
				got = append(got, p)
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d calls, want %d", len(got), len(want))
	}
	for i, p := range want {
		w := p.Call
		fc := got[i].FunctionCall
		if fc.Name != w.Name || fc.ID != w.ID {
			t.Errorf("call %d is %s with id %q, want %s with id %q", i, fc.Name, fc.ID, w.Name, w.ID)
		}
		same := adapter.NewCall(w.ID, w.Name, w.Args)
		if args := same.FunctionCall.Args; !reflect.DeepEqual(fc.Args, args) {
			t.Errorf("arguments of call %d: %#v, want %#v", i, fc.Args, args)
		}
		_, isBad := same.PartMetadata[seam.MetaArgsError]
		meta := got[i].PartMetadata
		text, _ := meta[seam.MetaArgs].(string)
		if h.Can.ArgsText && text != w.Args {
			t.Errorf("text of the arguments of call %d: %q, want %q", i, text, w.Args)
		}
		if problem, bad := meta[seam.MetaArgsError]; bad != isBad {
			t.Errorf("call %d: arguments %q, error noted: %v", i, w.Args, problem)
		}
		if !isBad && !json.Valid([]byte(text)) {
			t.Errorf("text of the arguments of call %d is no JSON: %q", i, text)
		}
	}
}

// partsText joins the text of a response's parts of one kind.
func partsText(resp *model.Response, thought bool) string {
	var b strings.Builder
	if resp.Content != nil {
		for _, p := range resp.Content.Parts {
			if p.Thought == thought {
				b.WriteString(p.Text)
			}
		}
	}
	return b.String()
}

// concurrently makes calls that share one model and one request.
func (h Harness) concurrently(t *testing.T) {
	a := Response{Pieces: []Piece{{Text: "one "}, {Text: "two"}}, Usage: h.usage()}
	s := serve(t, h.Encode(a).handler())
	llm, req := h.open(t, s.URL), prompt("hello")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := call(t.Context(), llm, req)
			if r.err != nil {
				t.Error(r.err)
				return
			}
			h.checkResponse(t, a, r)
		})
	}
	wg.Wait()
}
