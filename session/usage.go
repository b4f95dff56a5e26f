package session

// Usage counts what model calls took. It means the same for every provider: Cached
// and CacheWrite are parts of Prompt, Thoughts is one of Completion, Total is Prompt
// plus Completion.
type Usage struct {
	Prompt     int64   `json:"prompt"`
	Completion int64   `json:"completion"`
	Cached     int64   `json:"cached,omitempty"`
	CacheWrite int64   `json:"cache_write,omitempty"`
	Thoughts   int64   `json:"thoughts,omitempty"`
	Total      int64   `json:"total"`
	Calls      int64   `json:"calls"`
	CostUSD    float64 `json:"cost_usd,omitempty"`
	// Unpriced are those of Calls whose price is not known: CostUSD is without them.
	Unpriced int64 `json:"unpriced,omitempty"`
}

// CountedBy returns a usage that was stored by an earlier release as it is counted
// now. Prompt and Completion were then as the provider counted: Anthropic's Prompt
// was without Cached, Gemini's Completion without Thoughts, which its Total had.
func (u Usage) CountedBy(provider string) Usage {
	if provider == "anthropic" {
		u.Prompt += u.Cached
		u.Total += u.Cached
	}
	return u.whole()
}

// whole is CountedBy a provider that is not known, and u itself if it is counted as
// today: the total says what the whole answer was, whoever counted, and cached tokens
// that cannot be a part of the prompt were counted beside it.
func (u Usage) whole() Usage {
	u.Completion = max(u.Completion, u.Total-u.Prompt)
	if u.Cached > u.Prompt {
		u.Prompt += u.Cached
	}
	u.Total = u.Prompt + u.Completion
	return u
}

// ofTries is what a record of tries that have failed says; nil for nothing. It may be
// of an earlier release.
func (u *Usage) ofTries() *Usage {
	if u == nil {
		return nil
	}
	return new(u.whole())
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Prompt:     u.Prompt + v.Prompt,
		Completion: u.Completion + v.Completion,
		Cached:     u.Cached + v.Cached,
		CacheWrite: u.CacheWrite + v.CacheWrite,
		Thoughts:   u.Thoughts + v.Thoughts,
		Total:      u.Total + v.Total,
		Calls:      u.Calls + v.Calls,
		CostUSD:    u.CostUSD + v.CostUSD,
		Unpriced:   u.Unpriced + v.Unpriced,
	}
}
