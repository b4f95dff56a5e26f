package adkbridge

import (
	"encoding/json"
	"testing"

	"google.golang.org/genai"
)

// TestToolBytes: what tools are measured to take is within a tenth of what they take, whatever they hold.
func TestToolBytes(t *testing.T) {
	schema := map[string]any{
		"type": "object", "required": []any{"city", "days"}, "additionalProperties": false,
		"properties": map[string]any{
			"city": map[string]any{"type": "string", "description": "where, in the language of the country"},
			"days": map[string]any{"type": "integer", "minimum": json.Number("1"), "maximum": 1000.0},
			"unit": map[string]any{"enum": []any{"C", "F", nil}},
		},
	}
	declaration := func(name string, schema any) *genai.FunctionDeclaration {
		return &genai.FunctionDeclaration{Name: name, Description: "Says what the weather is.", ParametersJsonSchema: schema}
	}
	typed := &genai.FunctionDeclaration{Name: "typed", Parameters: &genai.Schema{
		Type: genai.TypeObject, Properties: map[string]*genai.Schema{"a_long_name": {Type: genai.TypeString, Description: "what it is"}},
	}}
	for name, tools := range map[string][]*genai.Tool{
		"none":     nil,
		"one":      {{FunctionDeclarations: []*genai.FunctionDeclaration{declaration("weather", schema)}}},
		"many":     {{FunctionDeclarations: []*genai.FunctionDeclaration{declaration("a", schema), declaration("b", nil), typed}}},
		"raw":      {{FunctionDeclarations: []*genai.FunctionDeclaration{declaration("c", json.RawMessage(`{"type":"object"}`))}}},
		"provider": {{GoogleSearch: &genai.GoogleSearch{ExcludeDomains: []string{"example.com", "example.org"}}}},
	} {
		data, err := json.Marshal(tools)
		if err != nil {
			t.Fatal(err)
		}
		want := len(data)
		if tools == nil {
			want = 0
		}
		if got := toolBytes(tools); got < want*9/10-50 || got > want*11/10+50 {
			t.Errorf("%s: %d bytes, they take %d", name, got, want)
		}
	}
}

func BenchmarkToolBytes(b *testing.B) {
	schema := map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}}
	tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
		{Name: "tool", Description: "a tool that does something", ParametersJsonSchema: schema},
	}}}
	b.ReportAllocs()
	for b.Loop() {
		toolBytes(tools)
	}
}
