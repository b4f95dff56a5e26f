package model

import "github.com/apzuk3/agentd/internal/seam"

// maxTokens bounds each count of one call; a provider that reports more is wrong.
const maxTokens = 1<<31 - 1

// Usage counts the tokens of a call. It means the same for every provider: adapters translate the
// provider's own numbers, which the raw payload still has.
type Usage struct {
	// Prompt counts the whole prompt: the history, what was read from a cache or written into one,
	// and what tools of the provider added. It is the length of one prompt, except for a response
	// that such tools took part in (Response.Provided, or a part of Content): there it may be the
	// sum over all times that the provider read the prompt.
	Prompt int64
	// Completion counts all that the model wrote, including its thoughts.
	Completion int64
	// Cached is the part of Prompt that was read from the provider's cache.
	Cached int64
	// CacheWrite is the part of Prompt that was written into the provider's cache, where the
	// provider reports it. Some providers also count what was read as written.
	CacheWrite int64
	// Thoughts is the part of Completion that the model thought, where the provider reports it.
	Thoughts int64
	// Total is Prompt plus Completion.
	Total int64

	// cacheWriteHour is the part of CacheWrite that the provider keeps for an hour; only
	// package seam reads and sets it.
	cacheWriteHour int64
}

func init() { //nolint:gochecknoinits // package seam reaches the field through this alone
	seam.Hour = func(usage any) *int64 { return &usage.(*Usage).cacheWriteHour }
}

// Valid reports whether no count of u is below zero.
func (u Usage) Valid() bool {
	return min(u.Prompt, u.Completion, u.Cached, u.CacheWrite, u.cacheWriteHour, u.Thoughts, u.Total) >= 0
}

// Normal returns u with counts that are consistent. Servers that speak a provider's wire may count
// in another way: a part that exceeds its whole was counted apart, and is added to it. A count
// below zero becomes 0, one above 2,147,483,647 becomes that. Total follows from the others. Normal
// of its own result is the same.
func (u Usage) Normal() Usage {
	bound := func(counts ...*int64) {
		for _, n := range counts {
			*n = min(max(*n, 0), maxTokens)
		}
	}
	bound(&u.Prompt, &u.Completion, &u.Cached, &u.CacheWrite, &u.cacheWriteHour, &u.Thoughts)
	if u.Cached > u.Prompt {
		u.Prompt += u.Cached
	}
	if u.CacheWrite > u.Prompt {
		u.Prompt += u.CacheWrite
	}
	if u.Thoughts > u.Completion {
		u.Completion += u.Thoughts
	}
	bound(&u.Prompt, &u.Completion)
	u.cacheWriteHour = min(u.cacheWriteHour, u.CacheWrite)
	u.Total = u.Prompt + u.Completion
	return u
}
