package anthropic

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// TestNoThoughtsWhereNoneIsAskedFor: a model that checks what stood before its
// thinking is sent none when it is to do without, and what it said and called stays.
func TestNoThoughtsWhereNoneIsAskedFor(t *testing.T) {
	thought := &genai.Part{
		Text: "secretly", Thought: true, ThoughtSignature: []byte("sig"),
		PartMetadata: map[string]any{seam.MetaProvider: name, seam.MetaModel: "claude-haiku-5-5"},
	}
	said := &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{thought, {Text: "aloud"}}}
	none := &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}
	for _, tc := range []struct {
		model    string
		thinking *genai.ThinkingConfig
		sent     bool
	}{
		{"claude-haiku-5-5", none, false},
		{"claude-haiku-5-5", nil, true},
		{"claude-haiku-5-5", &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMinimal}, true},
	} {
		req := &model.Request{
			Contents: []*genai.Content{genai.NewContentFromText("hi", genai.RoleUser), said, genai.NewContentFromText("more", genai.RoleUser)},
			Config:   &genai.GenerateContentConfig{ThinkingConfig: tc.thinking},
		}
		data, err := bodyOf(tc.model, req)
		if err != nil {
			t.Fatal(err)
		}
		if body := string(data); strings.Contains(body, "secretly") != tc.sent || !strings.Contains(body, "aloud") {
			t.Errorf("%s, thinking %+v: %s", tc.model, tc.thinking, body)
		}
		if len(said.Parts) != 2 {
			t.Fatal("the conversation itself was changed")
		}
	}
}

// TestBuiltinsByModel: pages are read by models that can.
func TestBuiltinsByModel(t *testing.T) {
	for name, fetches := range map[string]bool{"claude-3-haiku-20240307": false, "claude-3-5-haiku-latest": true, "claude-opus-4-1": true, "claude-haiku-5-5": true} {
		if got := (&llm{model: name}).builtins(); slices.Contains(got, "url_context") != fetches || !slices.Contains(got, "web_search") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
