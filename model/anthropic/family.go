package anthropic

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genai"
)

// family is what a model's name tells about what it takes. Names without a
// version, such as aliases and previews, count as the newest.
type family struct {
	line         string // "opus", "sonnet", …; "" if the name does not say
	major, minor int
}

// familyOf reads names in the old order (claude-3-7-sonnet-20250219) and the
// new one (claude-opus-4-5@20251101).
func familyOf(modelName string) family {
	f := family{major: -1}
	_, rest, _ := strings.Cut(modelName, "claude-")
	numbers := 0
	for word := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == '-' || r == '@' || r == '.' }) {
		n, err := strconv.Atoi(word)
		switch {
		case err != nil && f.line == "":
			f.line = word
		case err != nil || n >= 100: // A date, or "latest".
		case numbers == 0:
			f.major, numbers = n, 1
		case numbers == 1:
			f.minor, numbers = n, 2
		}
	}
	if f.major < 0 {
		f.major = math.MaxInt
	}
	return f
}

// atLeast reports whether the version is at least major.minor.
func (f family) atLeast(major, minor int) bool {
	return f.major > major || f.major == major && f.minor >= minor
}

// defaultMaxTokens is what the response may have when the caller does not say:
// as much as each model of the family allows, up to 64,000.
func (f family) defaultMaxTokens() int64 {
	switch {
	case f.atLeast(4, 2), f.line == "sonnet" && f.atLeast(4, 0), f.atLeast(3, 7) && !f.atLeast(4, 0):
		return 64_000
	case f.atLeast(4, 0):
		return 32_000 // Opus 4 and 4.1.
	case f.atLeast(3, 5):
		return 8_192
	default:
		return 4_096
	}
}

// known reports whether the name says which model it is.
func (f family) known() bool { return f.line != "" && f.major != math.MaxInt }

// preserves reports whether the model checks, in each request, that nothing before its
// thinking has changed ("preserved thinking"). It reads the thinking of some other
// models, and leaves out that of the rest by itself. The documentation, under
// build-with-claude/preserved-thinking, lists these.
func (f family) preserves() bool {
	switch f.line {
	case "fable", "mythos":
		return f.known() && f.atLeast(5, 1)
	case "opus", "sonnet", "haiku":
		return f.known() && f.atLeast(5, 5)
	default:
		return false
	}
}

// alwaysThinks reports whether the model refuses to do without thinking.
func (f family) alwaysThinks() bool {
	switch f.line {
	case "fable", "mythos":
		return f.known()
	case "opus", "sonnet":
		return f.known() && f.atLeast(5, 5)
	default:
		return false
	}
}

// choosesTools reports whether the model refuses a tool_choice that makes it call a
// tool.
func (f family) choosesTools() bool { return f.preserves() && f.line != "haiku" }

// samples reports whether the model takes temperature, top_p and top_k. Fable, Opus from
// 4.7 on and Sonnet from 5 on do not ("Migration guide", platform.claude.com, 2026-07),
// nor does Haiku 5.5 ("What's new in Claude Haiku 5.5", there, 2026-10).
func (f family) samples() bool {
	switch {
	case !f.known():
		return true
	case f.line == "fable", f.line == "mythos":
		return false
	case f.line == "opus":
		return !f.atLeast(4, 7)
	default:
		return !f.atLeast(5, 0)
	}
}

// fetches reports whether the model fetches pages: Claude 3.5 and later ones do ("Web
// fetch tool", platform.claude.com, 2025-09).
func (f family) fetches() bool { return f.atLeast(3, 5) }

// bare reports whether the model is asked to do without thinking in a way in which it
// must be sent no thinking either: those that check what stood before it (see
// preserves) respond to a change with an error then, since what becomes of such thinking
// can only be said together with adaptive thinking.
func (f family) bare(cfg *genai.ThinkingConfig) bool {
	t, _ := f.thinking(cfg)
	return f.preserves() && t != nil && t.Type == "disabled"
}

// binds reports whether a request says what becomes of thinking before which something has changed.
func (f family) binds(cfg *genai.ThinkingConfig) bool {
	t, _ := f.thinking(cfg)
	return f.preserves() && (t == nil || t.Type == "adaptive")
}

// withoutThoughts is a conversation without the model's thinking. What was given is
// not changed.
func withoutThoughts(contents []*genai.Content) []*genai.Content {
	out := slices.Clone(contents)
	for i, c := range out {
		if c == nil || !slices.ContainsFunc(c.Parts, isThought) {
			continue
		}
		left := *c
		left.Parts = slices.DeleteFunc(slices.Clone(c.Parts), isThought)
		out[i] = &left
	}
	return out
}

func isThought(p *genai.Part) bool { return p != nil && p.Thought }

// reads reports whether thinking of a model may be sent to this one; an unknown
// origin, "", is the same model. Signatures are of one model, and those that do not
// preserve thinking respond to any other one with an error.
func (f family) reads(origin string) bool {
	return origin == "" || f.preserves() || f == familyOf(origin)
}

// thinking is the request's thinking setting.
type thinking struct {
	Type         string        `json:"type"`
	BudgetTokens int64         `json:"budget_tokens,omitempty"`
	Display      string        `json:"display,omitempty"`
	BlockBinding *blockBinding `json:"block_binding,omitempty"`
}

// blockBinding says what becomes of thinking before which something has changed.
type blockBinding struct {
	OnMismatch string `json:"prefix_mismatch_behavior"`
}

// bindingBeta is the beta of blockBinding.
const bindingBeta = "thinking-binding-controls-2026-08-01"

// minBudget is the smallest thinking budget Anthropic takes, in tokens.
const minBudget = 1024

// thinking translates a thinking setting. Models from 4.6 on decide themselves
// how much they think, guided by an effort; a budget becomes the nearest one.
// Older ones take a budget; a level becomes one.
func (f family) thinking(cfg *genai.ThinkingConfig) (t *thinking, effort string) {
	if cfg == nil {
		return nil, ""
	}
	budget := int64(-1)
	if cfg.ThinkingBudget != nil {
		budget = int64(*cfg.ThinkingBudget)
	}
	if budget == 0 {
		return &thinking{Type: "disabled"}, ""
	}
	level := cfg.ThinkingLevel
	if !f.atLeast(4, 6) {
		if budget < 0 {
			budget = budgetOf(level)
		}
		return &thinking{Type: "enabled", BudgetTokens: max(budget, minBudget)}, ""
	}
	t = &thinking{Type: "adaptive", Display: "omitted"}
	if cfg.IncludeThoughts {
		t.Display = "summarized"
	}
	switch {
	case level == genai.ThinkingLevelMinimal, level == genai.ThinkingLevelLow:
		return t, "low"
	case level == genai.ThinkingLevelMedium:
		return t, "medium"
	case level == genai.ThinkingLevelHigh:
		return t, "high"
	case budget < 0:
		return t, ""
	case budget <= 2048:
		return t, "low"
	case budget <= 8192:
		return t, "medium"
	default:
		return t, "high"
	}
}

// budgetOf is the thinking budget of a level, in tokens.
func budgetOf(level genai.ThinkingLevel) int64 {
	switch level {
	case genai.ThinkingLevelMinimal:
		return minBudget
	case genai.ThinkingLevelLow:
		return 2048
	case genai.ThinkingLevelHigh:
		return 16_384
	default:
		return 8192
	}
}
