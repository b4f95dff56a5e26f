package telemetry

import (
	"context"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
)

// ModelTried counts a try of a model call.
func (m *Metrics) ModelTried(_ context.Context, t modelcall.Tried) {
	name := m.modelOf(t)
	m.tries.WithLabelValues(name, t.Outcome).Observe(t.Took.Seconds())
	if t.Try > 1 {
		m.retries.WithLabelValues(name).Inc()
	}
	if t.Usage == (model.Usage{}) {
		return
	}
	u := t.Usage.Normal()
	for kind, n := range map[string]int64{
		"prompt": u.Prompt, "cached": u.Cached, "output": u.Completion, "thoughts": u.Thoughts,
	} {
		m.tokens.WithLabelValues(name, kind).Add(float64(n))
	}
	if !t.Priced {
		m.unpriced.WithLabelValues(name).Inc()
		return
	}
	m.cost.WithLabelValues(name).Add(float64(max(t.Nanos, 0)) / 1e9)
}

// modelOf is the label of a model. A name of which the server knows nothing, and which callers may have made up, has
// none of its own before a call of it has succeeded.
func (m *Metrics) modelOf(t modelcall.Tried) string {
	name := t.Circuit.Provider + "/" + t.Circuit.Model
	if t.Known || t.Outcome == modelcall.OutcomeOK || m.models.has(name) {
		return m.models.label(name)
	}
	return other
}
