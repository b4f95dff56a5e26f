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

// newMark is the mark that is asked for, nil for none.
func newMark(c *model.Cache) (*cacheControl, error) {
	if c == nil {
		return nil, nil
	}
	span, err := c.Span(name, 5*time.Minute, time.Hour)
	if err != nil {
		return nil, err
	}
	mark := &cacheControl{Type: "ephemeral"}
	if span == time.Hour {
		mark.TTL = "1h"
	}
	return mark, nil
}

// maxMarks bounds the marks in the conversation. What the next call begins with too is
// marked: the tools, the instructions, and the conversation up to its newest message. What
// was the newest one in the call before is marked again, since Anthropic looks back from a
// mark over 20 blocks only.
const maxMarks = 2

// setCache marks the tools and the instructions; mark may be nil.
func (r *request) setCache(mark *cacheControl) {
	if mark == nil {
		return
	}
	r.markTools(mark)
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = mark
	}
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
