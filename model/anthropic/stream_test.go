package anthropic

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
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/modeltest"
)

// serve answers each request with the next of the streams, and keeps the
// bodies of the requests.
func serve(t testing.TB, contentType string, streams ...string) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/messages" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, streams[min(len(*bodies), len(streams)-1)])
		*bodies = append(*bodies, string(body))
	}))
	t.Cleanup(s.Close)
	return s.URL, bodies
}

// generate makes one call against url.
func generate(t testing.TB, url string, req *model.Request) (resp *model.Response, text, thought string, err error) {
	t.Helper()
	llm, err := New(Config{APIKey: "k", BaseURL: url + "/v1/", Transport: http.DefaultTransport}).Open("claude-test", "")
	if err != nil {
		t.Fatal(err)
	}
	var out [2]strings.Builder
	resp, err = modelcall.Guard(llm, modelcall.Limits{}).Generate(t.Context(), req, func(d model.Delta) {
		if d.Thought {
			out[1].WriteString(d.Text)
		} else {
			out[0].WriteString(d.Text)
		}
	})
	return resp, out[0].String(), out[1].String(), err
}

func hello(tools ...*genai.Tool) *model.Request {
	return &model.Request{
		Contents: []*genai.Content{genai.NewContentFromText("hello", genai.RoleUser)},
		Config:   &genai.GenerateContentConfig{Tools: tools},
	}
}

func fixture(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestThinkingResponse: signatures and redacted blocks come out such that they go
// back exactly as they came.
func TestThinkingResponse(t *testing.T) {
	url, bodies := serve(t, "text/event-stream; charset=utf-8", fixture(t, "thinking.sse"))
	req := hello(&genai.Tool{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "fs.read"}}})
	resp, text, thought, err := generate(t, url, req)
	if err != nil {
		t.Fatal(err)
	}
	if text != "Reading." || thought != "First thought.Second." {
		t.Errorf("text %q, thought %q", text, thought)
	}
	call := resp.Content.Parts[len(resp.Content.Parts)-1]
	if call.FunctionCall.Name != "fs.read" || call.PartMetadata[seam.MetaArgs] != `{"path": "a",  "n": 1.0}` {
		t.Errorf("call %+v with %v", call.FunctionCall, call.PartMetadata)
	}
	if want := (model.Usage{Prompt: 125, Cached: 100, CacheWrite: 5, Completion: 40, Thoughts: 9, Total: 165}); resp.Usage != want {
		t.Errorf("usage %+v, want %+v", resp.Usage, want)
	}

	// The history goes through the engine's store, which is JSON.
	data, err := json.Marshal(resp.Content)
	if err != nil {
		t.Fatal(err)
	}
	var stored genai.Content
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	req.Contents = append(req.Contents, &stored, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
		{FunctionResponse: &genai.FunctionResponse{ID: "toolu_9", Response: map[string]any{"output": "x"}}},
	}})
	if _, _, _, err := generate(t, url, req); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Messages []struct{ Content []json.RawMessage }
	}
	if err := json.Unmarshal([]byte((*bodies)[1]), &sent); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"type":"thinking","thinking":"First thought.","signature":"sigA=="}`,
		`{"type":"redacted_thinking","data":"hidden+data"}`,
		`{"type":"thinking","thinking":"Second.","signature":"sigB"}`,
		`{"type":"thinking","thinking":"","signature":"sigC"}`,
		`{"type":"text","text":"Reading."}`,
		`{"type":"tool_use","id":"toolu_9","name":"fs_read","input":{"path":"a","n":1.0}}`,
	}
	var got []string
	for _, raw := range sent.Messages[1].Content {
		got = append(got, string(raw))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent back\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCacheWriteHour tells apart what the provider keeps in its cache for an hour.
func TestCacheWriteHour(t *testing.T) {
	w := encode(modeltest.Response{
		Pieces: []modeltest.Piece{{Text: "hi"}},
		Usage:  model.Usage{Prompt: 120, Cached: 64, CacheWrite: 12, Completion: 34, Total: 154},
	})
	stream := strings.Replace(strings.Join(w.Frames, ""), `"ephemeral_1h_input_tokens":0`, `"ephemeral_1h_input_tokens":5`, 1)
	url, _ := serve(t, "text/event-stream", stream)
	resp, _, _, err := generate(t, url, hello())
	if err != nil {
		t.Fatal(err)
	}
	want := seam.WithCacheWriteHour(model.Usage{Prompt: 120, Cached: 64, CacheWrite: 12, Completion: 34, Total: 154}, 5)
	if resp.Usage != want {
		t.Errorf("usage %+v, want %+v", resp.Usage, want)
	}
}

// TestPausedUsage: when the rest of an answer that was paused does not come, what
// both requests took is not lost.
func TestPausedUsage(t *testing.T) {
	begun, _, _ := strings.Cut(fixture(t, "search_rest.sse"), "event: content_block_start")
	url, _ := serve(t, "text/event-stream", fixture(t, "search_paused.sse"), begun)
	_, _, _, err := generate(t, url, hello(&genai.Tool{GoogleSearch: &genai.GoogleSearch{}}))
	e, ok := errors.AsType[*model.Error](err)
	if want := (model.Usage{Prompt: 30, Completion: 6, Total: 36}); !ok || e.Kind != model.KindUnavailable || e.Usage == nil || *e.Usage != want {
		t.Errorf("error %+v, want one with usage %+v", e, want)
	}
}

// TestWebSearch: the blocks of the provider's tool are kept, and an answer that
// was paused on its way comes out as one.
func TestWebSearch(t *testing.T) {
	url, bodies := serve(t, "text/event-stream", fixture(t, "search_paused.sse"), fixture(t, "search_rest.sse"))
	resp, text, _, err := generate(t, url, hello(&genai.Tool{GoogleSearch: &genai.GoogleSearch{}}))
	if err != nil {
		t.Fatal(err)
	}
	if text != "Let me look. It is sunny, they say." {
		t.Errorf("text %q", text)
	}
	if want := (model.Usage{Prompt: 30, Completion: 12, Total: 42}); resp.Usage != want {
		t.Errorf("usage %+v, want the sum of both requests %+v", resp.Usage, want)
	}
	if len(*bodies) != 2 {
		t.Fatalf("%d requests, want 2", len(*bodies))
	}
	const use = `{"id":"srvtoolu_1","input":{"query":"weather"},"name":"web_search","type":"server_tool_use"}`
	paused := `{"role":"assistant","content":[{"type":"text","text":"Let me look."},` + use + `]}]`
	if !strings.Contains((*bodies)[1], paused) {
		t.Errorf("the continuation was not asked for with what there was:\n%s\nwant in it\n%s", (*bodies)[1], paused)
	}
	blocks := assistantBlocks(resp.Content, nil, family{})
	var kinds []string
	for _, b := range blocks {
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var kind struct{ Type string }
		if err := json.Unmarshal(data, &kind); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, kind.Type)
		if kind.Type == "web_search_tool_result" && !strings.Contains(string(data), `"encrypted_content":"enc=="`) {
			t.Errorf("the search result is not what came: %s", data)
		}
	}
	if want := []string{"text", "server_tool_use", "web_search_tool_result", "text", "text"}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("blocks %q, want %q", kinds, want)
	}
	if last := blocks[len(blocks)-1]; last.Text != ", they say." || !strings.Contains(string(last.Citations), `"encrypted_index":"idx"`) {
		t.Errorf("the cited text is %+v with citations %s", last, last.Citations)
	}
}

func TestPausedForEver(t *testing.T) {
	url, bodies := serve(t, "text/event-stream", fixture(t, "search_paused.sse"))
	_, _, _, err := generate(t, url, hello(&genai.Tool{GoogleSearch: &genai.GoogleSearch{}}))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUnavailable || len(*bodies) != maxPauses {
		t.Errorf("error %v after %d requests, want %s after %d", err, len(*bodies), model.KindUnavailable, maxPauses)
	}
}

// started begins an answer whose rest is given as the data of events.
func started(rest ...string) string {
	var b strings.Builder
	for _, data := range append([]string{`{"type":"message_start","message":{"model":"claude-test-1","usage":{"input_tokens":1,"output_tokens":1}}}`}, rest...) {
		var ev struct{ Type string }
		_ = json.Unmarshal([]byte(data), &ev)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", ev.Type, data)
	}
	return b.String()
}

// TestStreams are answers that deviate from the usual.
func TestStreams(t *testing.T) {
	const (
		text   = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hey"}}`
		use    = `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`
		useAll = `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}}`
		stop0  = `{"type":"content_block_stop","index":0}`
		stop1  = `{"type":"content_block_stop","index":1}`
		end    = `{"type":"message_stop"}`
	)
	reason := func(r string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + r + `"},"usage":{"output_tokens":7}}`
	}
	type want struct {
		text     string
		finish   genai.FinishReason
		args     string // of the only call, "" for none
		argsBad  bool
		errKind  model.Kind
		errNames string // what the error's text holds
	}
	for name, c := range map[string]struct {
		stream string
		want   want
	}{
		"text in the start":         {started(text, stop0, reason("end_turn"), end), want{text: "hey", finish: genai.FinishReasonStop}},
		"no block of text stops":    {started(text, reason("end_turn"), end), want{text: "hey", finish: genai.FinishReasonStop}},
		"call that does not stop":   {started(text, use, reason("tool_use"), end), want{errKind: model.KindUnavailable, errNames: "not finished"}},
		"calls without a call":      {started(text, stop0, reason("tool_use"), end), want{errKind: model.KindUnavailable, errNames: "has none"}},
		"block that is nothing":     {started(`{"type":"content_block_start","index":0,"content_block":null}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, stop0, reason("end_turn"), end), want{errKind: model.KindUnavailable, errNames: "content block"}},
		"second beginning":          {started(text, `{"type":"message_start","message":{}}`), want{errKind: model.KindUnavailable, errNames: "begin"}},
		"stop of another block":     {started(text, stop1), want{errKind: model.KindUnavailable, errNames: "not open"}},
		"delta of another kind":     {started(text, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`), want{errKind: model.KindUnavailable, errNames: "another kind"}},
		"input in the start":        {started(useAll, stop1, reason("tool_use"), end), want{finish: genai.FinishReasonStop, args: `{"a":1}`}},
		"unknown events and deltas": {started(`{"type":"news"}`, text, `{"type":"content_block_delta","index":0,"delta":{"type":"news_delta"}}`, stop0, reason("end_turn"), end), want{text: "hey", finish: genai.FinishReasonStop}},
		"events without a name": {
			strings.ReplaceAll(strings.ReplaceAll(started(text, stop0, reason("stop_sequence"), end), "event: ", ": "), "message_start\n", "x\n"),
			want{text: "hey", finish: genai.FinishReasonStop},
		},
		"call cut before arguments":  {started(use, stop1, reason("max_tokens"), end), want{finish: genai.FinishReasonMaxTokens, args: "{}", argsBad: true}},
		"call cut in the arguments":  {started(use, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`, stop1, reason("max_tokens"), end), want{finish: genai.FinishReasonMaxTokens, args: `{"a":`, argsBad: true}},
		"context window full":        {started(text, stop0, reason("model_context_window_exceeded"), end), want{text: "hey", finish: genai.FinishReasonMaxTokens}},
		"unknown stop reason":        {started(text, stop0, reason("whim"), end), want{text: "hey", finish: genai.FinishReasonOther}},
		"delta of no block":          {started(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`), want{errKind: model.KindUnavailable, errNames: "no content block"}},
		"delta of another block":     {started(text, `{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"x"}}`), want{errKind: model.KindUnavailable, errNames: "no content block"}},
		"refusal explained":          {started(`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"explanation":"no weapons"}}}`, end), want{errKind: model.KindBlocked, errNames: "no weapons"}},
		"pause before anything":      {started(reason("pause_turn"), end), want{errKind: model.KindUnavailable, errNames: "paused"}},
		"end without a stop reason":  {started(text, stop0, end), want{errKind: model.KindUnavailable, errNames: "ended before"}},
		"broken block of a provider": {started(`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`, stop0), want{errKind: model.KindUnavailable, errNames: "not the JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, "text/event-stream", c.stream)
			resp, text, _, err := generate(t, url, hello())
			if c.want.errKind != "" {
				e, ok := errors.AsType[*model.Error](err)
				if !ok || e.Kind != c.want.errKind || !strings.Contains(e.Message, c.want.errNames) {
					t.Errorf("error %v, want one of kind %s with %q", err, c.want.errKind, c.want.errNames)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text != c.want.text || resp.FinishReason != c.want.finish {
				t.Errorf("text %q, finish %s; want %q, %s", text, resp.FinishReason, c.want.text, c.want.finish)
			}
			var call *genai.Part
			for _, p := range resp.Content.Parts {
				if p.FunctionCall != nil {
					call = p
				}
			}
			if (call != nil) != (c.want.args != "") {
				t.Fatalf("call %+v, want arguments %q", call, c.want.args)
			}
			if call == nil {
				return
			}
			_, bad := call.PartMetadata[seam.MetaArgsError]
			if call.PartMetadata[seam.MetaArgs] != c.want.args || bad != c.want.argsBad {
				t.Errorf("arguments %v, bad %v; want %q, %v", call.PartMetadata[seam.MetaArgs], bad, c.want.args, c.want.argsBad)
			}
		})
	}
}

// TestRefusalUsage: a refused answer has its price.
func TestRefusalUsage(t *testing.T) {
	url, _ := serve(t, "text/event-stream", started(
		`{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`))
	_, _, _, err := generate(t, url, hello())
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Usage == nil || *e.Usage != (model.Usage{Prompt: 1, Completion: 7, Total: 8}) {
		t.Errorf("error %+v, want one with the usage", err)
	}
}

// TestEnvironment: what the SDK would read from the environment has no say.
func TestEnvironment(t *testing.T) {
	for _, v := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE"} {
		t.Setenv(v, "X-Env: from-the-environment")
	}
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	var header http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { header = r.Header.Clone() }))
	defer s.Close()
	if _, _, _, err := generate(t, s.URL, hello()); err == nil {
		t.Error("an empty answer is a success")
	}
	if text := fmt.Sprint(header); header.Get("X-Api-Key") != "k" || strings.Contains(text, "from-the-environment") {
		t.Errorf("header %v", header)
	}
	if _, err := New(Config{}).Open("claude-test", " "); err == nil {
		t.Error("a key was found in the environment")
	}
}

func TestBaseURL(t *testing.T) {
	for _, bad := range []string{"ftp://x", "nonsense", "http://"} {
		_, err := New(Config{APIKey: "k", BaseURL: bad}).Open("claude-test", "")
		if e, ok := errors.AsType[*model.Error](err); !ok || !strings.Contains(e.Message, "base URL") {
			t.Errorf("base URL %q: error %v", bad, err)
		}
	}
}

// FuzzStream: no stream brings the adapter down, and a success has a finish
// reason, streamed what it holds, which the guard checks, and is what the bytes
// say up to the end.
func FuzzStream(f *testing.F) {
	for _, stream := range providertest.Streams(f, providertest.Anthropic) {
		f.Add(stream)
	}
	for _, file := range []string{"thinking.sse", "search_rest.sse"} {
		f.Add(fixture(f, file))
	}
	f.Add(started(`{"type":"content_block_start","index":0,"content_block":null}`))
	f.Add(started( // what a block of a kind to come has for input is no call's
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"new_use","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`, `{"type":"content_block_stop","index":1}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`))
	f.Fuzz(func(t *testing.T, stream string) {
		a := newFuzzLLM(stream)
		resp, err := modelcall.Guard(a, modelcall.Limits{}).Generate(t.Context(), hello(), func(model.Delta) {})
		if err == nil {
			if difference := providertest.Differs(providertest.Anthropic, providertest.Hear(providertest.Anthropic, stream), heard(resp)); difference != "" {
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

// newFuzzLLM returns a model whose provider answers with stream, without a
// network.
func newFuzzLLM(stream string) model.LLM {
	llm, err := New(Config{APIKey: "k", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body: io.NopCloser(strings.NewReader(stream)),
		}, nil
	})}).Open("claude-test", "")
	if err != nil {
		panic(err)
	}
	return llm
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
