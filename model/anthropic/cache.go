package anthropic

import (
	"slices"
	"time"

	"github.com/apzuk3/agentd/model"
)

// cacheControl marks the end of a part of the prompt that Anthropic keeps. A
// request may have four of them.
type cacheControl struct {
	Type string `json:"type"`
	// TTL is "1h", or "" for five minutes.
	TTL string `json:"ttl,omitempty"`
}

// setCache marks what the next call begins with too: the tools, the instructions,
// and the conversation up to its newest message. What was the newest one in the
// call before is marked again, since Anthropic looks back from a mark over 20
// blocks only.
func (r *request) setCache(c *model.Cache) error {
	if c == nil {
		return nil
	}
	span, err := c.Span(name, 5*time.Minute, time.Hour)
	if err != nil {
		return err
	}
	mark := &cacheControl{Type: "ephemeral"}
	if span == time.Hour {
		mark.TTL = "1h"
	}
	r.markTools(mark)
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = mark
	}
	left := 2
	for i := len(r.Messages) - 1; i >= 0 && left > 0; i-- {
		if m := r.Messages[i]; m.Role == "user" {
			m.Content[len(m.Content)-1].CacheControl = mark
			left--
		}
	}
	return nil
}

// markTools marks the last tool that the prompt begins with: one that is deferred
// is not there, and Anthropic refuses a mark on it.
func (r *request) markTools(mark *cacheControl) {
	for i, t := range slices.Backward(r.Tools) {
		switch t := t.(type) {
		case tool:
			if t.Deferred {
				continue
			}
			t.CacheControl = mark
			r.Tools[i] = t
		case serverTool:
			t.CacheControl = mark
			r.Tools[i] = t
		}
		return
	}
}
