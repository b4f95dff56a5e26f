package model

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// PricesDate is the day on which the prices below were last compared with the
// providers' price lists.
const PricesDate = "2026-07-24"

// Price is what tokens cost, in US dollars per million.
type Price struct {
	// Input and Cached are of the prompt, Output of the answer.
	Input, Cached, Output float64
}

// price is the standard price of a model family, for text.
type price struct {
	Price
	// long applies to the whole call when its prompt has more than longFrom
	// tokens; longFrom 0 means there is no such step.
	longFrom int64
	long     Price
}

// accounting is how a provider counts tokens.
type accounting struct {
	// cachedInPrompt is true when Usage.Prompt includes Usage.Cached.
	cachedInPrompt bool
	// thoughtsInCompletion is true when Usage.Completion includes Usage.Thoughts.
	thoughtsInCompletion bool
}

var accountings = map[string]accounting{
	"gemini":    {cachedInPrompt: true},
	"openai":    {cachedInPrompt: true, thoughtsInCompletion: true},
	"anthropic": {thoughtsInCompletion: true},
}

// prices holds, by provider and family, what is known for sure. A family that
// is not here has no known price; a wrong one would be worse than none.
var prices = map[string]map[string]price{
	"gemini": {
		"gemini-2.0-flash":      flat(0.10, 0.025, 0.40),
		"gemini-2.5-pro":        {Price{1.25, 0.125, 10}, 200_000, Price{2.50, 0.25, 15}},
		"gemini-2.5-flash":      flat(0.30, 0.03, 2.50),
		"gemini-2.5-flash-lite": flat(0.10, 0.01, 0.40),
		"gemini-3-pro":          {Price{2, 0.20, 12}, 200_000, Price{4, 0.40, 18}},
		"gemini-3.1-pro":        {Price{2, 0.20, 12}, 200_000, Price{4, 0.40, 18}},
		"gemini-3-flash":        flat(0.50, 0.05, 3),
		"gemini-3.1-flash-lite": flat(0.25, 0.025, 1.50),
		"gemini-3.5-flash":      flat(1.50, 0.15, 9),
	},
	"anthropic": {
		"claude-3-haiku":    flat(0.25, 0.03, 1.25),
		"claude-3-5-haiku":  flat(0.80, 0.08, 4),
		"claude-3-5-sonnet": flat(3, 0.30, 15),
		"claude-3-7-sonnet": flat(3, 0.30, 15),
		"claude-3-opus":     flat(15, 1.50, 75),
		"claude-haiku-4-5":  flat(1, 0.10, 5),
		"claude-sonnet-4":   flat(3, 0.30, 15),
		"claude-sonnet-4-0": flat(3, 0.30, 15),
		"claude-sonnet-4-5": flat(3, 0.30, 15),
		"claude-sonnet-4-6": flat(3, 0.30, 15),
		"claude-opus-4":     flat(15, 1.50, 75),
		"claude-opus-4-0":   flat(15, 1.50, 75),
		"claude-opus-4-1":   flat(15, 1.50, 75),
		"claude-opus-4-5":   flat(5, 0.50, 25),
		"claude-opus-4-6":   flat(5, 0.50, 25),
		"claude-opus-4-7":   flat(5, 0.50, 25),
	},
	"openai": {
		"gpt-4o":            flat(2.50, 1.25, 10),
		"gpt-4o-2024-05-13": flat(5, 5, 15),
		"gpt-4o-mini":       flat(0.15, 0.075, 0.60),
		"gpt-4.1":           flat(2, 0.50, 8),
		"gpt-4.1-mini":      flat(0.40, 0.10, 1.60),
		"gpt-4.1-nano":      flat(0.10, 0.025, 0.40),
		"gpt-5":             flat(1.25, 0.125, 10),
		"gpt-5-chat":        flat(1.25, 0.125, 10),
		"gpt-5-codex":       flat(1.25, 0.125, 10),
		"gpt-5-mini":        flat(0.25, 0.025, 2),
		"gpt-5-nano":        flat(0.05, 0.005, 0.40),
		"gpt-5-pro":         flat(15, 15, 120),
		"gpt-5.1":           flat(1.25, 0.125, 10),
		"gpt-5.1-codex":     flat(1.25, 0.125, 10),
		"gpt-5.2":           flat(1.75, 0.175, 14),
		"gpt-5.2-codex":     flat(1.75, 0.175, 14),
		"gpt-5.4":           {Price{2.50, 0.25, 15}, 272_000, Price{5, 0.50, 22.50}},
		"gpt-5.4-mini":      flat(0.75, 0.075, 4.50),
		"gpt-5.4-nano":      flat(0.20, 0.02, 1.25),
		"gpt-5.5":           {Price{5, 0.50, 30}, 272_000, Price{10, 1, 45}},
		"o1":                flat(15, 7.50, 60),
		"o1-pro":            flat(150, 150, 600),
		"o3":                flat(2, 0.50, 8),
		"o3-mini":           flat(1.10, 0.55, 4.40),
		"o3-pro":            flat(20, 20, 80),
		"o4-mini":           flat(1.10, 0.275, 4.40),
	},
}

func flat(input, cached, output float64) price {
	return price{Price: Price{input, cached, output}}
}

// versionSuffix is what may follow a family in the name of one of its models: a
// date or a revision, a preview, an alias. Anything else is another family.
var versionSuffix = regexp.MustCompile(`^([-@]\d{3,}[-\d]*|[-@](latest|preview|exp)(-\d\d-\d{2,4})?)?$`)

// Cost returns the price in US dollars of a call of usage u, at the standard
// rates of PricesDate; known is false when the model's price is not. A family
// matches its own name and that name with a version behind it, the longest one
// first. What a provider bills beside tokens (searches, storage, writing a
// cache) is not in it. Providers that run here cost nothing.
func Cost(provider, model string, u Usage) (usd float64, known bool) {
	if provider == "scripted" || provider == "echo" {
		return 0, true
	}
	provider = cmp.Or(families[provider], provider)
	p, ok := findPrice(prices[provider], strings.TrimPrefix(model, "models/"))
	if !ok {
		return 0, false
	}
	acc := accountings[provider]
	fresh, all := u.Prompt, u.Prompt+u.Cached
	if acc.cachedInPrompt {
		fresh, all = max(u.Prompt-u.Cached, 0), u.Prompt
	}
	output := u.Completion
	if !acc.thoughtsInCompletion {
		output += u.Thoughts
	}
	r := p.Price
	if p.longFrom > 0 && all > p.longFrom {
		r = p.long
	}
	const million = 1e6
	return (float64(fresh)*r.Input + float64(u.Cached)*r.Cached + float64(output)*r.Output) / million, true
}

// ListPrice returns what the tokens of a model cost by the rules of Cost; of a
// model that costs more with a long prompt it is the price of a short one.
func ListPrice(provider, model string) (p Price, known bool) {
	if provider == "scripted" || provider == "echo" {
		return Price{}, true
	}
	found, known := findPrice(prices[cmp.Or(families[provider], provider)], strings.TrimPrefix(model, "models/"))
	return found.Price, known
}

// findPrice returns the price of the longest family that model belongs to.
func findPrice(families map[string]price, model string) (price, bool) {
	for n := len(model); n > 0; n-- {
		if p, ok := families[model[:n]]; ok && versionSuffix.MatchString(model[n:]) {
			return p, true
		}
	}
	return price{}, false
}

// knownModels are the families of a provider whose price is known, sorted: a
// list to choose from, not of all that the provider serves.
func knownModels(provider string) []string {
	return slices.Sorted(maps.Keys(prices[provider]))
}
