package gemini

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// TestToolsTogether: Google's own tools and functions in one request have to be
// asked for from Gemini 3 on, where Vertex AI knows no such setting, and are refused
// by name before.
func TestToolsTogether(t *testing.T) {
	functions := &genai.Tool{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}}}
	search, code := &genai.Tool{GoogleSearch: &genai.GoogleSearch{}}, &genai.Tool{CodeExecution: &genai.ToolCodeExecution{}}
	chosen := &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny}}
	for name, tc := range map[string]struct {
		model   string
		vertex  bool
		tools   []*genai.Tool
		given   *genai.ToolConfig
		asked   bool
		refused string
	}{
		"functions":              {model: "gemini-3-pro-preview", tools: []*genai.Tool{functions}},
		"search":                 {model: "gemini-3-pro-preview", tools: []*genai.Tool{search, code}},
		"search before":          {model: "gemini-2.5-flash", tools: []*genai.Tool{search, code}},
		"functions before":       {model: "gemini-2.5-flash", tools: []*genai.Tool{functions}},
		"both":                   {model: "gemini-3-pro-preview", tools: []*genai.Tool{functions, nil, search}, asked: true},
		"both in one":            {model: "gemini-3.5-flash", tools: []*genai.Tool{{FunctionDeclarations: functions.FunctionDeclarations, URLContext: &genai.URLContext{}}}, asked: true},
		"both, with a choice":    {model: "gemini-flash-latest", tools: []*genai.Tool{functions, code}, given: chosen, asked: true},
		"both over Vertex AI":    {model: "gemini-3-pro-preview", vertex: true, tools: []*genai.Tool{functions, search}},
		"both before":            {model: "gemini-2.5-flash", tools: []*genai.Tool{functions, search, code}, refused: "google_search, code_execution"},
		"both before, on Vertex": {model: "gemini-2.5-pro", vertex: true, tools: []*genai.Tool{functions, code}, refused: "code_execution"},
		"both, unknown":          {model: "gemma-9", tools: []*genai.Tool{functions, search}},
	} {
		l := &llm{model: tc.model, vertex: tc.vertex}
		req := &model.Request{Config: &genai.GenerateContentConfig{Tools: tc.tools, ToolConfig: tc.given}}
		cfg, err := l.settings(req)
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused+" ") || !strings.Contains(err.Error(), tc.model) {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := cfg.ToolConfig
		if asked := got != nil && got.IncludeServerSideToolInvocations != nil && *got.IncludeServerSideToolInvocations; asked != tc.asked {
			t.Errorf("%s: asked %t, want %t", name, asked, tc.asked)
		}
		if tc.given != nil && (got.FunctionCallingConfig != tc.given.FunctionCallingConfig || tc.given.IncludeServerSideToolInvocations != nil) {
			t.Errorf("%s: %+v of %+v", name, got, tc.given)
		}
	}
}

// TestUnsigned: from Gemini 3 on, by whatever name, the first call that another
// model made goes out with the signature that stands for none.
func TestUnsigned(t *testing.T) {
	for modelName, want := range map[string]bool{
		"gemini-3-pro-preview": true, "models/gemini-3.5-flash": true, "gemini-flash-latest": true, "gemini-10-pro": true,
		"gemini-2.5-flash": false, "gemini-2.0-flash-lite": false, "gemma-3-27b-it": false,
	} {
		l := &llm{model: modelName}
		got := l.call(adapter.NewCall("c", "f", "{}"), true).Signature
		if bytes.Equal(got, unsigned) != want || !want && got != nil {
			t.Errorf("%s: %q", modelName, got)
		}
	}
}
