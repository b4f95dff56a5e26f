package anthropic

import (
	"encoding/json"
	"errors"
	"flag"
	"path/filepath"
	"reflect"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/talk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// owned is the metadata of a part whose opaque data is Anthropic's.
func owned(opaque any) map[string]any {
	m := map[string]any{seam.MetaProvider: name}
	if opaque != nil {
		m[seam.MetaOpaque] = opaque
	}
	return m
}

// requests are the cases of the golden files.
func requests() map[string]*model.Request {
	user := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: genai.RoleUser, Parts: parts} }
	said := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: genai.RoleModel, Parts: parts} }
	text := func(s string) *genai.Part { return &genai.Part{Text: s} }
	result := func(id string, r map[string]any) *genai.Part {
		return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "fs.read", Response: r}}
	}
	return map[string]*model.Request{
		"plain": {
			Contents: []*genai.Content{user(text("hi"))},
			Config:   &genai.GenerateContentConfig{},
		},
		"conversation": {
			Config: &genai.GenerateContentConfig{
				SystemInstruction: &genai.Content{Parts: []*genai.Part{text("be brief"), text(" "), text("be kind")}},
				Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
					{Name: "fs.read", Description: "reads <a> file", ParametersJsonSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"at":{"type":"integer"}},"required":["path"]}`)},
					{Name: "now"},
				}}, {GoogleSearch: &genai.GoogleSearch{ExcludeDomains: []string{"bad.example"}}}},
				Temperature: new(float32(0.7)), TopP: new(float32(0.9)), TopK: new(float32(40)),
				MaxOutputTokens: 1000, StopSequences: []string{"END"},
			},
			Contents: []*genai.Content{
				user(text("read"), text("two files")),
				said(
					&genai.Part{Thought: true, Text: "hm", ThoughtSignature: []byte("c2lnbmVk"), PartMetadata: owned(nil)},
					&genai.Part{Thought: true, PartMetadata: owned(`{"type":"redacted_thinking","data":"xyz"}`)},
					&genai.Part{Thought: true, ThoughtSignature: []byte("b21pdHRlZA=="), PartMetadata: owned(nil)},
					&genai.Part{Thought: true, Text: "of another", ThoughtSignature: []byte("x"), PartMetadata: map[string]any{seam.MetaProvider: "gemini"}},
					&genai.Part{Thought: true, Text: "unsigned"},
					text("\n\n"),
					text("I read them."),
					&genai.Part{
						FunctionCall: &genai.FunctionCall{ID: "e1", Name: "fs.read", Args: map[string]any{"path": "a", "at": json.Number("1")}},
						PartMetadata: map[string]any{seam.MetaArgs: `{"path": "a", "at": 1}`, seam.MetaCallID: "toolu_1"},
					},
					&genai.Part{
						FunctionCall: &genai.FunctionCall{ID: "e2", Name: "fs.read"},
						PartMetadata: map[string]any{seam.MetaArgs: `{"path`, seam.MetaArgsError: "broken"},
					},
					&genai.Part{FunctionCall: &genai.FunctionCall{ID: "e3", Name: "gone:tool"}},
				),
				user(text("by the way"), result("e1", map[string]any{"output": "one"})),
				user(result("e2", map[string]any{"error": "no such file"}), result("e3", map[string]any{"output": ""})),
				said(
					&genai.Part{PartMetadata: owned(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}}`)},
					&genai.Part{PartMetadata: owned(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`)},
					&genai.Part{Text: "found", PartMetadata: owned(`[{"type":"web_search_result_location","cited_text":"y","encrypted_index":"z","title":"t","url":"u"}]`)},
					&genai.Part{PartMetadata: map[string]any{seam.MetaProvider: "openai", seam.MetaOpaque: `{"type":"web_search_call"}`}},
				),
				user(text(" ")),
			},
		},
		"media": {
			Config: &genai.GenerateContentConfig{},
			Contents: []*genai.Content{
				user(
					&genai.Part{InlineData: &genai.Blob{MIMEType: "image/PNG; x=y", Data: []byte("png")}},
					&genai.Part{FileData: &genai.FileData{FileURI: "https://example.com/a.jpg"}},
					&genai.Part{InlineData: &genai.Blob{MIMEType: "application/pdf", Data: []byte("pdf"), DisplayName: "a.pdf"}},
					&genai.Part{FileData: &genai.FileData{MIMEType: "application/pdf", FileURI: "https://example.com/a.pdf"}},
					&genai.Part{InlineData: &genai.Blob{MIMEType: "text/plain", Data: []byte("plain")}},
					text("look"),
				),
				said(&genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("drawn")}}, &genai.Part{FunctionCall: &genai.FunctionCall{ID: "e1", Name: "shot"}}),
				user(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "e1", Response: map[string]any{"output": "here"}, Parts: []*genai.FunctionResponsePart{
					{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("shot")}},
				}}}),
			},
		},
		"thinking_structured": {
			Config: &genai.GenerateContentConfig{
				ThinkingConfig:     &genai.ThinkingConfig{ThinkingBudget: new(int32(4000)), IncludeThoughts: true},
				Temperature:        new(float32(1)),
				MaxOutputTokens:    3000,
				ResponseJsonSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`),
				Tools:              []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}}}},
				ToolConfig:         &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeNone}},
			},
			Contents: []*genai.Content{user(text("count"))},
		},
	}
}

func TestRequests(t *testing.T) {
	for name, req := range requests() {
		t.Run(name, func(t *testing.T) {
			body, err := bodyOf("claude-sonnet-4-5", req)
			if err != nil {
				t.Fatal(err)
			}
			talk.Golden(t, filepath.Join("testdata", name+".golden.json"), body, *update)
			checkFields(t, body)
		})
	}
}

// checkFields reads body as the SDK's own request and writes it again: what
// comes back is what Anthropic's schema knows.
func checkFields(t *testing.T, body []byte) {
	t.Helper()
	var params sdk.MessageNewParams
	if err := json.Unmarshal(body, &params); err != nil {
		t.Fatalf("the SDK cannot read the request: %v", err)
	}
	second, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := errors.Join(json.Unmarshal(body, &want), json.Unmarshal(second, &got)); err != nil {
		t.Fatal(err)
	}
	delete(want, "stream") // The SDK sets it by which method is called.
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the SDK reads the request as\n%s\nwhich was\n%s", second, body)
	}
}

func TestInvalidRequests(t *testing.T) {
	hello := genai.NewContentFromText("hello", genai.RoleUser)
	part := func(p *genai.Part) *genai.Content {
		return &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{p}}
	}
	for name, req := range map[string]*model.Request{
		"no contents": {Config: &genai.GenerateContentConfig{}},
		"audio":       {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{part(&genai.Part{InlineData: &genai.Blob{MIMEType: "audio/wav", Data: []byte("x")}})}},
		"video link":  {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{part(&genai.Part{FileData: &genai.FileData{MIMEType: "video/mp4", FileURI: "https://example.com/v"}})}},
		"video in a result": {Config: &genai.GenerateContentConfig{}, Contents: []*genai.Content{part(&genai.Part{FunctionResponse: &genai.FunctionResponse{
			Parts: []*genai.FunctionResponsePart{{InlineData: &genai.FunctionResponseBlob{MIMEType: "video/mp4"}}},
		}})}},
		"foreign tool":    {Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{GoogleMaps: &genai.GoogleMaps{}}}}, Contents: []*genai.Content{hello}},
		"seed":            {Config: &genai.GenerateContentConfig{Seed: new(int32(1))}, Contents: []*genai.Content{hello}},
		"two candidates":  {Config: &genai.GenerateContentConfig{CandidateCount: 2}, Contents: []*genai.Content{hello}},
		"warm thinking":   {Config: &genai.GenerateContentConfig{Temperature: new(float32(0.5)), ThinkingConfig: &genai.ThinkingConfig{}}, Contents: []*genai.Content{hello}},
		"thinking, top k": {Config: &genai.GenerateContentConfig{TopK: new(float32(5)), ThinkingConfig: &genai.ThinkingConfig{}}, Contents: []*genai.Content{hello}},
		"JSON at random":  {Config: &genai.GenerateContentConfig{ResponseMIMEType: "application/json"}, Contents: []*genai.Content{hello}},
	} {
		_, err := bodyOf("claude-x", req)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindInvalid {
			t.Errorf("%s: error %v, want one of kind %s", name, err, model.KindInvalid)
		}
	}
}

func TestFamilies(t *testing.T) {
	for name, want := range map[string]int64{
		"claude-3-haiku-20240307": 4096, "claude-3-5-sonnet-latest": 8192, "claude-3-7-sonnet-20250219": 64000,
		"claude-opus-4-20250514": 32000, "claude-opus-4@20250514": 32000, "claude-opus-4-1": 32000, "claude-opus-4-5-20251101": 64000,
		"claude-sonnet-4-20250514": 64000, "claude-sonnet-4-5": 64000, "claude-haiku-4-5": 64000, "claude-sonnet-5": 64000,
		"claude-mythos-preview": 64000, "some-proxy-alias": 64000,
	} {
		if got := familyOf(name).defaultMaxTokens(); got != want {
			t.Errorf("%s: default of %d tokens, want %d", name, got, want)
		}
	}
}

func TestThinking(t *testing.T) {
	old, recent := familyOf("claude-sonnet-4-5"), familyOf("claude-opus-4-7")
	for name, c := range map[string]struct {
		family family
		cfg    *genai.ThinkingConfig
		want   *thinking
		effort string
	}{
		"not set":             {old, nil, nil, ""},
		"off":                 {recent, &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}, &thinking{Type: "disabled"}, ""},
		"old, small budget":   {old, &genai.ThinkingConfig{ThinkingBudget: new(int32(10))}, &thinking{Type: "enabled", BudgetTokens: 1024}, ""},
		"old, dynamic":        {old, &genai.ThinkingConfig{ThinkingBudget: new(int32(-1))}, &thinking{Type: "enabled", BudgetTokens: 8192}, ""},
		"old, level":          {old, &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelHigh}, &thinking{Type: "enabled", BudgetTokens: 16384}, ""},
		"recent, silent":      {recent, &genai.ThinkingConfig{}, &thinking{Type: "adaptive", Display: "omitted"}, ""},
		"recent, small":       {recent, &genai.ThinkingConfig{ThinkingBudget: new(int32(2000)), IncludeThoughts: true}, &thinking{Type: "adaptive", Display: "summarized"}, "low"},
		"recent, medium":      {recent, &genai.ThinkingConfig{ThinkingBudget: new(int32(8000))}, &thinking{Type: "adaptive", Display: "omitted"}, "medium"},
		"recent, large":       {recent, &genai.ThinkingConfig{ThinkingBudget: new(int32(9000))}, &thinking{Type: "adaptive", Display: "omitted"}, "high"},
		"recent, level":       {recent, &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMedium}, &thinking{Type: "adaptive", Display: "omitted"}, "medium"},
		"alias counts as new": {familyOf("my-claude"), &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow}, &thinking{Type: "adaptive", Display: "omitted"}, "low"},
	} {
		got, effort := c.family.thinking(c.cfg)
		if !reflect.DeepEqual(got, c.want) || effort != c.effort {
			t.Errorf("%s: %+v with effort %q, want %+v with %q", name, got, effort, c.want, c.effort)
		}
	}
}
