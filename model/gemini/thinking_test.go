package gemini

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"
)

// TestThinking: models before Gemini 3 know no levels, and take a budget.
func TestThinking(t *testing.T) {
	low := &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow, IncludeThoughts: true}
	none := &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}
	for _, tc := range []struct {
		model    string
		in, want *genai.ThinkingConfig
	}{
		{"gemini-2.5-flash", low, &genai.ThinkingConfig{ThinkingBudget: new(int32(2048)), IncludeThoughts: true}},
		{"gemini-2.5-flash", none, none},
		{"gemini-2.5-flash", nil, nil},
		{"gemini-3-pro-preview", low, low},
		{"gemini-flash-latest", low, low},
	} {
		if diff := cmp.Diff(tc.want, (&llm{model: tc.model}).thinking(tc.in)); diff != "" {
			t.Errorf("%s, %+v (-want +got):\n%s", tc.model, tc.in, diff)
		}
	}
}
