package gemini_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/gemini"
)

// recorded is one request as the server saw it.
type recorded struct {
	path   string
	header http.Header
	body   map[string]any
}

// serve answers every request with the frames and records the last one.
func serve(t *testing.T, frames ...string) (url string, last *recorded) {
	t.Helper()
	last = new(recorded)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*last = recorded{path: r.URL.String(), header: r.Header.Clone()}
		dec := json.NewDecoder(strings.NewReader(string(body)))
		dec.UseNumber()
		if err := dec.Decode(&last.body); err != nil {
			t.Errorf("request body: %v", err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(frames, ""))
	}))
	t.Cleanup(s.Close)
	return s.URL, last
}

// generate makes one call against a server that answers with the frames.
func generate(t *testing.T, name string, frames ...string) *model.Response {
	t.Helper()
	url, _ := serve(t, frames...)
	return ask(t, gemini.New(gemini.Config{APIKey: "k", BaseURL: url}), name, prompt("hello"))
}

func ask(t *testing.T, p model.Provider, name string, req *model.Request) *model.Response {
	t.Helper()
	llm, err := p.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := modelcall.Guard(llm, modelcall.Limits{Provider: "gemini"}).Generate(t.Context(), req, func(model.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

const done = `{"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}]}`

// Signatures stay on the exact parts they came with and go back there.
func TestSignaturesRoundTrip(t *testing.T) {
	stream := []string{
		`{"candidates":[{"content":{"parts":[{"text":"think","thought":true}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"lo","thoughtSignature":"c2lnLTE="}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"!"}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","id":"c1","args":{"b":1,"a":9007199254740993}},"thoughtSignature":"c2ln_y0y"}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","id":"c2"}}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"1"}}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2lnLTM="}]},"finishReason":"STOP"}],"modelVersion":"v"}`,
	}
	var frames []string
	for _, s := range stream {
		frames = append(frames, frame(json.RawMessage(s)))
	}
	resp := generate(t, "gemini-3-pro-preview", frames...)

	// The session's log keeps parts as JSON, and the engine rewrites the ids.
	data, err := json.Marshal(resp.Content)
	if err != nil {
		t.Fatal(err)
	}
	var kept genai.Content
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	req := prompt("hello")
	var results []*genai.Part
	for i, p := range kept.Parts {
		if fc := p.FunctionCall; fc != nil {
			p.PartMetadata[seam.MetaCallID] = fc.ID
			fc.ID = "adk-" + string(rune('a'+i))
			results = append(results, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: fc.ID, Name: fc.Name}})
		}
	}
	req.Contents = append(req.Contents, &kept, &genai.Content{Role: genai.RoleUser, Parts: results})

	url, last := serve(t, frame(json.RawMessage(done)))
	ask(t, gemini.New(gemini.Config{APIKey: "k", BaseURL: url}), "gemini-3-pro-preview", req)
	got, err := rawjson.Marshal(last.body["contents"].([]any)[1:])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"parts":[` +
		`{"text":"Hel"},` +
		`{"text":"lo","thoughtSignature":"c2lnLTE="},` +
		`{"text":"!"},` +
		`{"functionCall":{"args":{"a":9007199254740993,"b":1},"id":"c1","name":"f"},"thoughtSignature":"c2ln/y0y"},` +
		`{"functionCall":{"args":{},"id":"c2","name":"f"}},` +
		`{"executableCode":{"code":"1","language":"PYTHON"}},` +
		`{"text":"","thoughtSignature":"c2lnLTM="}],"role":"model"},` +
		`{"parts":[{"functionResponse":{"id":"c1","name":"f","response":{}}},{"functionResponse":{"id":"c2","name":"f","response":{}}}],"role":"user"}]`
	if string(got) != want {
		t.Errorf("sent back\n%s\nwant\n%s", got, want)
	}
}

// A call that another model made carries no signature; Gemini 3 wants one.
func TestForeignCallsAreMarked(t *testing.T) {
	for name, want := range map[string]bool{"gemini-2.5-flash": false, "gemini-3-flash-preview": true} {
		req := prompt("hello")
		req.Contents = append(req.Contents, &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
			{FunctionCall: &genai.FunctionCall{ID: "x", Name: "f"}},
			{FunctionCall: &genai.FunctionCall{ID: "y", Name: "f"}},
		}})
		url, last := serve(t, frame(json.RawMessage(done)))
		ask(t, gemini.New(gemini.Config{APIKey: "k", BaseURL: url}), name, req)
		parts := last.body["contents"].([]any)[1].(object)["parts"].([]any)
		if _, got := parts[0].(object)["thoughtSignature"]; got != want {
			t.Errorf("%s: signature on the first call: %v, want %v", name, got, want)
		}
		if _, got := parts[1].(object)["thoughtSignature"]; got {
			t.Errorf("%s: signature on the second call", name)
		}
	}
}

func TestRequestOnTheWire(t *testing.T) {
	url, last := serve(t, frame(json.RawMessage(done)))
	req := prompt("hello")
	req.Config.SystemInstruction.Role = ""
	req.Config.Tools = append(req.Config.Tools, &genai.Tool{GoogleSearch: &genai.GoogleSearch{}})
	req.Config.ThinkingConfig = &genai.ThinkingConfig{IncludeThoughts: true, ThinkingBudget: genai.Ptr[int32](512)}
	req.Config.ResponseMIMEType = "application/json"
	req.Config.ResponseJsonSchema = object{"type": "object"}
	ask(t, gemini.New(gemini.Config{APIKey: "the-key", BaseURL: url}), "gemini-3-flash-preview", req)

	if last.path != "/v1beta/models/gemini-3-flash-preview:streamGenerateContent?alt=sse" {
		t.Errorf("path %s", last.path)
	}
	if last.header.Get("X-Goog-Api-Key") != "the-key" {
		t.Error("the key is not in its header")
	}
	if req.Config.SystemInstruction.Role != "" {
		t.Error("the SDK changed the caller's configuration")
	}
	got, err := rawjson.Marshal(last.body)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"contents":[{"parts":[{"text":"hello"}],"role":"user"}],` +
		`"generationConfig":{"responseJsonSchema":{"type":"object"},"responseMimeType":"application/json","thinkingConfig":{"includeThoughts":true,"thinkingBudget":512}},` +
		`"systemInstruction":{"parts":[{"text":"be brief"}],"role":"user"},` +
		`"toolConfig":{"includeServerSideToolInvocations":true},"tools":[{"functionDeclarations":[{"description":"greets","name":"greet","parametersJsonSchema":{"properties":{"name":{"type":"string"}},"required":["name"],"type":"object"}}]},{"googleSearch":{}}]}`
	if string(got) != want {
		t.Errorf("body\n%s\nwant\n%s", got, want)
	}
}

func TestVertexExpress(t *testing.T) {
	url, last := serve(t, frame(json.RawMessage(done)))
	p := gemini.New(gemini.Config{Vertex: true, APIKey: "express-key", BaseURL: url})
	ask(t, p, "gemini-2.5-flash", prompt("hello"))
	if last.path != "/v1beta1/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse" {
		t.Errorf("path %s", last.path)
	}
	if last.header.Get("X-Goog-Api-Key") != "express-key" {
		t.Error("the key is not in its header")
	}
}

func TestVertexRetryInfo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `[{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}]`)
	}))
	t.Cleanup(s.Close)
	llm, err := gemini.New(gemini.Config{APIKey: "k", BaseURL: s.URL}).Open("gemini-2.5-flash", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = llm.Generate(t.Context(), prompt("hello"), func(model.Delta) {})
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindRateLimited || e.RetryAfter.Seconds() != 34.5 || e.Message != "RESOURCE_EXHAUSTED: slow down" {
		t.Errorf("error %#v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		model  string
		config gemini.Config
		kind   model.Kind
	}{
		{"", gemini.Config{APIKey: "k"}, model.KindUnavailable},
		{"meta-llama/llama-3", gemini.Config{APIKey: "k"}, model.KindUnavailable},
		{"models/../../secrets", gemini.Config{APIKey: "k"}, model.KindUnavailable},
		{"gemini?x=1", gemini.Config{APIKey: "k"}, model.KindUnavailable},
		{"gemini-2.5-flash", gemini.Config{}, model.KindAuth},
		{"gemini-2.5-flash", gemini.Config{Vertex: true}, model.KindAuth},
	} {
		_, err := gemini.New(c.config).Open(c.model, "")
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != c.kind {
			t.Errorf("Open(%q) with %+v: %v, want %s", c.model, c.config, err, c.kind)
		}
	}
	for _, good := range []string{"models/gemini-2.5-flash", "tunedModels/mine-123"} {
		if _, err := gemini.New(gemini.Config{APIKey: "k"}).Open(good, ""); err != nil {
			t.Errorf("Open(%q): %v", good, err)
		}
	}
}

// prompt is a request that says text, with a system instruction and a tool.
func prompt(text string) *model.Request {
	return &model.Request{
		Contents: []*genai.Content{genai.NewContentFromText(text, genai.RoleUser)},
		Config: &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser),
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
				Name: "greet", Description: "greets",
				ParametersJsonSchema: map[string]any{
					"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}, "required": []any{"name"},
				},
			}}}},
		},
	}
}
