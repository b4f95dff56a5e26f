package model

import "github.com/apzuk3/agentd/internal/seam"

// maxTokens bounds each count of one call: what a provider says beyond that cannot be.
const maxTokens = 1<<31 - 1

// Usage counts the tokens of a call. It means the same for every provider: adapters
// translate what theirs reports, whose own numbers are in the raw payload.
type Usage struct {
	// Prompt is all that was asked: with everything that came before, with what was
	// read from a cache or written into one, and with what tools of the provider have
	// added. It is the length of one prompt, but for an answer that tells of such tools,
	// in Response.Provided or by a part: there it may be the sum over all times that the
	// provider has read the prompt.
	Prompt int64
	// Completion is all that the model has written, with what it thought.
	Completion int64
	// Cached is the part of Prompt that was read from the provider's cache.
	Cached int64
	// CacheWrite is the part of Prompt that was written into the provider's cache,
	// where it says so. Some count as written what they have read, too.
	CacheWrite int64
	// Thoughts is the part of Completion that the model thought, where the provider
	// says so.
	Thoughts int64
	// Total is Prompt plus Completion.
	Total int64

	// cacheWriteHour is the part of CacheWrite that the provider keeps for an hour; only
	// package seam reads and sets it.
	cacheWriteHour int64
}

func init() {
	seam.Hour = func(usage any) *int64 { return &usage.(*Usage).cacheWriteHour }
}

// Valid tells whether u can be: no count is below zero.
func (u Usage) Valid() bool {
	return min(u.Prompt, u.Completion, u.Cached, u.CacheWrite, u.cacheWriteHour, u.Thoughts, u.Total) >= 0
}

// Normal returns u as counts that can be. Servers that speak a provider's wire may
// count otherwise: what is said to be a part and is more than the whole was counted
// apart, and is added to it. A count below zero is none, and one above 2,147,483,647
// is that. Total follows from the others. Normal of its own result is the same.
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
