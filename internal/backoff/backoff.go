// Package backoff computes the waits between attempts that fail one after the other. It
// is not for users of agentd.
//
// It imports nothing of agentd. Its functions may be called from any goroutine.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bound returns base·2ⁿ, at most limit. n counts failed attempts from 0.
func Bound(base, limit time.Duration, n int) time.Duration {
	if n < 62 && base <= limit>>n {
		return base << n
	}
	return limit
}

// Full returns a random time below Bound ("full jitter"): callers that fail together do
// not come back together.
func Full(base, limit time.Duration, n int) time.Duration {
	return rand.N(max(Bound(base, limit, n), 1))
}

// Half returns a random time from half of Bound up to Bound.
func Half(base, limit time.Duration, n int) time.Duration {
	half := Bound(base, limit, n) / 2
	return half + rand.N(max(half, 1))
}

// Wait waits for d, or for the end of ctx, whose error it returns. It does not wait if d is
// not above 0.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
