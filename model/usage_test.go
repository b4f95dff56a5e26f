package model_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// TestNormalUsage: what cannot be a part of the whole is added to it, and nothing is
// below zero or beyond an int32.
func TestNormalUsage(t *testing.T) {
	const most = 1<<31 - 1
	for name, c := range map[string]struct{ in, want model.Usage }{
		"none":              {model.Usage{}, model.Usage{}},
		"as it should be":   {seam.WithCacheWriteHour(model.Usage{Prompt: 10, Cached: 4, CacheWrite: 6, Completion: 5, Thoughts: 5, Total: 15}, 1), seam.WithCacheWriteHour(model.Usage{Prompt: 10, Cached: 4, CacheWrite: 6, Completion: 5, Thoughts: 5, Total: 15}, 1)},
		"another total":     {model.Usage{Prompt: 10, Completion: 5, Total: 99}, model.Usage{Prompt: 10, Completion: 5, Total: 15}},
		"cached apart":      {model.Usage{Prompt: 10, Cached: 11}, model.Usage{Prompt: 21, Cached: 11, Total: 21}},
		"written apart":     {model.Usage{Prompt: 10, CacheWrite: 11}, model.Usage{Prompt: 21, CacheWrite: 11, Total: 21}},
		"read and written":  {model.Usage{Prompt: 10, Cached: 9, CacheWrite: 9}, model.Usage{Prompt: 10, Cached: 9, CacheWrite: 9, Total: 10}},
		"thoughts apart":    {model.Usage{Completion: 3, Thoughts: 4}, model.Usage{Completion: 7, Thoughts: 4, Total: 7}},
		"an hour too long":  {seam.WithCacheWriteHour(model.Usage{Prompt: 9, CacheWrite: 3}, 4), seam.WithCacheWriteHour(model.Usage{Prompt: 9, CacheWrite: 3, Total: 9}, 3)},
		"below zero":        {seam.WithCacheWriteHour(model.Usage{Prompt: -1, Cached: -1, CacheWrite: -1, Completion: 2, Thoughts: -1, Total: -9}, -1), model.Usage{Completion: 2, Total: 2}},
		"more than can be":  {model.Usage{Prompt: 1 << 62, Completion: 1 << 62}, model.Usage{Prompt: most, Completion: most, Total: 2 * most}},
		"cached beyond all": {model.Usage{Prompt: most - 1, Cached: most}, model.Usage{Prompt: most, Cached: most, Total: most}},
	} {
		if got := c.in.Normal(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 20), rapid.Int64Range(most-5, most+5))
		u := seam.WithCacheWriteHour(model.Usage{
			Prompt: count.Draw(t, "prompt"), Completion: count.Draw(t, "completion"), Cached: count.Draw(t, "cached"), CacheWrite: count.Draw(t, "write"),
			Thoughts: count.Draw(t, "thoughts"), Total: count.Draw(t, "total"),
		}, count.Draw(t, "hour")).Normal()
		if !u.Valid() || u.Cached > u.Prompt || u.CacheWrite > u.Prompt || seam.CacheWriteHour(u) > u.CacheWrite || u.Thoughts > u.Completion ||
			max(u.Prompt, u.Completion) > most || u.Total != u.Prompt+u.Completion || u.Normal() != u {
			t.Fatalf("%+v cannot be", u)
		}
	})
}
