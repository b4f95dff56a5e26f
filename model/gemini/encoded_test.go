package gemini_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/gemini"
)

// bodies records the bodies of requests as they are sent.
func bodies(t testing.TB) (url string, last func() []byte) {
	t.Helper()
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		if int64(len(body)) != r.ContentLength {
			t.Errorf("%d bytes came, of %d", len(body), r.ContentLength)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"STOP\"}]}\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []byte { return body }
}

// round is what a user says, what the model answers and what its tools return.
func round(n int) []*genai.Content {
	call := adapter.NewCall(fmt.Sprint("c", n), "look", fmt.Sprintf(`{"at":%d,"why":"<a & b>"}`, n))
	return []*genai.Content{
		genai.NewContentFromText(fmt.Sprintf("question %d: naïve 'text' </script>", n), genai.RoleUser),
		{Role: genai.RoleModel, Parts: []*genai.Part{{Text: "let me see"}, call}},
		{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
			ID: call.FunctionCall.ID, Name: "look", Response: map[string]any{"output": fmt.Sprint("r", n)}}}}},
	}
}

// settings are made anew for each call, as the engine makes them.
func settings(n int) *genai.GenerateContentConfig {
	return &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(fmt.Sprint("be brief ", n), genai.RoleUser),
		Temperature:       new(float32(0.5)),
		MaxOutputTokens:   100,
		StopSequences:     []string{"</end>"},
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: "look", Description: "looks", ParametersJsonSchema: map[string]any{
				"type": "object", "properties": map[string]any{"at": map[string]any{"type": "integer"}}}}}}},
	}
}

// TestEncodedOnce: what is sent is the same, byte for byte, whether anything is kept between calls or not, and means what
// the SDK would send.
func TestEncodedOnce(t *testing.T) {
	url, last := bodies(t)
	m, err := gemini.New(gemini.Config{APIKey: "k", BaseURL: url}).Open("gemini-2.5-flash", "")
	if err != nil {
		t.Fatal(err)
	}
	sdk, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: url}})
	if err != nil {
		t.Fatal(err)
	}
	send := func(req *model.Request) string {
		t.Helper()
		if req.Encoded == nil { // nothing is kept, nor known
			m, err := gemini.New(gemini.Config{APIKey: "k", BaseURL: url}).Open("gemini-2.5-flash", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.LLM.Generate(t.Context(), req, func(model.Delta) {}); err != nil {
				t.Fatal(err)
			}
			return string(last())
		}
		if _, err := m.LLM.Generate(t.Context(), req, func(model.Delta) {}); err != nil {
			t.Fatal(err)
		}
		return string(last())
	}
	kept := encoded.NewRoom(1 << 20).Conversation()
	var contents []*genai.Content
	for n := range 6 {
		contents = append(contents, round(n)...)
		for _, cfg := range []func() *genai.GenerateContentConfig{
			func() *genai.GenerateContentConfig { return settings(n / 2) },
			func() *genai.GenerateContentConfig { return &genai.GenerateContentConfig{} },
		} {
			with := send(&model.Request{Contents: contents, Config: cfg(), Encoded: kept})
			again := send(&model.Request{Contents: contents, Config: cfg(), Encoded: kept})
			without := send(&model.Request{Contents: contents, Config: cfg()})
			if with != without || again != without {
				t.Fatalf("with what is kept\n%s\nagain\n%s\nwithout\n%s", with, again, without)
			}
			for _, err := range sdk.Models.GenerateContentStream(t.Context(), "gemini-2.5-flash", contents, cfg()) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if ours, theirs := value(t, []byte(with)), value(t, last()); !reflect.DeepEqual(ours, theirs) {
				t.Errorf("ours\n%s\nthe SDK's\n%s", with, last())
			}
		}
	}
}

// TestEncodedOfModels: what is kept of one model, and of one account, is not sent to another.
func TestEncodedOfModels(t *testing.T) {
	url, last := bodies(t)
	kept := encoded.NewRoom(1 << 20).Conversation()
	seen := map[string]bool{}
	for range 2 {
		for _, cfg := range []gemini.Config{{APIKey: "k", BaseURL: url}, {APIKey: "k", BaseURL: url, Vertex: true}} {
			for _, name := range []string{"gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3-flash-preview"} {
				m, err := gemini.New(cfg).Open(name, "")
				if err != nil {
					t.Fatal(err)
				}
				fresh, err := gemini.New(cfg).Open(name, "")
				if err != nil {
					t.Fatal(err)
				}
				var sent []string
				for _, kept := range []*encoded.Conversation{kept, kept, nil} {
					if kept == nil {
						m = fresh
					}
					req := &model.Request{Contents: round(1), Config: settings(1), Encoded: kept}
					req.Config.ThinkingConfig = &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMinimal}
					if _, err := m.LLM.Generate(t.Context(), req, func(model.Delta) {}); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, string(last()))
				}
				if sent[0] != sent[2] || sent[1] != sent[2] {
					t.Errorf("%s, Vertex %v: kept\n%s\nagain\n%s\nnot\n%s", name, cfg.Vertex, sent[0], sent[1], sent[2])
				}
				seen[sent[2]] = true
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("%d models get %d different requests", 3, len(seen))
	}
}

// TestKnownSettings: a provider that has sent the settings of many agents sends those of each as one does that has not:
// settings that differ in anything are others.
func TestKnownSettings(t *testing.T) {
	url, last := bodies(t)
	open := func(of model.Provider, name string) model.Model {
		m, err := of.Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	cfg := gemini.Config{APIKey: "k", BaseURL: url}
	shared, seen := gemini.New(cfg), map[string]bool{}
	changes := []func(*genai.GenerateContentConfig){
		func(*genai.GenerateContentConfig) {},
		func(c *genai.GenerateContentConfig) { c.SystemInstruction.Parts[0].Text += "." },
		func(c *genai.GenerateContentConfig) { c.Temperature = new(float32(0)) },
		func(c *genai.GenerateContentConfig) { c.Temperature = nil },
		func(c *genai.GenerateContentConfig) { c.MaxOutputTokens++ },
		func(c *genai.GenerateContentConfig) { c.StopSequences = append(c.StopSequences, "stop") },
		func(c *genai.GenerateContentConfig) { c.Seed = new(int32(7)) },
		func(c *genai.GenerateContentConfig) { c.Tools[0].FunctionDeclarations[0].Description = "looks well" },
		func(c *genai.GenerateContentConfig) {
			c.Tools[0].FunctionDeclarations[0].ParametersJsonSchema = map[string]any{"type": "object"}
		},
		func(c *genai.GenerateContentConfig) {
			c.ResponseMIMEType, c.ResponseJsonSchema = "application/json", json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)
		},
		func(c *genai.GenerateContentConfig) {
			c.ResponseMIMEType, c.ResponseJsonSchema = "application/json", json.RawMessage(`{"type":"object","properties":{"a":{},"b":{}}}`)
		},
		func(c *genai.GenerateContentConfig) {
			c.ThinkingConfig = &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow}
		},
		func(c *genai.GenerateContentConfig) {
			c.ToolConfig = &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny}}
		},
	}
	for range 2 {
		for i, change := range changes {
			for _, name := range []string{"gemini-2.5-flash", "gemini-3-pro-preview"} {
				var sent []string
				for _, of := range []model.Provider{shared, gemini.New(cfg)} {
					req := &model.Request{Contents: round(1), Config: settings(1), Encoded: encoded.NewRoom(1 << 20).Conversation()}
					change(req.Config)
					if _, err := open(of, name).LLM.Generate(t.Context(), req, func(model.Delta) {}); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, string(last()))
				}
				if sent[0] != sent[1] {
					t.Errorf("%s, change %d: it sends\n%s\nwant\n%s", name, i, sent[0], sent[1])
				}
				seen[sent[1]] = true
			}
		}
	}
	if len(seen) < len(changes) {
		t.Errorf("%d settings are %d on the wire", len(changes), len(seen))
	}
}

// value is JSON without what the SDK alone says: which model, and ids and metadata that are ours.
func value(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v["contents"].([]any) {
		var parts []any
		for _, p := range c.(map[string]any)["parts"].([]any) {
			part := p.(map[string]any)
			delete(part, "partMetadata")
			for _, key := range []string{"functionCall", "functionResponse"} {
				if in, ok := part[key].(map[string]any); ok {
					delete(in, "id")
				}
			}
			parts = append(parts, part)
		}
		c.(map[string]any)["parts"] = parts
	}
	// Neighbors of one role are one content of ours.
	var merged []any
	for _, c := range v["contents"].([]any) {
		c := c.(map[string]any)
		if n := len(merged); n > 0 && merged[n-1].(map[string]any)["role"] == c["role"] {
			before := merged[n-1].(map[string]any)
			before["parts"] = append(before["parts"].([]any), c["parts"].([]any)...)
			continue
		}
		merged = append(merged, c)
	}
	v["contents"] = merged
	return v
}

// BenchmarkRequest makes a call at the end of a conversation of so many rounds, to a server that reads and answers.
func BenchmarkRequest(b *testing.B) {
	for _, rounds := range []int{10, 100, 1000} {
		var contents []*genai.Content
		for n := range rounds {
			contents = append(contents, round(n)...)
		}
		for name, kept := range map[string]*encoded.Conversation{"kept": encoded.NewRoom(64 << 20).Conversation(), "not": nil} {
			b.Run(fmt.Sprintf("%s/rounds=%d", name, rounds), func(b *testing.B) {
				transport := roundTrip(func(r *http.Request) (*http.Response, error) {
					_, err := io.Copy(io.Discard, r.Body)
					return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody, Request: r}, err
				})
				m, err := gemini.New(gemini.Config{APIKey: "k", Transport: transport}).Open("gemini-2.5-flash", "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					req := &model.Request{Contents: contents, Config: settings(0), Encoded: kept}
					_, _ = m.LLM.Generate(context.Background(), req, func(model.Delta) {}) // the server refuses all
				}
			})
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUnencodable: what is no JSON is refused before anything is sent, with or without what is kept.
func TestUnencodable(t *testing.T) {
	m, err := gemini.New(gemini.Config{APIKey: "k", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody, Request: r}, nil
	})}).Open("gemini-2.5-flash", "")
	if err != nil {
		t.Fatal(err)
	}
	bad := []*genai.Content{{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
		Name: "look", Response: map[string]any{"output": math.NaN()}}}}}}
	for _, kept := range []*encoded.Conversation{nil, encoded.NewRoom(1 << 20).Conversation()} {
		for range 2 {
			_, err := m.LLM.Generate(t.Context(), &model.Request{Contents: bad, Config: settings(0), Encoded: kept}, func(model.Delta) {})
			if e, ok := err.(*model.Error); !ok || e.Kind != model.KindInvalid || !strings.Contains(e.Message, "cannot be encoded") { //nolint:errorlint // it is not wrapped
				t.Errorf("got %T %v", err, err)
			}
		}
	}
}
