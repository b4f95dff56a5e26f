package adkbridge

import (
	"context"
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// keepUsage keeps the usage of a failed call, all of its tries, until the agent makes
// another call or the turn is closed, and reports whether there is any.
func (m *agentModel) keepUsage(err error, branch string, call *record.CallInfo) bool {
	info := &meta{Path: m.n.path, Call: call}
	info.Usage, info.Before = m.splitUsage(modelcall.Took(err))
	m.recorded, m.reported = record.Usage{}, 0 // it is kept
	if info.Usage.Calls == 0 && info.Before == nil {
		return false
	}
	m.t.keepCallEnd(&response{author: m.n.name, branch: branch, content: &genai.Content{Role: genai.RoleModel},
		meta: info})
	return true
}

// keepCallEnd keeps the end of a model call until it is reported.
func (t *turn) keepCallEnd(a *response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreported = append(t.unreported, a)
}

// reportUsage appends what is kept of an agent's calls on a branch.
func (t *turn) reportUsage(ctx context.Context, agent, branch string) error {
	var all []*response
	t.mu.Lock()
	t.unreported = slices.DeleteFunc(t.unreported, func(a *response) bool {
		own := a.author == agent && a.branch == branch
		if own {
			all = append(all, a)
		}
		return own
	})
	t.mu.Unlock()
	for i, a := range all {
		ev := t.newEvent(ctx, a.author, a.branch)
		ev.Content = a.content
		if err := t.commit(ctx, ev, a.meta); err != nil {
			t.mu.Lock()
			t.unreported = append(t.unreported, all[i:]...)
			t.mu.Unlock()
			return err
		}
	}
	return nil
}

// splitUsage returns the usage of a call's tries: what the log does not hold yet, and
// what it holds, nil for nothing.
func (m *agentModel) splitUsage(tries []model.Usage) (usage, before *record.Usage) {
	if m.recorded.Calls > 0 {
		before = new(m.recorded)
	}
	return m.usage(tries), before
}

// usage sums up the tries of a call that the log does not hold yet. It leaves out
// counts that cannot be true.
func (m *agentModel) usage(tries []model.Usage) *record.Usage {
	sum := &record.Usage{}
	for _, u := range tries[min(m.reported, len(tries)):] {
		if u.Valid() {
			*sum = sum.Add(*m.price(u))
		}
	}
	return sum
}

// price returns the usage of one try with its cost.
func (m *agentModel) price(u model.Usage) *record.Usage {
	one := &record.Usage{
		Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached, CacheWrite: u.CacheWrite,
		Thoughts: u.Thoughts, Total: u.Total, Calls: 1,
	}
	if m.n.model.Cost != nil {
		one.Cost = m.n.model.Cost(u)
	} else {
		one.Unpriced = 1
	}
	return one
}

// usageMetadata returns usage in the form of ADK's telemetry.
func usageMetadata(u *record.Usage) *genai.GenerateContentResponseUsageMetadata {
	if u == nil {
		return nil
	}
	n := func(v int64) int32 { return int32(min(v, 1<<31-1)) }
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount:        n(u.Prompt),
		CandidatesTokenCount:    n(u.Completion),
		CachedContentTokenCount: n(u.Cached),
		ThoughtsTokenCount:      n(u.Thoughts),
		TotalTokenCount:         n(u.Total),
	}
}
