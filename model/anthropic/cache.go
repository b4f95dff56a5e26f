package anthropic

import (
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
	if n := len(r.Tools); n > 0 {
		switch t := r.Tools[n-1].(type) {
		case tool:
			t.CacheControl = mark
			r.Tools[n-1] = t
		case searchTool:
			t.CacheControl = mark
			r.Tools[n-1] = t
		}
	}
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
