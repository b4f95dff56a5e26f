package client

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// Usage is what model calls took. It means the same for every provider.
type Usage struct {
	// PromptTokens are those of the whole requests. CachedTokens of them were read from a
	// provider's cache, and CacheWriteTokens written into it.
	PromptTokens, CachedTokens, CacheWriteTokens int64
	// CompletionTokens are those of the whole responses. ThoughtsTokens of them are the
	// models' thinking, where their providers say so.
	CompletionTokens, ThoughtsTokens int64
	// TotalTokens is PromptTokens plus CompletionTokens.
	TotalTokens int64
	// ModelCalls is how many tries of calls said what they took.
	ModelCalls int64
	// CostUSD is what those of ModelCalls whose price is known cost, in US dollars at the
	// server's price table; nil when no price is known of any.
	CostUSD *float64
	// UnpricedCalls is how many of ModelCalls have no known price: unless it is 0, the
	// whole cost is not known.
	UnpricedCalls int64
}

// UsageOf translates the usage of a message, such as that of a Turn or a Session; nil
// for nil.
func UsageOf(u *agentdv1.Usage) *Usage {
	if u == nil {
		return nil
	}
	out := &Usage{
		PromptTokens:     u.GetPromptTokens(),
		CachedTokens:     u.GetCachedTokens(),
		CacheWriteTokens: u.GetCacheWriteTokens(),
		CompletionTokens: u.GetCompletionTokens(),
		ThoughtsTokens:   u.GetThoughtsTokens(),
		TotalTokens:      u.GetTotalTokens(),
		ModelCalls:       u.GetModelCalls(),
		UnpricedCalls:    u.GetUnpricedCalls(),
	}
	if u.CostUsd != nil {
		out.CostUSD = new(u.GetCostUsd())
	}
	return out
}

// usageOfEnd is nil where the server sent none. Its counts are at most 2,147,483,647.
func usageOfEnd(s *agentdv1.UsageSummary) *Usage {
	if s == nil {
		return nil
	}
	tokens := s.GetTotalUsage()
	out := &Usage{
		PromptTokens:     int64(tokens.GetPromptTokens()),
		CachedTokens:     int64(tokens.GetCachedTokens()),
		CacheWriteTokens: int64(tokens.GetCacheWriteTokens()),
		CompletionTokens: int64(tokens.GetCompletionTokens()),
		ThoughtsTokens:   int64(tokens.GetThoughtsTokens()),
		TotalTokens:      int64(tokens.GetTotalTokens()),
		ModelCalls:       int64(s.GetLlmCalls()),
		UnpricedCalls:    int64(s.GetUnpricedCalls()),
	}
	if out.UnpricedCalls == 0 || out.UnpricedCalls < out.ModelCalls {
		out.CostUSD = new(s.GetEstimatedCost())
	}
	return out
}
