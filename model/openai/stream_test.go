package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// serve answers every request with body, and keeps the requests.
func serve(t testing.TB, contentType, body string) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*bodies = append(*bodies, r.URL.Path+" "+string(sent))
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, bodies
}

// outcome is what a call brought.
type outcome struct {
	resp          *model.Response
	text, thought string
	err           error
}

func generate(t testing.TB, cfg Config, req *model.Request) outcome {
	t.Helper()
	cfg.APIKey, cfg.Transport = "k", http.DefaultTransport
	llm, err := New(cfg).Open("test-model", "")
	if err != nil {
		t.Fatal(err)
	}
	var out [2]strings.Builder
	resp, err := modelcall.Guard(llm, modelcall.Limits{}).Generate(t.Context(), req, func(d model.Delta) {
		if d.Thought {
			out[1].WriteString(d.Text)
		} else {
			out[0].WriteString(d.Text)
		}
	})
	return outcome{resp, out[0].String(), out[1].String(), err}
}

func hello() *model.Request {
	return &model.Request{Contents: []*genai.Content{user(text("hello"))}, Config: &genai.GenerateContentConfig{}}
}

func fixture(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// wanted is what a stream has to become.
type wanted struct {
	text, thought string
	finish        genai.FinishReason // default STOP
	calls         []string           // "id name args", with "!" before bad args
	usage         model.Usage
	kind          model.Kind // of the error, "" for success
	words         string     // in the error's text
}

func (w wanted) check(t *testing.T, got outcome) {
	t.Helper()
	if w.kind != "" {
		e, ok := errors.AsType[*model.Error](got.err)
		if !ok || e.Kind != w.kind || !strings.Contains(e.Message, w.words) {
			t.Errorf("error %v, want one of kind %s with %q", got.err, w.kind, w.words)
		}
		return
	}
	if got.err != nil {
		t.Fatal(got.err)
	}
	if w.finish == "" {
		w.finish = genai.FinishReasonStop
	}
	if got.text != w.text || got.thought != w.thought || got.resp.FinishReason != w.finish || got.resp.Usage != w.usage {
		t.Errorf("text %q, thought %q, finish %s, usage %+v; want %+v", got.text, got.thought, got.resp.FinishReason, got.resp.Usage, w)
	}
	var calls []string
	if got.resp.Content != nil {
		for _, p := range got.resp.Content.Parts {
			if p.FunctionCall == nil {
				continue
			}
			args := fmt.Sprint(p.PartMetadata[seam.MetaArgs])
			if _, bad := p.PartMetadata[seam.MetaArgsError]; bad {
				args = "!" + args
			}
			calls = append(calls, p.FunctionCall.ID+" "+p.FunctionCall.Name+" "+args)
		}
	}
	if !reflect.DeepEqual(calls, w.calls) {
		t.Errorf("calls %q, want %q", calls, w.calls)
	}
}

// chunks are the data lines of a chat stream; [DONE] is not added.
func chunks(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// choice is a chunk with the given members of its choice.
func choice(members string) string { return `{"model":"m","choices":[{"index":0,` + members + `}]}` }

func toolCalls(calls string) string { return choice(`"delta":{"tool_calls":[` + calls + `]}`) }

// TestChatStreams are the ways in which servers deviate.
func TestChatStreams(t *testing.T) {
	const done = "[DONE]"
	stop, calls, length := choice(`"delta":{},"finish_reason":"stop"`), choice(`"delta":{},"finish_reason":"tool_calls"`), choice(`"delta":{},"finish_reason":"length"`)
	usage := func(n int) string {
		return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}`, n, n+1)
	}
	used := func(n int64) model.Usage { return model.Usage{Prompt: n, Completion: 1, Total: n + 1} }
	hey := choice(`"delta":{"content":"hey"}`)
	for name, c := range map[string]struct {
		stream string
		want   wanted
	}{
		"no usage":       {chunks(hey, stop, done), wanted{text: "hey"}},
		"no done":        {chunks(hey, stop), wanted{text: "hey"}},
		"no done, usage": {chunks(hey, stop, usage(5)), wanted{text: "hey", usage: used(5)}},
		"no done, usage announced": {
			chunks(`{"choices":[{"index":0,"delta":{"content":"hey"}}],"usage":null}`, stop),
			wanted{kind: model.KindUnavailable, words: "ended before"},
		},
		"calls without a call":   {chunks(hey, calls, done), wanted{kind: model.KindUnavailable, words: "has none"}},
		"done but no reason":     {chunks(hey, done), wanted{kind: model.KindUnavailable, words: "ended before"}},
		"nothing":                {chunks(done), wanted{kind: model.KindUnavailable, words: "ended before"}},
		"usage with choices":     {chunks(hey, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, done), wanted{text: "hey", usage: used(5)}},
		"usage many times":       {chunks(usage(1), hey, usage(2), stop, usage(5), done), wanted{text: "hey", usage: used(5)}},
		"usage of Groq":          {chunks(hey, stop, `{"choices":[],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}}`, done), wanted{text: "hey", usage: used(5)}},
		"usage of DeepSeek":      {chunks(hey, stop, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,"prompt_cache_hit_tokens":4}}`, done), wanted{text: "hey", usage: model.Usage{Prompt: 5, Completion: 1, Total: 6, Cached: 4}}},
		"comments and CRLF":      {": OPENROUTER PROCESSING\r\n\r\n" + strings.ReplaceAll(chunks(hey, stop, done), "\n", "\r\n"), wanted{text: "hey"}},
		"error: null":            {chunks(`{"error":null,"choices":[{"index":0,"delta":{"content":"hey"}}]}`, stop, done), wanted{text: "hey"}},
		"another choice":         {chunks(hey, `{"choices":[{"index":1,"delta":{"content":"no"}}]}`, stop, done), wanted{text: "hey"}},
		"reasoning":              {chunks(choice(`"delta":{"reasoning":"hm "}`), choice(`"delta":{"reasoning":"so"}`), hey, stop, done), wanted{text: "hey", thought: "hm so"}},
		"reasoning twice":        {chunks(choice(`"delta":{"reasoning":"hm","reasoning_content":"hm"}`), hey, stop, done), wanted{text: "hey", thought: "hm"}},
		"thinking of Mistral":    {chunks(choice(`"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"hey"}]}`), stop, done), wanted{text: "hey", thought: "hm"}},
		"stop with calls":        {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), stop, done), wanted{calls: []string{"a f {}"}}},
		"unknown end with calls": {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), choice(`"delta":{},"finish_reason":"whim"`), done), wanted{calls: []string{"a f {}"}}},
		"unknown end":            {chunks(hey, choice(`"delta":{},"finish_reason":"whim"`), done), wanted{text: "hey", finish: genai.FinishReasonOther}},
		"calls interleaved": {
			chunks(toolCalls(`{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\""}}`), toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`),
				toolCalls(`{"index":1,"function":{"arguments":":1}"}},{"index":0,"function":{"arguments":"}"}}`), calls, done),
			wanted{calls: []string{"b g {\"x\":1}", "a f {}"}},
		},
		"calls without index": {
			chunks(toolCalls(`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), toolCalls(`{"function":{"arguments":":1}"}}`), toolCalls(`{"id":"b","function":{"name":"f","arguments":"{}"}}`), calls, done),
			wanted{calls: []string{`a f {"x":1}`, "b f {}"}},
		},
		"all calls with index 0": {
			chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), toolCalls(`{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}`), calls, done),
			wanted{calls: []string{"a f {}", "b f {}"}},
		},
		"all calls with index 0 and no id": {
			chunks(toolCalls(`{"index":0,"id":"","function":{"name":"f","arguments":"{\"n\":1}"}},{"index":0,"function":{"name":"f","arguments":"{\"n\":2}"}}`), calls, done),
			wanted{calls: []string{` f {"n":1}`, ` f {"n":2}`}},
		},
		"id and name in every piece": {
			chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`), toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`), calls, done),
			wanted{calls: []string{"a f {}"}},
		},
		"name after the id": {
			chunks(toolCalls(`{"index":0,"id":"a"}`), toolCalls(`{"index":0,"function":{"name":"f"}}`), toolCalls(`{"index":0,"function":{"arguments":"{}"}}`), calls, done),
			wanted{calls: []string{"a f {}"}},
		},
		"one id for two calls": {
			chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}`), calls, done),
			wanted{calls: []string{"a f {}", "a g {}"}},
		},
		"arguments as an object":     {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x": 1}}}`), calls, done), wanted{calls: []string{`a f {"x": 1}`}}},
		"arguments null":             {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":null}}`), calls, done), wanted{calls: []string{"a f {}"}}},
		"arguments no JSON":          {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{x}"}}`), calls, done), wanted{calls: []string{"a f !{x}"}}},
		"call cut before arguments":  {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), length, done), wanted{finish: genai.FinishReasonMaxTokens, calls: []string{"a f !{}"}}},
		"call cut in the arguments":  {chunks(toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}`), length, done), wanted{finish: genai.FinishReasonMaxTokens, calls: []string{`a f !{"x`}}},
		"call without a name":        {chunks(toolCalls(`{"index":0,"id":"a","function":{"arguments":"{}"}}`), calls, done), wanted{kind: model.KindUnavailable, words: "no name"}},
		"error object":               {chunks(hey, `{"error":{"message":"no","type":"server_error","code":"rate_limit_exceeded"}}`), wanted{kind: model.KindRateLimited, words: "no"}},
		"error with a number":        {chunks(hey, `{"error":{"message":"no","code":429,"metadata":{"raw":"upstream words"}},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`), wanted{kind: model.KindRateLimited, words: "upstream words"}},
		"content that is no text":    {chunks(choice(`"delta":{"content":7}`)), wanted{kind: model.KindUnavailable, words: "not the JSON"}},
		"arguments that are no text": {chunks(toolCalls(`{"index":0,"function":{"name":"f","arguments":"\ud800"}}`), calls, done), wanted{calls: []string{" f !\uFFFD"}}},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, "text/event-stream", c.stream)
			c.want.check(t, generate(t, Config{BaseURL: url}, hello()))
		})
	}
}

// TestWholeResponses: some servers do not stream although they were asked to.
func TestWholeResponses(t *testing.T) {
	chat := `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hey","reasoning":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`
	whole := `{"object":"response","status":"completed","model":"m","error":null,"output":[` +
		`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},` +
		`{"type":"message","content":[{"type":"output_text","text":"hey"}]},` +
		`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}],"usage":{"input_tokens":5,"output_tokens":1}}`
	want := wanted{text: "hey", thought: "hm", calls: []string{"a f {}"}, usage: model.Usage{Prompt: 5, Completion: 1, Total: 6}}
	for api, body := range map[API]string{Chat: chat, Responses: whole} {
		url, _ := serve(t, "application/json; charset=utf-8", body)
		want.check(t, generate(t, Config{BaseURL: url, API: api}, hello()))
		url, _ = serve(t, "application/json", `{"error":{"message":"no such model","code":"model_not_found"}}`)
		wanted{kind: model.KindUnavailable, words: "no such model"}.check(t, generate(t, Config{BaseURL: url, API: api}, hello()))
	}
}

// TestThoughtsGoBack: in all turns, thinking goes back with calls, and with what
// follows their results, in the field it came in; a call's extra content goes back
// with it. What was thought elsewhere stays away.
func TestThoughtsGoBack(t *testing.T) {
	for _, field := range []string{"reasoning", "reasoning_content"} {
		url, bodies := serve(t, "text/event-stream", chunks(
			choice(`"delta":{"`+field+`":"hm"}`),
			toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}`),
			choice(`"delta":{},"finish_reason":"tool_calls"`), "[DONE]"))
		req := hello()
		first := generate(t, Config{BaseURL: url}, req)
		if first.err != nil {
			t.Fatal(first.err)
		}
		req.Contents = append(req.Contents, first.resp.Content, user(result("a", map[string]any{"output": "x"})))
		if second := generate(t, Config{BaseURL: url}, req); second.err != nil {
			t.Fatal(second.err)
		}
		want := `{"role":"assistant","` + field + `":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}]}`
		if !strings.Contains((*bodies)[1], want) {
			t.Errorf("sent %s\nwant in it %s", (*bodies)[1], want)
		}
		own := first.resp.Content.Parts[0].PartMetadata[seam.MetaProvider].(string)
		thought := func(owner, s string) *genai.Part {
			return &genai.Part{Thought: true, Text: s, PartMetadata: owned(owner, field)}
		}
		req.Contents = append(req.Contents,
			resultOf(thought(own, "so"), thought(chatOwner+"@elsewhere.example", "foreign"), text("done")), user(text("thanks")),
			resultOf(thought(own, "polite"), text("welcome")), user(text("bye")))
		if later := generate(t, Config{BaseURL: url}, req); later.err != nil {
			t.Fatal(later.err)
		}
		for _, want := range []string{want, `{"role":"assistant","content":"done","` + field + `":"so"}`, `{"role":"assistant","content":"welcome"}`} {
			if !strings.Contains((*bodies)[2], want) {
				t.Errorf("later sent %s\nwant in it %s", (*bodies)[2], want)
			}
		}
	}
}

// TestDetailsGoBack: reasoning_details go back in all turns, joined from their pieces
// and in their order, under the ids that the calls go out with, in place of the plain
// thinking, and to models of the same maker alone; Claude's to the same model.
func TestDetailsGoBack(t *testing.T) {
	details := func(list string) string { return choice(`"delta":{"reasoning_details":[` + list + `]}`) }
	const id = "tool_update_todo_list_mL716LwhunURIXx4ZUZf" // too long to go back as it is
	call := toolCalls(`{"index":0,"id":"` + id + `","function":{"name":"f","arguments":"{}"}}`)
	end := choice(`"delta":{},"finish_reason":"tool_calls"`)
	for name, c := range map[string]struct {
		stream, want string
	}{
		"Gemini": {
			chunks(choice(`"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","format":"google-gemini-v1","index":0}]}`),
				details(`{"type":"reasoning.encrypted","data":"c2ln","format":"google-gemini-v1","id":"`+id+`","index":0}`), call, end, "[DONE]"),
			`[{"data":"c2ln","format":"google-gemini-v1","id":"e1","index":0,"type":"reasoning.encrypted"}]`,
		},
		"Claude": {
			chunks(choice(`"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"h","signature":null,"format":"anthropic-claude-v1","index":0}]}`),
				details(`{"type":"reasoning.text","text":"m","format":"anthropic-claude-v1","index":0}`),
				details(`{"type":"reasoning.text","signature":"c2ln","format":"anthropic-claude-v1","index":0}`),
				details(`{"type":"reasoning.encrypted","data":"cmVk","format":"anthropic-claude-v1","index":1}`),
				details(`{"type":"reasoning.text","text":"cut off","format":"anthropic-claude-v1","index":2}`), call, end, "[DONE]"),
			`[{"format":"anthropic-claude-v1","index":0,"signature":"c2ln","text":"hm","type":"reasoning.text"},{"data":"cmVk","format":"anthropic-claude-v1","index":1,"type":"reasoning.encrypted"}]`,
		},
		"OpenAI": {
			chunks(details(`{"type":"reasoning.summary","summary":"**H","index":0,"id":null},{"type":"reasoning.summary","summary":"m**","index":0}`),
				details(`{"type":"reasoning.encrypted","data":"ZW5j","format":"openai-responses-v1","id":"rs_1","index":0}`), call, end, "[DONE]"),
			`[{"index":0,"summary":"**Hm**","type":"reasoning.summary"},{"data":"ZW5j","format":"openai-responses-v1","id":"rs_1","index":0,"type":"reasoning.encrypted"}]`,
		},
		"without an index":       {chunks(details(`{"type":"reasoning.text","text":"h"},{"type":"reasoning.text","text":"m","index":null}`), call, end), `[{"text":"hm","type":"reasoning.text"}]`},
		"of a type not known":    {chunks(details(`{"type":"news","x":{"y":1.0}},{"type":"news","x":2}`), call, end), `[{"type":"news","x":{"y":1.0}},{"type":"news","x":2}]`},
		"of another form":        {chunks(details(`7,null,{},{"type":7},{"type":"news"}`), call, end), `[{"type":"news"}]`},
		"of another form at all": {chunks(choice(`"delta":{"reasoning":"hm","reasoning_details":"hm"}`), call, end), ""},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, "text/event-stream", c.stream)
			req := hello()
			first, err := openFor(t, Config{BaseURL: url}, "acme/one").Generate(t.Context(), req, func(model.Delta) {})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range first.Content.Parts {
				if p.FunctionCall != nil { // as the engine stores it
					p.FunctionCall.ID, p.PartMetadata[seam.MetaCallID] = "e1", p.FunctionCall.ID
				}
			}
			req.Contents = append(req.Contents, first.Content, user(result("e1", map[string]any{"output": "x"})), resultOf(text("done")), user(text("thanks")))
			sent := func(modelName string) sentMessage {
				return sentMessages(t, openFor(t, Config{BaseURL: url}, modelName), req)[1]
			}
			m := sent("acme/one")
			if got := mustJSON(m.ReasoningDetails); c.want != "" && (got != c.want || m.Reasoning != "") {
				t.Errorf("the details go back as %s with thinking %q, want %s", got, m.Reasoning, c.want)
			}
			if c.want == "" && (len(m.ReasoningDetails) > 0 || m.Reasoning != "hm") {
				t.Errorf("without details %+v goes back", m)
			}
			if m := sent("acme/two"); name == "Claude" && m.ReasoningDetails != nil || name == "Gemini" && m.ReasoningDetails == nil {
				t.Errorf("another model of the maker gets %+v", m)
			}
			for _, other := range []string{"other/one", "router/other/one", "router/acme/one"} {
				if m := sent(other); len(m.ReasoningDetails) > 0 || m.Reasoning != "" {
					t.Errorf("%s gets %+v", other, m)
				}
			}
			// An answer without a call needs none of it.
			first.Content.Parts = slices.DeleteFunc(first.Content.Parts, func(p *genai.Part) bool { return p.FunctionCall != nil })
			first.Content.Parts = append(first.Content.Parts, text("hi"))
			req.Contents = []*genai.Content{req.Contents[0], first.Content, user(text("thanks"))}
			if m := sent("acme/one"); len(m.ReasoningDetails) > 0 || m.Reasoning != "" || m.Content != "hi" {
				t.Errorf("without calls %+v goes back", m)
			}
		})
	}
	url, _ := serve(t, "text/event-stream", chunks(details(strings.Repeat(`{"type":"news"},`, maxDetails)+`{"type":"news"}`), call, end))
	wanted{kind: model.KindUnavailable, words: "details"}.check(t, generate(t, Config{BaseURL: url}, hello()))
}

// TestWantedThoughts: a server that refuses messages without thinking gets its own
// in all turns, and a blank for what others have said.
func TestWantedThoughts(t *testing.T) {
	for base, wants := range map[string]bool{
		"https://api.deepseek.com": true, "https://api.deepseek.com/v1": true, "https://api.moonshot.ai/v1": true, "https://api.moonshot.cn/v1": true,
		"https://api.kimi.com/coding/v1": true, "https://notdeepseek.com": false, "https://api.mistral.ai/v1": false, "https://api.openai.com/v1": false,
	} {
		l := openFor(t, Config{BaseURL: base, API: Chat}, "m")
		call := func(id string) *genai.Part {
			return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f"}}
		}
		output := map[string]any{"output": "x"}
		req := hello()
		req.Contents = append(req.Contents,
			resultOf(&genai.Part{Thought: true, Text: "hm", PartMetadata: owned(l.owner, "reasoning_content")}, call("a")), user(result("a", output)),
			resultOf(&genai.Part{Thought: true, Text: "foreign", PartMetadata: owned(chatOwner+"@elsewhere.example", "reasoning")}, call("b")), user(result("b", output)),
			resultOf(text("done")), user(text("thanks")), resultOf(text("welcome")), user(text("bye")))
		var got []string
		for _, m := range sentMessages(t, l, req) {
			if m.Role == "assistant" {
				got = append(got, m.ReasoningContent+m.Reasoning)
			}
		}
		want := []string{"hm", "", "", ""}
		if wants {
			want = []string{"hm", " ", " ", " "}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s gets the thinking %q, want %q", base, got, want)
		}
	}
}

// TestResponsesResponse: items come out such that they go back as they came, in
// order, without ids.
func TestResponsesResponse(t *testing.T) {
	url, bodies := serve(t, "text/event-stream", fixture(t, "responses.sse"))
	cfg := Config{BaseURL: url, API: Responses}
	req := hello()
	first := generate(t, cfg, req)
	wanted{
		text: "Looking. Found it.", thought: "First.\n\nSecond.Third.", calls: []string{`call_1 f {"q": "x",  "n": 1.0}`},
		usage: model.Usage{Prompt: 50, Completion: 30, Cached: 10, Thoughts: 20, Total: 80},
	}.check(t, first)
	data, err := json.Marshal(first.resp.Content)
	if err != nil {
		t.Fatal(err)
	}
	var stored genai.Content
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	req.Contents = append(req.Contents, &stored, user(result("call_1", map[string]any{"output": "x"})))
	if second := generate(t, cfg, req); second.err != nil {
		t.Fatal(second.err)
	}
	body, ok := strings.CutPrefix((*bodies)[1], "/responses ")
	if !ok {
		t.Fatalf("sent to %.40s", (*bodies)[1])
	}
	var sent struct{ Input []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"encrypted_content":"ZW5jMQ==","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Second."}],"type":"reasoning"}`,
		`{"type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Looking."}]}`,
		`{"action":{"type":"search","query":"x"},"status":"completed","type":"web_search_call"}`,
		`{"encrypted_content":"ZW5jMg==","summary":[],"type":"reasoning"}`,
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":" Found it."}]}`,
		`{"encrypted_content":"ZW5jMw==","summary":[{"type":"summary_text","text":"Third."}],"type":"reasoning"}`,
		`{"type":"function_call","call_id":"call_1","name":"f","arguments":"{\"q\": \"x\",  \"n\": 1.0}"}`,
	}
	var got []string
	for _, raw := range sent.Input[1 : len(sent.Input)-1] {
		got = append(got, string(raw))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent back\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestResponsesStreams are the ways in which servers deviate.
func TestResponsesStreams(t *testing.T) {
	completed := func(output string) string {
		return event("response.completed", obj{"response": obj{"status": "completed", "model": "m", "output": json.RawMessage(output)}})
	}
	delta := func(kind string, index int, text string) string {
		return event(kind, obj{"output_index": index, "delta": text})
	}
	item := func(index int, raw string) string {
		return event("response.output_item.done", obj{"output_index": index, "item": json.RawMessage(raw)})
	}
	const message = `{"type":"message","content":[{"type":"output_text","text":"hey you"}]}`
	for name, c := range map[string]struct {
		stream string
		want   wanted
	}{
		"only the end":              {completed(`[` + message + `]`), wanted{text: "hey you"}},
		"only the items":            {item(0, message) + completed(`[]`), wanted{text: "hey you"}},
		"items are not taken twice": {item(0, message) + completed(`[`+message+`]`), wanted{text: "hey you"}},
		"other numbers at the end":  {item(0, `{"type":"reasoning","summary":[]}`) + item(1, message) + completed(`[`+message+`,{"type":"reasoning","summary":[]},{"type":"message","content":[]}]`), wanted{text: "hey you"}},
		"call that is not finished": {delta("response.function_call_arguments.delta", 1, `{"a"`) + item(0, message) + completed(`[]`), wanted{kind: model.KindUnavailable, words: "not finished"}},
		"the rest of the text":      {delta("response.output_text.delta", 0, "hey ") + item(0, message) + completed(`[]`), wanted{text: "hey you"}},
		"a piece was lost":          {delta("response.output_text.delta", 0, "you") + item(0, message) + completed(`[]`), wanted{kind: model.KindUnavailable, words: "not what was streamed"}},
		"an item was lost":          {item(0, `{"type":"message","content":[{"type":"output_text","text":"hey"}]}`) + completed(`[`+message+`]`), wanted{kind: model.KindUnavailable, words: "not what was streamed"}},
		"a call was lost":           {item(0, message) + completed(`[`+message+`,{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`), wanted{kind: model.KindUnavailable, words: "was not streamed"}},
		"arguments were lost":       {delta("response.function_call_arguments.delta", 0, `{"a"`) + item(0, `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}`) + completed(`[]`), wanted{kind: model.KindUnavailable, words: "not what was streamed"}},
		"arguments spaced":          {delta("response.function_call_arguments.delta", 0, `{"a":1}`) + item(0, `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\": 1}"}`) + completed(`[]`), wanted{calls: []string{`c f {"a": 1}`}}},
		"text without its item":     {delta("response.output_text.delta", 0, "hey") + completed(`[]`), wanted{text: "hey"}},
		"data without event names":  {strings.ReplaceAll(delta("response.output_text.delta", 0, "hey")+completed(`[]`), "event: ", ": "), wanted{text: "hey"}},
		"raw reasoning":             {delta("response.reasoning_text.delta", 0, "hm") + item(0, `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`) + item(1, message) + completed(`[]`), wanted{text: "hey you", thought: "hm"}},
		"arguments in pieces alone": {delta("response.function_call_arguments.delta", 0, `{"a"`) + delta("response.function_call_arguments.delta", 0, `:1}`) + item(0, `{"type":"function_call","call_id":"c","name":"f"}`) + completed(`[]`), wanted{calls: []string{`c f {"a":1}`}}},
		"call cut before arguments": {
			item(0, `{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"incomplete"}`) +
				event("response.incomplete", obj{"response": obj{"status": "incomplete", "incomplete_details": obj{"reason": "max_output_tokens"}}}),
			wanted{finish: genai.FinishReasonMaxTokens, calls: []string{"c f !{}"}},
		},
		"refusal in the item":     {item(0, `{"type":"message","content":[{"type":"refusal","refusal":"I will not"}]}`) + completed(`[]`), wanted{kind: model.KindBlocked, words: "I will not"}},
		"piece of a finished one": {item(0, message) + delta("response.output_text.delta", 0, "more"), wanted{kind: model.KindUnavailable, words: "finished"}},
		"end without a response":  {event("response.completed", obj{}), wanted{kind: model.KindUnavailable, words: "no response"}},
		"error event, nested":     {event("error", obj{"error": obj{"code": "insufficient_quota", "message": "no money"}}), wanted{kind: model.KindRateLimited, words: "no money"}},
		"failed without an error": {event("response.failed", obj{"response": obj{"status": "failed"}}), wanted{kind: model.KindUnavailable, words: "without saying why"}},
		"an unknown event":        {event("response.news", obj{"delta": obj{"x": 1}}) + item(0, message) + completed(`[]`), wanted{text: "hey you"}},
		"an event of odd shape":   {event("response.output_text.delta", obj{"delta": obj{"x": 1}}) + completed(`[]`), wanted{kind: model.KindUnavailable, words: "not the JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, "text/event-stream", c.stream)
			c.want.check(t, generate(t, Config{BaseURL: url, API: Responses}, hello()))
		})
	}
}

// TestRefusalUsage: a refused answer has its price.
func TestRefusalUsage(t *testing.T) {
	chat := func(reason string, delta obj) string {
		return dataFrame(obj{"choices": []obj{{"delta": delta, "finish_reason": reason}}, "usage": obj{"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}) + "data: [DONE]\n\n"
	}
	response := func(kind string, more obj) string {
		more["usage"] = obj{"input_tokens": 3, "output_tokens": 4}
		return event(kind, obj{"response": more})
	}
	for name, c := range map[string]struct {
		api    API
		stream string
	}{
		"chat, refused":       {Chat, chat("stop", obj{"refusal": "no"})},
		"chat, filtered":      {Chat, chat("content_filter", obj{"content": "half"})},
		"responses, refused":  {Responses, response("response.completed", obj{"output": []obj{{"type": "message", "content": []obj{{"type": "refusal", "refusal": "no"}}}}})},
		"responses, filtered": {Responses, response("response.incomplete", obj{"incomplete_details": obj{"reason": "content_filter"}})},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, "text/event-stream", c.stream)
			out := generate(t, Config{BaseURL: url, API: c.api}, hello())
			e, ok := errors.AsType[*model.Error](out.err)
			if !ok || e.Kind != model.KindBlocked || e.Usage == nil || *e.Usage != (model.Usage{Prompt: 3, Completion: 4, Total: 7}) {
				t.Errorf("error %+v, want a blocked one with the usage", out.err)
			}
		})
	}
}

// TestEnvironment: what the SDK would read from the environment has no say.
func TestEnvironment(t *testing.T) {
	for _, v := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"} {
		t.Setenv(v, "X-Env: from-the-environment")
	}
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	var header http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { header = r.Header.Clone() }))
	defer s.Close()
	if out := generate(t, Config{BaseURL: s.URL}, hello()); out.err == nil {
		t.Error("an empty answer is a success")
	}
	if header.Get("Authorization") != "Bearer k" || strings.Contains(fmt.Sprint(header), "from-the-environment") {
		t.Errorf("header %v", header)
	}
	if _, err := New(Config{}).Open("test-model", " "); err == nil {
		t.Error("a key was found in the environment")
	}
	llm, err := New(Config{BaseURL: s.URL, KeyOptional: true, Transport: http.DefaultTransport}).Open("test-model", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := llm.Generate(t.Context(), hello(), func(model.Delta) {}); err == nil {
		t.Error("an empty answer is a success")
	}
	if _, ok := header["Authorization"]; ok {
		t.Errorf("without a key the header is %v", header)
	}
}

func TestOpen(t *testing.T) {
	for _, bad := range []string{"ftp://x", "nonsense", "http://"} {
		_, err := New(Config{APIKey: "k", BaseURL: bad}).Open("m", "")
		if e, ok := errors.AsType[*model.Error](err); !ok || !strings.Contains(e.Message, "base URL") {
			t.Errorf("base URL %q: error %v", bad, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown API is accepted")
		}
	}()
	New(Config{API: "grpc"})
}

// FuzzStream: no stream brings an adapter down, and a success has a finish
// reason, streamed what it holds, which the guard checks, and is what the bytes
// say up to the end.
func FuzzStream(f *testing.F) {
	for _, wire := range []providertest.Wire{providertest.OpenAIChat, providertest.OpenAIResponses} {
		for _, stream := range providertest.Streams(f, wire) {
			f.Add(wire == providertest.OpenAIResponses, stream)
		}
	}
	f.Add(true, fixture(f, "responses.sse"))
	f.Add(true, event("response.output_item.done", obj{"output_index": -1, "item": nil}))
	f.Add(false, chunks(choice(`"delta":{"content":"hey","reasoning":"hm"}`), toolCalls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), choice(`"finish_reason":"stop"`), "[DONE]"))
	f.Add(false, chunks(choice(`"delta":{"content":[{"type":"thinking","thinking":[{"text":"hm"}]}]}`), `{"usage":null}`))
	f.Add(false, chunks(choice(`"delta":{"reasoning_details":[{"type":"reasoning.text","text":"hm","index":0},{"type":"reasoning.encrypted","data":"x"}]}`), choice(`"delta":{"content":"hey"}`), choice(`"finish_reason":"stop"`)))
	// What begins like JSON comes from a server that does not stream.
	f.Add(false, `{"choices":[{"message":{"content":"hey","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}`)
	f.Add(true, `{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hey"}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`)
	f.Fuzz(func(t *testing.T, overResponses bool, stream string) {
		contentType, whole := "text/event-stream", strings.HasPrefix(stream, "{")
		if whole {
			contentType = "application/json"
		}
		cfg := Config{APIKey: "k", API: Chat, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {contentType}},
				Body: io.NopCloser(strings.NewReader(stream)),
			}, nil
		})}
		if overResponses {
			cfg.API = Responses
		}
		llm, err := New(cfg).Open("m", "")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := modelcall.Guard(llm, modelcall.Limits{}).Generate(t.Context(), hello(), func(model.Delta) {})
		if err == nil && !whole {
			wire := providertest.OpenAIChat
			if overResponses {
				wire = providertest.OpenAIResponses
			}
			if difference := providertest.Differs(wire, providertest.Hear(wire, stream), heard(resp)); difference != "" {
				t.Errorf("a wrong success: %s", difference)
			}
		}
		if e, ok := errors.AsType[*model.Error](err); ok {
			if _, panicked := errors.AsType[*modelcall.PanicError](e.Err); panicked {
				t.Errorf("panic: %v", e.Err)
			}
			if strings.Contains(e.Message, "that was streamed is not") {
				t.Errorf("the answer differs from what was streamed")
			}
		}
	})
}

// heard is what an answer says, in the terms of what its stream says.
func heard(resp *model.Response) providertest.Heard {
	var h providertest.Heard
	if resp.Content == nil {
		return h
	}
	for _, p := range resp.Content.Parts {
		switch {
		case p.FunctionCall != nil:
			args, _ := p.PartMetadata[seam.MetaArgs].(string)
			h.Calls++
			h.Args += args
		case p.Thought:
			h.Thoughts += p.Text
		default:
			h.Text += p.Text
		}
	}
	return h
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLateReasoning: reasoning that is finished after what it led to still goes
// back before it.
func TestLateReasoning(t *testing.T) {
	thought := event("response.reasoning_summary_text.delta", obj{"output_index": 0, "delta": "hm"})
	call := event("response.output_item.done", obj{"output_index": 1, "item": obj{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}})
	late := event("response.output_item.done", obj{"output_index": 0, "item": obj{"type": "reasoning", "summary": []any{}, "encrypted_content": "ZW5j"}})
	url, _ := serve(t, "text/event-stream", thought+call+late+event("response.completed", obj{"response": obj{"status": "completed"}}))
	out := generate(t, Config{BaseURL: url, API: Responses}, hello())
	if out.err != nil {
		t.Fatal(out.err)
	}
	req := hello()
	req.Contents = append(req.Contents, out.resp.Content)
	body, err := bodyOf(openFor(t, Config{BaseURL: url, API: Responses}, "m"), req)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct{ Input []json.RawMessage }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	got := mustJSON(sent.Input[1:])
	want := `[{"encrypted_content":"ZW5j","summary":[],"type":"reasoning"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`
	if got != want {
		t.Errorf("goes back as %s, want %s", got, want)
	}
}
