package record

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// UsageOf is what a fact says that a model took; nil for nothing. What model calls took is the sum over all
// facts.
func UsageOf(fact any) *Usage {
	switch f := fact.(type) {
	case *Event:
		return f.Usage
	case *ModelRetry:
		return f.Usage.ofTries()
	case *ModelFallback:
		return f.Usage.ofTries()
	default:
		return nil
	}
}

// Usage counts what model calls took. It means the same for every provider: Cached and CacheWrite are parts
// of Prompt, Thoughts is one of Completion, Total is Prompt plus Completion.
type Usage struct {
	Prompt     int64   `json:"prompt"`
	Completion int64   `json:"completion"`
	Cached     int64   `json:"cached,omitempty"`
	CacheWrite int64   `json:"cache_write,omitempty"`
	Thoughts   int64   `json:"thoughts,omitempty"`
	Total      int64   `json:"total"`
	Calls      int64   `json:"calls"`
	Cost       NanoUSD `json:"cost_usd,omitempty"`
	// Unpriced are those of Calls whose price is not known: Cost is without them.
	Unpriced int64 `json:"unpriced,omitempty"`
}

// CountedBy returns a usage that was stored by an earlier release as it is counted now. Prompt and
// Completion were then as the provider counted: Anthropic's Prompt was without Cached, Gemini's Completion
// without Thoughts, which its Total had.
func (u Usage) CountedBy(provider string) Usage {
	if provider == "anthropic" {
		u.Prompt += u.Cached
		u.Total += u.Cached
	}
	return u.whole()
}

// whole is CountedBy a provider that is not known, and u itself if it is counted as today: the total says
// what the whole response was, whoever counted, and cached tokens that cannot be a part of the prompt were
// counted beside it.
func (u Usage) whole() Usage {
	u.Completion = max(u.Completion, u.Total-u.Prompt)
	if u.Cached > u.Prompt {
		u.Prompt = plus(u.Prompt, u.Cached)
	}
	u.Total = plus(u.Prompt, u.Completion)
	return u
}

// ofTries is what a record of tries that have failed says; nil for nothing. It may be of an earlier
// release.
func (u *Usage) ofTries() *Usage {
	if u == nil {
		return nil
	}
	return new(u.whole())
}

// Add returns the sum. What is beyond int64 stays there.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Prompt:     plus(u.Prompt, v.Prompt),
		Completion: plus(u.Completion, v.Completion),
		Cached:     plus(u.Cached, v.Cached),
		CacheWrite: plus(u.CacheWrite, v.CacheWrite),
		Thoughts:   plus(u.Thoughts, v.Thoughts),
		Total:      plus(u.Total, v.Total),
		Calls:      plus(u.Calls, v.Calls),
		Cost:       plus(u.Cost, v.Cost),
		Unpriced:   plus(u.Unpriced, v.Unpriced),
	}
}

// Proto is the protocol's form. The sums of sessions and turns may be of an earlier release.
func (u Usage) Proto() *agentdv1.Usage {
	u = u.whole()
	out := &agentdv1.Usage{
		PromptTokens:     u.Prompt,
		CompletionTokens: u.Completion,
		CachedTokens:     u.Cached,
		CacheWriteTokens: u.CacheWrite,
		ThoughtsTokens:   u.Thoughts,
		TotalTokens:      u.Total,
		ModelCalls:       u.Calls,
		UnpricedCalls:    u.Unpriced,
	}
	if u.Unpriced == 0 || u.Unpriced < u.Calls {
		out.CostUsd = new(u.Cost.Dollars())
	}
	return out
}

// Summary is the form that EndResponse has. What does not fit is cut.
func (u Usage) Summary() *agentdv1.UsageSummary {
	u = u.whole()
	return &agentdv1.UsageSummary{
		TotalUsage: &agentdv1.TokenUsage{
			PromptTokens:     clamp(u.Prompt),
			CompletionTokens: clamp(u.Completion),
			CachedTokens:     clamp(u.Cached),
			ThoughtsTokens:   clamp(u.Thoughts),
			TotalTokens:      clamp(u.Total),
			CacheWriteTokens: clamp(u.CacheWrite),
		},
		LlmCalls:      clamp(u.Calls),
		EstimatedCost: u.Cost.Dollars(),
		UnpricedCalls: clamp(u.Unpriced),
	}
}

// clamp keeps a count within the protocol's int32.
func clamp(n int64) int32 { return int32(min(max(n, 0), 1<<31-1)) }
