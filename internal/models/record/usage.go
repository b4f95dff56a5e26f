package record

import (
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// Usage is model.Usage as a line has it.
type Usage struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
	Cached     int64 `json:"cached,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	// CacheWriteHour is part of CacheWrite.
	CacheWriteHour int64 `json:"cache_write_hour,omitempty"`
	Thoughts       int64 `json:"thoughts,omitempty"`
	Total          int64 `json:"total"`
}

// usageOf returns u as a line has it.
func usageOf(u model.Usage) Usage {
	return Usage{
		Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached, CacheWrite: u.CacheWrite,
		CacheWriteHour: seam.CacheWriteHour(u), Thoughts: u.Thoughts, Total: u.Total,
	}
}

// Model returns u as package model has it.
func (u Usage) Model() model.Usage {
	return seam.WithCacheWriteHour(model.Usage{
		Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached, CacheWrite: u.CacheWrite, Thoughts: u.Thoughts,
		Total: u.Total,
	}, u.CacheWriteHour)
}

// recount has the usage of a line of an earlier form mean what model.Usage does.
// There Anthropic's prompt was without what was cached, and Gemini's response without
// its thoughts, which its total had.
func (l *Line) recount() {
	if l.Version >= 3 {
		return
	}
	if l.Response != nil {
		l.Response.Usage.recount(l.Provider)
	}
	l.Error.recount(l.Provider)
	for _, t := range l.Tries {
		t.Error.recount(l.Provider)
	}
}

func (e *Error) recount(provider string) {
	if e != nil && e.Usage != nil {
		e.Usage.recount(provider)
	}
}

func (u *Usage) recount(provider string) {
	u.Completion = max(u.Completion, u.Total-u.Prompt)
	if provider == "anthropic" {
		u.Prompt += u.Cached
	}
	*u = usageOf(u.Model().Normal())
}
