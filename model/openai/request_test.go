package openai

import (
	"encoding/json"
	"errors"
	"flag"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/talk"
	"github.com/apzuk3/agentd/model/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func owned(owner string, opaque string) map[string]any {
	return map[string]any{seam.MetaProvider: owner, seam.MetaOpaque: opaque}
}

func user(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleUser, Parts: parts}
}

func resultOf(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleModel, Parts: parts}
}

func text(s string) *genai.Part { return &genai.Part{Text: s} }

func result(id string, r map[string]any) *genai.Part {
	return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "fs.read", Response: r}}
}

// testOwner marks what belongs to the server of the golden files.
const testOwner = chatOwner + "@127.0.0.1:1"

// requests are the cases of the golden files, which both wires share.
func requests() map[string]*model.Request {
	tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
		{Name: "fs.read", Description: "reads <a> file", ParametersJsonSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"at":{"type":"integer"}},"required":["path"]}`)},
		{Name: "now"},
	}}}
	return map[string]*model.Request{
		"plain": {Contents: []*genai.Content{user(text("hi"))}, Config: &genai.GenerateContentConfig{}},
		"conversation": {
			Config: &genai.GenerateContentConfig{
				SystemInstruction: &genai.Content{Parts: []*genai.Part{text("be brief"), text("be kind")}},
				Tools:             tools,
				Temperature:       new(float32(0.7)), TopP: new(float32(0.9)), Seed: new(int32(5)),
				MaxOutputTokens: 1000, StopSequences: []string{"END"},
			},
			Contents: []*genai.Content{
				user(text("before")),
				resultOf(
					&genai.Part{Thought: true, Text: "old thought", PartMetadata: owned(testOwner, "reasoning_content")},
					&genai.Part{Thought: true, Text: "old summary", PartMetadata: owned(responsesOwner, `{"type":"reasoning","id":"rs_0","status":null,"summary":[{"type":"summary_text","text":"old summary"}],"encrypted_content":"ZW5jMA=="}`)},
					&genai.Part{Text: "yes?", PartMetadata: owned(responsesOwner, `{"phase":"final_answer"}`)},
				),
				user(text("read"), text("two files")),
				resultOf(
					&genai.Part{Thought: true, Text: "hm", PartMetadata: owned(testOwner, "reasoning_content")},
					&genai.Part{Thought: true, Text: "summary", PartMetadata: owned(responsesOwner, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"ZW5jMQ==","content":null}`)},
					&genai.Part{Thought: true, Text: "not encrypted", PartMetadata: owned(responsesOwner, `{"type":"reasoning","id":"rs_2","summary":[]}`)},
					&genai.Part{Thought: true, Text: "of another", ThoughtSignature: []byte("x"), PartMetadata: map[string]any{seam.MetaProvider: "gemini"}},
					text("I "), text("read them."),
					&genai.Part{
						FunctionCall: &genai.FunctionCall{ID: "e1", Name: "fs.read", Args: map[string]any{"path": "a", "at": json.Number("1")}},
						PartMetadata: map[string]any{seam.MetaArgs: `{"path": "a", "at": 1}`, seam.MetaCallID: "call_1", seam.MetaProvider: testOwner, seam.MetaOpaque: `{"google":{"thought_signature":"c2ln"}}`},
					},
					&genai.Part{
						FunctionCall: &genai.FunctionCall{ID: "e2", Name: "fs.read"},
						PartMetadata: map[string]any{seam.MetaArgs: `{"path`, seam.MetaArgsError: "broken"},
					},
					&genai.Part{
						FunctionCall: &genai.FunctionCall{ID: "e3", Name: "gone:tool"},
						PartMetadata: map[string]any{seam.MetaArgs: `["a"]`, seam.MetaArgsError: "no object"},
					},
				),
				user(text("by the way"), result("e1", map[string]any{"output": "one"})),
				user(result("e2", map[string]any{"error": "no such file"}), result("e3", map[string]any{"output": map[string]any{"n": 1}})),
			},
		},
		"media": {
			Config: &genai.GenerateContentConfig{},
			Contents: []*genai.Content{
				user(
					&genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("png")}},
					&genai.Part{FileData: &genai.FileData{FileURI: "https://example.com/a.jpg"}},
					text("look"),
				),
				resultOf(&genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("drawn")}}, &genai.Part{FunctionCall: &genai.FunctionCall{ID: "e1", Name: "shot"}}),
				user(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "e1", Response: map[string]any{"output": "here"}, Parts: []*genai.FunctionResponsePart{
					{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("shot")}},
				}}}),
			},
		},
		"reasoning_structured": {
			Config: &genai.GenerateContentConfig{
				ThinkingConfig:     &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelHigh, IncludeThoughts: true},
				ResponseMIMEType:   "application/json",
				ResponseJsonSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
				Tools:              tools,
				ToolConfig:         &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{"fs.read"}}},
			},
			Contents: []*genai.Content{user(text("count"))},
		},
		"strict": {
			Config: &genai.GenerateContentConfig{
				ResponseMIMEType:   "application/json",
				ResponseJsonSchema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"string"},"a":{"type":["integer","null"]}},"required":["z","a"],"additionalProperties":false}`),
			},
			Contents: []*genai.Content{user(text("count"))},
		},
		"json": {
			Config:   &genai.GenerateContentConfig{ResponseMIMEType: "application/json", ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}},
			Contents: []*genai.Content{user(text("count"))},
		},
	}
}

// openFor opens a model without a network.
func openFor(t testing.TB, cfg Config, modelName string) *llm {
	t.Helper()
	cfg.APIKey = "k"
	m, err := New(cfg).Open(modelName, "")
	if err != nil {
		t.Fatal(err)
	}
	return m.LLM.(*llm)
}

func TestRequests(t *testing.T) {
	for name, req := range requests() {
		t.Run("chat/"+name, func(t *testing.T) {
			body, err := bodyOf(openFor(t, Config{BaseURL: "http://127.0.0.1:1/v1"}, "test-model"), req)
			checkGolden(t, "chat_"+name, body, err, new(sdk.ChatCompletionNewParams))
		})
		t.Run("responses/"+name, func(t *testing.T) {
			cfg := *req.Config
			cfg.Seed, cfg.StopSequences = nil, nil // Refused, see TestInvalidRequests.
			body, err := bodyOf(openFor(t, Config{}, "test-model"), &model.Request{Contents: req.Contents, Config: &cfg})
			checkGolden(t, "responses_"+name, body, err, new(responses.ResponseNewParams))
		})
	}
}

// checkGolden compares a request with its golden file, and reads it as the
// SDK's own.
func checkGolden(t *testing.T, name string, body []byte, err error, params any) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	talk.Golden(t, filepath.Join("testdata", name+".golden.json"), body, *update)
	checkFields(t, body, params)
}

// checkFields reads body as the SDK's own request and writes it again: what
// comes back is what OpenAI's schema knows.
func checkFields(t *testing.T, body []byte, params any) {
	t.Helper()
	if err := json.Unmarshal(body, params); err != nil {
		t.Fatalf("the SDK cannot read the request: %v", err)
	}
	second, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(body, &want), json.Unmarshal(second, &got)); err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{want, got} {
		prune(v)
	}
	delete(want.(map[string]any), "stream") // The SDK sets it by which method is called.
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the SDK reads the request as\n%s\nwhich was\n%s", second, body)
	}
}

// prune removes what compatible servers know and OpenAI does not, the ids that
// the SDK writes even when they are not there, and the choice of one tool, which
// it cannot read.
func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "reasoning_content")
		delete(v, "extra_content")
		if _, ok := v["tool_choice"].(map[string]any); ok {
			delete(v, "tool_choice")
		}
		if v["id"] == "" {
			delete(v, "id")
		}
		for _, sub := range v {
			prune(sub)
		}
	case []any:
		for _, sub := range v {
			prune(sub)
		}
	}
}

func TestWireDetails(t *testing.T) {
	req := &model.Request{Contents: []*genai.Content{user(text("hi"))}, Config: &genai.GenerateContentConfig{MaxOutputTokens: 9}}
	chat := func(baseURL string) *chatRequest {
		r, err := openFor(t, Config{BaseURL: baseURL, API: Chat}, "gpt-4o").newChatRequest(req, wire.NewNames(maxToolName, req))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := chat(""); r.MaxTokens != 0 || r.MaxCompletionTokens != 9 || r.StreamOptions == nil {
		t.Errorf("OpenAI itself: %+v", r)
	}
	for _, baseURL := range []string{"https://eu.api.openai.com/v1", "https://x.openai.azure.com/openai/v1"} {
		if r := chat(baseURL); r.MaxTokens != 0 || r.MaxCompletionTokens != 9 {
			t.Errorf("%s: %+v", baseURL, r)
		}
	}
	if r := chat("https://api.mistral.ai/v1"); r.MaxTokens != 9 || r.MaxCompletionTokens != 0 || r.StreamOptions != nil {
		t.Errorf("Mistral: %+v", r)
	}
	for name, want := range map[string]bool{"gpt-4o": false, "gpt-3.5-turbo": false, "chatgpt-4o-latest": false, "gpt-5-chat-latest": false, "gpt-5.1-chat-latest": false, "gpt-5": true, "o3": true, "my-deployment": true,
		"ft:gpt-4o-mini-2024-07-18:acme::abc": false, "ft:gpt-4.1-2025-04-14:acme:mine:abc:ckpt-step-10": false, "ft:o4-mini-2025-04-16:acme::abc": true, "ft:gpt-5:acme:a-chat:abc": true} {
		if reasons(name) != want {
			t.Errorf("reasons(%q) = %v", name, !want)
		}
	}
	search := &model.Request{Contents: req.Contents, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{GoogleSearch: &genai.GoogleSearch{}}}}}
	r, err := openFor(t, Config{}, "gpt-5").newResponsesRequest(search, wire.NewNames(maxToolName, search))
	if err != nil || mustJSON(r.Tools) != `[{"type":"web_search"}]` {
		t.Errorf("tools %s, error %v", mustJSON(r.Tools), err)
	}
}

func TestAPI(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want API
	}{
		{Config{}, Responses},
		{Config{BaseURL: "https://api.openai.com/v1/"}, Responses},
		{Config{BaseURL: "https://eu.api.openai.com/v1"}, Responses},
		{Config{BaseURL: "https://AE.api.openai.com:443/v1"}, Responses},
		{Config{BaseURL: "https://notapi.openai.com/v1"}, Chat},
		{Config{BaseURL: "https://eu-api.openai.com/v1"}, Chat},
		{Config{BaseURL: "https://x.openai.azure.com/openai/v1"}, Chat},
		{Config{BaseURL: "https://eu.api.openai.com.example/v1"}, Chat},
		{Config{API: Chat}, Chat},
		{Config{BaseURL: "http://127.0.0.1:11434/v1"}, Chat},
		{Config{BaseURL: "https://api.openai.com.example/v1"}, Chat},
		{Config{BaseURL: "http://127.0.0.1:11434/v1", API: Responses}, Responses},
	} {
		p := New(c.cfg).(*provider)
		if p.cfg.API != c.want || (len(p.Describe().Builtins) > 0) != (c.want == Responses) {
			t.Errorf("%+v: API %q with builtins %q, want %q", c.cfg, p.cfg.API, p.Describe().Builtins, c.want)
		}
	}
	if got := New(Config{Name: "openai-chat"}).Describe().Name; got != "openai-chat" {
		t.Errorf("name %q", got)
	}
}

func TestUnknownSettings(t *testing.T) {
	for name, c := range map[string]struct {
		cfg             genai.GenerateContentConfig
		chat, responses bool
	}{
		"StopSequences":   {genai.GenerateContentConfig{StopSequences: []string{"x"}}, true, false},
		"Seed":            {genai.GenerateContentConfig{Seed: new(int32(0))}, true, false},
		"PresencePenalty": {genai.GenerateContentConfig{PresencePenalty: new(float32(1))}, true, false},
		"TopK":            {genai.GenerateContentConfig{TopK: new(float32(1))}, false, false},
		"SafetySettings":  {genai.GenerateContentConfig{SafetySettings: []*genai.SafetySetting{{}}}, false, false},
		"CachedContent":   {genai.GenerateContentConfig{CachedContent: "x"}, false, false},
		"mode VALIDATED":  {genai.GenerateContentConfig{ToolConfig: &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeValidated}}}, false, false},
	} {
		req := &model.Request{Contents: []*genai.Content{user(text("x"))}, Config: &c.cfg}
		_, chatErr := bodyOf(openFor(t, Config{API: Chat}, "m"), req)
		_, responsesErr := bodyOf(openFor(t, Config{}, "m"), req)
		for err, takes := range map[error]bool{chatErr: c.chat, responsesErr: c.responses} {
			if takes && err != nil || !takes && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s: error %v, taken: %t", name, err, takes)
			}
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	inResult := func(kind string) *genai.Part {
		return &genai.Part{FunctionResponse: &genai.FunctionResponse{Parts: []*genai.FunctionResponsePart{{InlineData: &genai.FunctionResponseBlob{MIMEType: kind}}}}}
	}
	for name, req := range map[string]*model.Request{
		"no contents":      {Config: &genai.GenerateContentConfig{}},
		"flac":             {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{user(&genai.Part{InlineData: &genai.Blob{MIMEType: "audio/flac"}})}},
		"video":            {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{user(&genai.Part{InlineData: &genai.Blob{MIMEType: "video/mp4"}})}},
		"a bucket":         {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{user(&genai.Part{FileData: &genai.FileData{MIMEType: "application/pdf", FileURI: "gs://b/a.pdf"}})}},
		"tiff in a result": {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{user(inResult("image/tiff"))}},
		"foreign tool":     {Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{URLContext: &genai.URLContext{}}}}, Contents: []*genai.Content{user(text("x"))}},
		"search without domains": {
			Config:   &genai.GenerateContentConfig{Tools: []*genai.Tool{{GoogleSearch: &genai.GoogleSearch{ExcludeDomains: []string{"a.example"}}}}},
			Contents: []*genai.Content{user(text("x"))},
		},
	} {
		_, chatErr := bodyOf(openFor(t, Config{API: Chat}, "m"), req)
		_, responsesErr := bodyOf(openFor(t, Config{}, "m"), req)
		for _, err := range []error{chatErr, responsesErr} {
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindInvalid {
				t.Errorf("%s: error %v, want one of kind %s", name, err, model.KindInvalid)
			}
		}
	}
}
