package record

import "github.com/apzuk3/agentd/model"

// Usage is model.Usage.
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

// recount has the usage of a line of an earlier form mean what model.Usage does.
// There Anthropic's prompt was without what was cached, and Gemini's answer without
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
	*u = Usage(model.Usage(*u).Normal())
}
