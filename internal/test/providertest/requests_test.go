package providertest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

var updateRequests = flag.Bool("update", false, "rewrite testdata/requests")

// modelNames are the models that requests are made for, of each wire.
var modelNames = map[providertest.Wire]string{
	providertest.OpenAIChat: "gpt-5-mini", providertest.OpenAIResponses: "gpt-5",
	providertest.Anthropic: "claude-sonnet-4-5", providertest.Gemini: "gemini-3-pro-preview",
}

// sender keeps the body of a request and answers with a stream.
type sender struct {
	answer string
	body   []byte
}

// RoundTrip implements http.RoundTripper.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.body = body
	return (&memory{s.answer}).RoundTrip(r)
}

// asker sends requests of one wire.
type asker struct {
	llm  model.Model
	sent *sender
}

func newAsker(tb testing.TB, wire providertest.Wire) *asker { return newAskerAt(tb, wire, "") }

// newAskerAt asks another server than OpenAI's own over one of its wires.
func newAskerAt(tb testing.TB, wire providertest.Wire, base string) *asker {
	tb.Helper()
	return newAskerOf(tb, wire, func(t http.RoundTripper) model.Provider { return providerOf(wire, base, t) })
}

// providerOf is the adapter of a wire over a transport; base is another server than
// OpenAI's own, or "".
func providerOf(wire providertest.Wire, base string, t http.RoundTripper) model.Provider {
	switch wire {
	case providertest.OpenAIChat:
		return openai.New(openai.Config{APIKey: apiKey, BaseURL: base, API: openai.Chat, Transport: t})
	case providertest.OpenAIResponses:
		return openai.New(openai.Config{APIKey: apiKey, BaseURL: base, API: openai.Responses, Transport: t})
	case providertest.Anthropic:
		return anthropic.New(anthropic.Config{APIKey: apiKey, Transport: t})
	default:
		return gemini.New(gemini.Config{APIKey: apiKey, Transport: t})
	}
}

// newAskerOf is newAsker for a provider that is configured otherwise.
func newAskerOf(tb testing.TB, wire providertest.Wire, provider func(http.RoundTripper) model.Provider) *asker {
	tb.Helper()
	streams := providertest.Streams(tb, wire)
	var answer string
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		if strings.Contains(name, "_text.") {
			answer = streams[name]
			break
		}
	}
	s := &sender{answer: answer}
	llm, err := provider(s).Open(modelNames[wire], "")
	if err != nil {
		tb.Fatal(err)
	}
	return &asker{llm, s}
}

// ask sends a request and returns its body, or the error of one that is refused
// before it is sent.
func (a *asker) ask(tb testing.TB, req *model.Request) ([]byte, error) {
	a.sent.body = nil
	_, err := a.llm.Generate(tb.Context(), req, func(model.Delta) {})
	return a.sent.body, err
}

func said(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleModel, Parts: parts}
}

func asked(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleUser, Parts: parts}
}

func text(s string) *genai.Part { return &genai.Part{Text: s} }

// called is a call as the engine stores it.
func called(id, own, name, args string, more map[string]any) *genai.Part {
	p := adapter.NewCall(id, name, args)
	p.PartMetadata[seam.MetaCallID] = own
	maps.Copy(p.PartMetadata, more)
	return p
}

func answered(id, name string, response map[string]any, parts ...*genai.FunctionResponsePart) *genai.Part {
	return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: name, Response: response, Parts: parts}}
}

// owned is the metadata of a part with data of a provider's own.
func owned(provider, opaque string) map[string]any {
	meta := map[string]any{seam.MetaProvider: provider}
	if opaque != "" {
		meta[seam.MetaOpaque] = opaque
	}
	return meta
}

// thoughts are what the model of each wire thought, with what it wants back.
func thoughts() []*genai.Part {
	return []*genai.Part{
		{Text: "Chat thought.", Thought: true, PartMetadata: owned("openai-chat@api.openai.com", "reasoning_content")},
		{Text: "Responses thought.", Thought: true, PartMetadata: owned("openai", `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Responses thought."}],"encrypted_content":"UkVTUE9OU0VT"}`)},
		{Text: "Anthropic thought.", Thought: true, ThoughtSignature: []byte("QU5USFJPUElD"), PartMetadata: owned("anthropic", "")},
		{Thought: true, PartMetadata: owned("anthropic", `{"type":"redacted_thinking","data":"UkVEQUNURUQ="}`)},
		{Text: "Gemini thought.", Thought: true, ThoughtSignature: []byte("GEMINI"), PartMetadata: owned("gemini", "")},
	}
}

// searches are the searches for tools of each wire that has them.
func searches() []*genai.Part {
	opaque := func(provider, json string) *genai.Part { return &genai.Part{PartMetadata: owned(provider, json)} }
	return []*genai.Part{
		opaque("openai", `{"type":"tool_search_call","id":"ts_1","call_id":null,"execution":"server","status":"completed","arguments":{"paths":["clock_now"]}}`),
		opaque("openai", `{"type":"tool_search_output","id":"tso_1","call_id":null,"execution":"server","status":"completed","tools":[{"type":"function","name":"clock_now","defer_loading":true,"parameters":{"type":"object","properties":{}}}]}`),
		opaque("anthropic", `{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{"query":"time"}}`),
		opaque("anthropic", `{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"clock_now"}]}}`),
	}
}

var weather = &genai.FunctionDeclaration{
	Name: "weather", Description: "Tells the weather of a place.",
	ParametersJsonSchema: json.RawMessage(`{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}},"required":["place"]}`),
}

var clock = &genai.FunctionDeclaration{Name: "clock.now", Description: "Tells the time."}

var sun = &genai.FunctionDeclaration{Name: "sun", Description: "Tells when the sun sets."}

// conversations are the requests of the golden files.
func conversations() map[string]*model.Request {
	tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather, clock}}}
	finders := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather, clock, sun}}}
	schema := json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"degrees":{"type":"number"}},"required":["city","degrees"],"additionalProperties":false}`)
	hello := []*genai.Content{asked(text("What is the weather in Graz?"))}
	image := &genai.Blob{MIMEType: "image/png", Data: []byte("png")}
	choice := func(mode genai.FunctionCallingConfigMode, names ...string) *genai.GenerateContentConfig {
		return &genai.GenerateContentConfig{Tools: tools, ToolConfig: &genai.ToolConfig{
			FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: mode, AllowedFunctionNames: names},
		}}
	}
	all := map[string]*model.Request{
		"text":   {Contents: hello, Config: &genai.GenerateContentConfig{}},
		"system": {Contents: hello, Config: &genai.GenerateContentConfig{SystemInstruction: asked(text("Be brief."), text("Be kind."))}},
		"thoughts": {
			Config: &genai.GenerateContentConfig{Tools: tools},
			Contents: []*genai.Content{
				hello[0], said(append(thoughts(), called("e1", "call_1", "weather", `{"place": "Graz"}`, nil))...),
				asked(answered("e1", "weather", map[string]any{"output": "sunny"})),
			},
		},
		"parallel_calls": {
			Config: &genai.GenerateContentConfig{Tools: tools},
			Contents: []*genai.Content{
				hello[0],
				said(text("Let me see."), called("e1", "call_1", "weather", `{"place":"Graz","days":2}`, nil), called("e2", "call_2", "clock.now", "", nil),
					called("e3", "", "weather", `{"place":`, nil), called("e4", "call_4", "weather", `{"place":"Linz"}`, nil)),
				asked(
					answered("e1", "weather", map[string]any{"output": "sunny"}), answered("e2", "clock.now", map[string]any{"output": map[string]any{"hour": 7}}),
					answered("e3", "weather", map[string]any{"error": "arguments are not JSON"}),
					answered("e4", "weather", map[string]any{"output": "see the picture"}, &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("png")}}),
				),
				said(text("Sunny.")), asked(text("Thanks. And tomorrow?")),
			},
		},
		"images": {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{
			asked(&genai.Part{InlineData: image}, &genai.Part{FileData: &genai.FileData{MIMEType: "image/jpeg", FileURI: "https://example.com/a.jpg"}}, text("Compare them.")),
		}},
		"structured": {Contents: hello, Config: &genai.GenerateContentConfig{ResponseMIMEType: "application/json", ResponseJsonSchema: schema}},
		"structured_in_words": {Contents: hello, Config: &genai.GenerateContentConfig{
			SystemInstruction: asked(text("Be brief.")), ResponseMIMEType: "application/json",
			ResponseJsonSchema: json.RawMessage(`{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}},"not":{"required":["x"]}}`),
		}},
		"search": {Contents: hello, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{GoogleSearch: &genai.GoogleSearch{}}}}},
		"code":   {Contents: hello, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{CodeExecution: &genai.ToolCodeExecution{}}}}},
		"urls":   {Contents: hello, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{URLContext: &genai.URLContext{}}}}},
		"deferred": {
			Deferred: []string{"clock.now"}, ToolSearch: true, Config: &genai.GenerateContentConfig{Tools: tools},
			Contents: []*genai.Content{
				hello[0],
				said(append(searches(), called("e1", "call_1", "clock.now", `{}`, owned("openai", `{"namespace":"clock_now"}`)))...),
				asked(answered("e1", "clock.now", map[string]any{"output": "seven"})),
			},
		},
		// A tool of the client's looks for others: one is found, one is not yet, and what
		// it finds besides is there already, or nowhere.
		"found_before": {
			Deferred: []string{"clock.now", "sun"}, Config: &genai.GenerateContentConfig{Tools: finders},
			Contents: hello, Cache: &model.Cache{Key: "k1"},
		},
		"found": {
			Deferred: []string{"clock.now", "sun"}, Config: &genai.GenerateContentConfig{Tools: finders},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil)),
				asked(seam.Refer(answered("e1", "weather", map[string]any{"output": ""}), "clock.now")),
			},
		},
		"found_and_more": {
			Deferred: []string{"clock.now", "sun"}, Config: &genai.GenerateContentConfig{Tools: finders},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil), called("e2", "call_2", "weather", `{"place":"Wien"}`, nil)),
				asked(
					seam.Refer(answered("e1", "weather", map[string]any{"output": "Two tools."}, &genai.FunctionResponsePart{
						InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("png")},
					}), "clock.now", "weather", "nowhere", "clock.now"),
					answered("e2", "weather", map[string]any{"output": "sunny"}),
					text("And now?"),
				),
			},
		},
		// A result may say that it failed and refer to tools all the same.
		"found_failed": {
			Deferred: []string{"clock.now", "sun"}, Config: &genai.GenerateContentConfig{Tools: finders},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil), called("e2", "call_2", "weather", `{"place":"Wien"}`, nil)),
				asked(
					seam.Refer(answered("e1", "weather", map[string]any{"error": "half of the index is gone"}), "clock.now"),
					answered("e2", "weather", map[string]any{"error": "no such place"}),
				),
			},
		},
		// A function that has to be called is not deferred.
		"found_chosen": {
			Deferred: []string{"clock.now", "sun"}, Config: &genai.GenerateContentConfig{Tools: finders, ToolConfig: choice(genai.FunctionCallingConfigModeAny, "sun").ToolConfig},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil)),
				asked(seam.Refer(answered("e1", "weather", map[string]any{"output": ""}), "clock.now", "sun")),
			},
		},
		// With a search of the provider's, too.
		"found_or_searched": {
			Deferred: []string{"clock.now", "sun"}, ToolSearch: true, Config: &genai.GenerateContentConfig{Tools: finders},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil)),
				asked(seam.Refer(answered("e1", "weather", map[string]any{"n": 1}), "clock.now")),
			},
		},
		// What was found before is not deferred any more.
		"no_longer_deferred": {
			Config: &genai.GenerateContentConfig{Tools: tools},
			Contents: []*genai.Content{
				hello[0],
				said(append(searches(), called("e1", "call_1", "clock.now", `{}`, owned("openai", `{"namespace":"clock_now"}`)))...),
				asked(answered("e1", "clock.now", map[string]any{"output": "seven"})),
			},
		},
		"sampling": {Contents: hello, Config: &genai.GenerateContentConfig{
			Temperature: new(float32(0.3)), TopP: new(float32(0.9)), MaxOutputTokens: 500,
		}},
		"stop":             {Contents: hello, Config: &genai.GenerateContentConfig{StopSequences: []string{"END"}}},
		"seed":             {Contents: hello, Config: &genai.GenerateContentConfig{Seed: new(int32(7))}},
		"top_k":            {Contents: hello, Config: &genai.GenerateContentConfig{TopK: new(float32(40))}},
		"penalties":        {Contents: hello, Config: &genai.GenerateContentConfig{PresencePenalty: new(float32(0.5)), FrequencyPenalty: new(float32(0.5))}},
		"thinking_level":   {Contents: hello, Config: &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow, IncludeThoughts: true}}},
		"thinking_minimal": {Contents: hello, Config: &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMinimal}}},
		"thinking_none":    {Contents: hello, Config: &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}}},
		"thinking_budget":  {Contents: hello, Config: &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: new(int32(4000))}}},
		"cache":            {Contents: hello, Config: &genai.GenerateContentConfig{}, Cache: &model.Cache{Key: "k1"}},
		"cache_hour":       {Contents: hello, Config: &genai.GenerateContentConfig{Tools: tools[:1:1]}, Cache: &model.Cache{Key: "k1", TTL: 6 * time.Minute}},
		"cache_day":        {Contents: hello, Config: &genai.GenerateContentConfig{}, Cache: &model.Cache{Key: "k1", TTL: 24 * time.Hour}},
		"cache_all": {
			Config: &genai.GenerateContentConfig{
				SystemInstruction: asked(text("Be brief."), text("Be kind.")),
				Tools:             []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather, clock}}, {GoogleSearch: &genai.GoogleSearch{}}},
			},
			Cache: &model.Cache{Key: "k1", TTL: 5 * time.Minute},
			Contents: []*genai.Content{
				hello[0], said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil), called("e2", "call_2", "clock.now", "", nil)),
				asked(answered("e1", "weather", map[string]any{"output": "sunny"}), answered("e2", "clock.now", map[string]any{"output": "7"})),
				said(text("Sunny.")), asked(text("And tomorrow?")),
			},
		},
		"choice_none": {Contents: hello, Config: choice(genai.FunctionCallingConfigModeNone)},
		"choice_any":  {Contents: hello, Config: choice(genai.FunctionCallingConfigModeAny)},
		"choice_one":  {Contents: hello, Config: choice(genai.FunctionCallingConfigModeAny, "clock.now")},
		"choice_some": {Contents: hello, Config: choice(genai.FunctionCallingConfigModeAny, "clock.now", "weather")},
	}
	maps.Copy(all, files())
	return all
}

// files are conversations with one file each: of every kind, within the request and
// by URI, in a prompt and in a tool's result. What a wire has no way for is refused.
func files() map[string]*model.Request {
	all := map[string]*model.Request{}
	add := func(name string, p *genai.Part) {
		r := &genai.FunctionResponsePart{}
		if b := p.InlineData; b != nil {
			r.InlineData = &genai.FunctionResponseBlob{MIMEType: b.MIMEType, Data: b.Data}
		} else {
			r.FileData = &genai.FunctionResponseFileData{MIMEType: p.FileData.MIMEType, FileURI: p.FileData.FileURI}
		}
		cfg := &genai.GenerateContentConfig{}
		all["prompt_"+name] = &model.Request{Config: cfg, Contents: []*genai.Content{asked(text("What is this?"), p)}}
		all["result_"+name] = &model.Request{
			Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{weather}}}},
			Contents: []*genai.Content{
				asked(text("What is the weather in Graz?")), said(called("e1", "call_1", "weather", `{"place":"Graz"}`, nil)),
				asked(answered("e1", "weather", map[string]any{"output": ""}, r)),
			},
		}
	}
	for name, kind := range map[string]string{
		"image": "image/png", "tiff": "image/tiff", "audio": "audio/wav", "flac": "audio/flac", "video": "video/mp4",
		"pdf": "application/pdf", "text": "text/plain", "csv": "text/csv",
	} {
		add(name, &genai.Part{InlineData: &genai.Blob{MIMEType: kind, Data: []byte("data")}})
		if name == "tiff" || name == "flac" || name == "csv" {
			continue
		}
		add(name+"_uri", &genai.Part{FileData: &genai.FileData{MIMEType: kind, FileURI: "https://example.com/file"}})
	}
	for name, kind := range map[string]string{"image": "image/png", "pdf": "application/pdf"} {
		add(name+"_uploaded", &genai.Part{FileData: &genai.FileData{MIMEType: kind, FileURI: "file-123"}})
		add(name+"_bucket", &genai.Part{FileData: &genai.FileData{MIMEType: kind, FileURI: "gs://bucket/file"}})
	}
	return all
}

// TestRequests sends representative conversations to each provider. What is sent
// is a golden file for people to read, and valid for the provider's own SDK; what
// is refused is a golden file with the error.
func TestRequests(t *testing.T) {
	for _, wire := range providertest.Wires {
		a := newAsker(t, wire)
		for name, req := range conversations() {
			t.Run(string(wire)+"/"+name, func(t *testing.T) {
				body, err := a.ask(t, req)
				if (len(body) == 0) != (err != nil) {
					t.Fatalf("%d bytes were sent, error %v", len(body), err)
				}
				if err != nil {
					if body, err = json.Marshal(map[string]string{"refused": err.Error()}); err != nil {
						t.Fatal(err)
					}
				} else if err := checkRequest(wire, body); err != nil {
					t.Errorf("%v:\n%s", err, body)
				}
				golden(t, filepath.Join("testdata", "requests", string(wire), name+".json"), body)
			})
		}
	}
}

// golden compares a body with a file, for the file indented. Gemini's SDK writes
// keys in the order of the alphabet, the others' are in ours.
func golden(t *testing.T, file string, body []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, bytes.TrimSpace(body), "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if *updateRequests {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the request differs from %s (rewrite with -update):\n%s", file, got.Bytes())
	}
}
