package gemini

import (
	"slices"
	"testing"

	"google.golang.org/genai"
)

// TestLowestLevel: MINIMAL is sent to models that take it; others get what they take
// at least.
func TestLowestLevel(t *testing.T) {
	for name, want := range map[string]genai.ThinkingLevel{
		"gemini-3-flash-preview":       genai.ThinkingLevelMinimal,
		"gemini-3.1-flash-lite":        genai.ThinkingLevelMinimal,
		"gemini-3.5-flash":             genai.ThinkingLevelMinimal,
		"gemini-3.5-flash-lite":        genai.ThinkingLevelMinimal,
		"models/gemini-3.6-flash":      genai.ThinkingLevelMinimal,
		"gemini-3.7-flash":             genai.ThinkingLevelLow,
		"gemini-3.8-flash":             genai.ThinkingLevelLow,
		"gemini-3-pro-preview":         genai.ThinkingLevelLow,
		"gemini-3.1-pro-preview":       genai.ThinkingLevelLow,
		"gemini-3.10-flash":            genai.ThinkingLevelLow,
		"gemini-4-hydrogen":            genai.ThinkingLevelLow,
		"gemini-flash-latest":          genai.ThinkingLevelLow,
		"publishers/x/gemini-3.8-nano": genai.ThinkingLevelLow,
	} {
		l := &llm{model: name}
		asked := &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMinimal, IncludeThoughts: true}
		got := l.thinking(asked)
		if got.ThinkingLevel != want || got.ThinkingBudget != nil || !got.IncludeThoughts {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
		if asked.ThinkingLevel != genai.ThinkingLevelMinimal {
			t.Errorf("%s: what was asked for is changed", name)
		}
		if got := l.thinking(&genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelHigh}); got.ThinkingLevel != genai.ThinkingLevelHigh {
			t.Errorf("%s: high becomes %s", name, got.ThinkingLevel)
		}
	}
	old := (&llm{model: "gemini-2.5-pro"}).thinking(&genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelMinimal})
	if old.ThinkingLevel != "" || old.ThinkingBudget == nil || *old.ThinkingBudget != 1024 {
		t.Errorf("gemini-2.5-pro: %+v", old)
	}
}

// TestBuiltinsByModel: search has the name that it has everywhere, and pages are read
// by models that can.
func TestBuiltinsByModel(t *testing.T) {
	for name, fetches := range map[string]bool{
		"gemini-2.0-flash": false, "gemini-2.5-flash": true, "gemini-3-pro": true, "gemini-4": true, "gemini-flash-latest": true, "invented": true,
	} {
		got := (&llm{model: name}).builtins()
		if slices.Contains(got, "url_context") != fetches || !slices.Contains(got, "web_search") || !slices.Contains(got, "google_search") || !slices.IsSorted(got) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
