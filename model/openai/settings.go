package openai

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"
)

// version is what a model's name says of the settings that it takes. A name that says nothing, such
// as that of another maker's model, is the zero value.
type version struct {
	major, minor int    // of gpt-5.2; 0 for other names
	kind         string // "mini", "pro", "codex-max", …; "" if the name has none
	o            bool   // of the o series
}

var gptName = regexp.MustCompile(`^gpt-(\d{1,3})(?:\.(\d{1,3}))?(?:-([a-z][a-z-]*[a-z]))?(?:-\d{4}-\d{2}-\d{2})?$`)
var oName = regexp.MustCompile(`^o\d(?:-|$)`)

// versionOf reads OpenAI's names, with or without a date, and fine-tuned models.
func versionOf(modelName string) version {
	modelName = strings.TrimPrefix(baseModel(modelName), "openai/")
	if oName.MatchString(modelName) {
		return version{o: true}
	}
	found := gptName.FindStringSubmatch(modelName)
	switch {
	case found == nil && strings.HasPrefix(modelName, "gpt-4o"):
		return version{major: 4}
	case found == nil:
		return version{}
	}
	v := version{kind: strings.TrimSuffix(found[3], "-latest")}
	v.major, _ = strconv.Atoi(found[1]) // the expression allows digits alone
	v.minor, _ = strconv.Atoi(found[2])
	return v
}

// atLeast reports whether the version is at least major.minor.
func (v version) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

// isFirst5 reports whether this is one of the first GPT-5 models that reason.
func (v version) isFirst5() bool { return v.major == 5 && v.minor == 0 && v.kind != "chat" }

// lowest is the least effort of reasoning that the model takes, but for none.
//
// "minimal" is for GPT-5, GPT-5 mini and GPT-5 nano alone: GPT-5.1 and GPT-5.6 respond
// to it with 400 and name what they take (openai-agents-python issue 2089, 2025-11;
// pydantic-ai issue 7081, 2026-07), GPT-6.1 begins with "low" ("GPT-6.1 Sol",
// developers.openai.com, 2026-10), and so does the o series. GPT-5 Pro takes "high"
// alone (API reference, "reasoning.effort", 2025-11).
func (v version) lowest() string {
	switch {
	case v.isFirst5() && v.kind == "pro":
		return "high"
	case v.isFirst5() && (v.kind == "" || v.kind == "mini" || v.kind == "nano"):
		return "minimal"
	default:
		return "low"
	}
}

// mustReason reports whether the model is known to refuse the effort "none": the o
// series and the first GPT-5 models (API reference, "reasoning.effort", 2025-11),
// GPT-6 Astra, GPT-6.1 Sol and GPT-6.2 Sol (their pages on developers.openai.com, read
// 2026-11-23).
func (v version) mustReason() bool {
	return v.o || v.isFirst5() || v.major == 6 && v.kind == "astra" || v.kind == "sol" && v.atLeast(6, 1)
}

// rank orders the efforts of requests.
var rank = map[string]int{"none": 0, "minimal": 1, "low": 2, "medium": 3, "high": 4}

// effort is the setting of a thinking configuration for the model, "" if there is
// none: what is below the least that the model takes is that.
func (l *llm) effort(cfg *genai.ThinkingConfig) (string, error) {
	effort, v := effortOf(cfg), versionOf(l.model)
	switch {
	case effort == "":
		return "", nil
	case effort != "none":
		if lowest := v.lowest(); rank[effort] < rank[lowest] {
			return lowest, nil
		}
	case v.mustReason() && isFirstParty(l.cfg.BaseURL):
		return "", l.invalid("%s cannot do without reasoning: leave out the budget of 0, or ask for an effort", l.model)
	}
	return effort, nil
}

// samples reports whether the model takes temperature and top_p with this effort, ""
// for its default.
//
// The o series and the first GPT-5 models never do; from GPT-5.1 on models do with
// the effort "none" alone ("Using GPT-5.2", "GPT-5.2 parameter compatibility",
// platform.openai.com, 2025-12; "Deployment checklist", developers.openai.com,
// 2026-10), which is the default up to GPT-5.5 and of no later model ("Using GPT-6",
// developers.openai.com, 2026-11).
func (v version) samples(effort string) bool {
	switch {
	case v.o, v.isFirst5():
		return false
	case v.major == 5 && v.minor == 0, !v.atLeast(5, 0): // GPT-5 chat, GPT-4, other makers' models
		return true
	case v.atLeast(5, 6):
		return effort == "none"
	default:
		return effort == "none" || effort == "" && !strings.Contains(v.kind, "codex") && v.kind != "pro"
	}
}

// sampling returns the temperature and top_p of a request, and refuses those that
// OpenAI is known to refuse. Those that say what holds anyway are left out then.
func (l *llm) sampling(cfg *genai.GenerateContentConfig, effort string) (temperature, topP *float64, err error) {
	if !isFirstParty(l.cfg.BaseURL) || versionOf(l.model).samples(effort) {
		return widen(cfg.Temperature), widen(cfg.TopP), nil
	}
	if cfg.Temperature != nil && *cfg.Temperature != 1 || cfg.TopP != nil && *cfg.TopP != 1 {
		return nil, nil, l.invalid("%s takes no Temperature and TopP while it reasons", l.model)
	}
	return nil, nil, nil
}

// spans are how long OpenAI keeps prompts of the model, if that can be asked for: five
// minutes is its default. GPT-4.1, GPT-5 and later models without "mini", "nano" and
// "pro" keep them for a day ("Prompt caching", "Extended prompt cache retention",
// developers.openai.com, 2026-07); GPT-5.6 and later ones keep all for 30 minutes and
// supersede that setting with another one (async-openai 0.42 after the API's own
// description, prompt_cache_options, 2026-10).
func (v version) spans() []time.Duration {
	const long = 24 * time.Hour
	small := v.kind == "mini" || v.kind == "nano" || v.kind == "pro"
	switch {
	case v.atLeast(5, 6):
		return []time.Duration{30 * time.Minute}
	case v.atLeast(5, 0) && !small, v.major == 4 && v.minor == 1 && !small:
		return []time.Duration{5 * time.Minute, long}
	case v.major > 0, v.o:
		return []time.Duration{5 * time.Minute}
	default: // a name that says nothing
		return []time.Duration{5 * time.Minute, long}
	}
}
