package openai

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// TestLowestEffort: no effort is sent that the model is known to refuse.
func TestLowestEffort(t *testing.T) {
	for name, want := range map[string]struct{ minimal, low, none string }{
		"gpt-5":                 {"minimal", "low", "refused"},
		"gpt-5-2025-08-07":      {"minimal", "low", "refused"},
		"gpt-5-mini":            {"minimal", "low", "refused"},
		"gpt-5-nano-2025-08-07": {"minimal", "low", "refused"},
		"gpt-5-codex":           {"low", "low", "refused"},
		"gpt-5-pro":             {"high", "high", "refused"},
		"gpt-5.1":               {"low", "low", "none"},
		"gpt-5.1-codex-max":     {"low", "low", "none"},
		"gpt-5.4-mini":          {"low", "low", "none"},
		"gpt-5.6-sol":           {"low", "low", "none"},
		"gpt-6-sol":             {"low", "low", "none"},
		"gpt-6-astra":           {"low", "low", "refused"},
		"gpt-6.1-sol":           {"low", "low", "refused"},
		"gpt-6.2-sol":           {"low", "low", "refused"},
		"ft:gpt-5-mini:acme::1": {"minimal", "low", "refused"},
		"o3":                    {"low", "low", "refused"},
		"o4-mini-2025-04-16":    {"low", "low", "refused"},
		"somebody/else":         {"low", "low", "none"},
	} {
		l := &llm{cfg: &Config{Name: "openai", BaseURL: defaultBaseURL}, model: name}
		level := func(level genai.ThinkingLevel) string {
			got, err := l.effort(&genai.ThinkingConfig{ThinkingLevel: level})
			if err != nil {
				return err.Error()
			}
			return got
		}
		none, err := l.effort(&genai.ThinkingConfig{ThinkingBudget: new(int32(0))})
		if e, ok := errors.AsType[*model.Error](err); ok && e.Kind == model.KindInvalid && strings.Contains(e.Error(), name) {
			none = "refused"
		}
		if got := [3]string{level(genai.ThinkingLevelMinimal), level(genai.ThinkingLevelLow), none}; got != [3]string{want.minimal, want.low, want.none} {
			t.Errorf("%s: minimal, low and none become %q, want %q", name, got, want)
		}
		if got := level(genai.ThinkingLevelHigh); got != "high" {
			t.Errorf("%s: high becomes %q", name, got)
		}
		if got, err := l.effort(nil); got != "" || err != nil {
			t.Errorf("%s: nothing becomes %q, %v", name, got, err)
		}
	}
}

// TestSampling: a temperature that OpenAI refuses is refused before the call, and one
// that says what holds anyway is left out; other servers get what was asked for.
func TestSampling(t *testing.T) {
	low := &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow}
	none := &genai.ThinkingConfig{ThinkingBudget: new(int32(0))}
	for _, tc := range []struct {
		name     string
		thinking *genai.ThinkingConfig
		samples  bool
	}{
		{"gpt-4o", nil, true}, {"gpt-4.1-mini", nil, true}, {"gpt-5-chat-latest", nil, true}, {"somebody/else", low, true},
		{"gpt-5", nil, false}, {"gpt-5-mini", low, false}, {"o3", nil, false}, {"o1-pro", nil, false},
		{"gpt-5.2", nil, true}, {"gpt-5.2", none, true}, {"gpt-5.2", low, false}, {"gpt-5.1-codex", nil, false}, {"gpt-5.2-pro", nil, false},
		{"gpt-5.6-luna", nil, false}, {"gpt-5.6-luna", none, true}, {"gpt-6-sol", low, false}, {"gpt-6-sol", none, true}, {"gpt-6.2-sol", nil, false},
	} {
		for _, api := range []API{Responses, Chat} {
			for _, url := range []string{defaultBaseURL, "https://models.example/v1"} {
				for _, temperature := range []float32{0.5, 1} {
					l := &llm{cfg: &Config{Name: "openai", BaseURL: url, API: api}, model: tc.name}
					cfg := &genai.GenerateContentConfig{Temperature: &temperature, ThinkingConfig: tc.thinking}
					effort, err := l.effort(tc.thinking)
					if err != nil {
						t.Fatal(err)
					}
					got, _, err := l.sampling(cfg, effort)
					switch takes := tc.samples || url != defaultBaseURL; {
					case takes && (err != nil || got == nil), !takes && got != nil, !takes && (err != nil) != (temperature != 1):
						t.Errorf("%s at %s, thinking %v: temperature %v becomes %v, %v", tc.name, url, tc.thinking, temperature, got, err)
					}
				}
			}
		}
	}
}

// TestCacheSpans: a lifetime that a model does not have is refused.
func TestCacheSpans(t *testing.T) {
	for name, longest := range map[string]time.Duration{
		"gpt-4o": 5 * time.Minute, "gpt-4.1": 24 * time.Hour, "gpt-4.1-mini": 5 * time.Minute, "gpt-5": 24 * time.Hour, "gpt-5-mini": 5 * time.Minute,
		"gpt-5.1-codex": 24 * time.Hour, "gpt-5.4": 24 * time.Hour, "gpt-5.6-sol": 30 * time.Minute, "gpt-6.2-sol": 30 * time.Minute, "o3": 5 * time.Minute,
	} {
		l := &llm{cfg: &Config{Name: "openai", BaseURL: defaultBaseURL}, model: name}
		got, err := l.cache(&model.Cache{Key: "k", TTL: longest})
		if want := longest == 24*time.Hour; err != nil || (got.Retention == "24h") != want || got.Key != "k" {
			t.Errorf("%s, %v: %+v, %v", name, longest, got, err)
		}
		if _, err := l.cache(&model.Cache{Key: "k", TTL: longest + time.Second}); err == nil || !strings.Contains(err.Error(), longest.String()) {
			t.Errorf("%s keeps prompts for longer than %v: %v", name, longest, err)
		}
	}
}
