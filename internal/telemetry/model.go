package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
)

// ModelTried counts a try of a model call.
func (m *Metrics) ModelTried(ctx context.Context, t modelcall.Tried) {
	name := m.modelOf(t)
	m.measure(ctx, t, name)
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

// measure is ModelTried for the instruments of the GenAI conventions.
func (m *Metrics) measure(ctx context.Context, t modelcall.Tried, name string) {
	if m.duration.Inst() == nil {
		return
	}
	called, provider := name, genaiconv.ProviderNameAttr(other)
	if name != other {
		called, provider = t.Circuit.Model, providerOf(t.Circuit.Provider)
	}
	attrs := []attribute.KeyValue{m.duration.AttrRequestModel(called)}
	if t.Usage != (model.Usage{}) {
		u := t.Usage.Normal()
		m.usage.Record(ctx, u.Prompt, genaiconv.OperationNameChat, provider, genaiconv.TokenTypeInput, attrs...)
		m.usage.Record(ctx, u.Completion, genaiconv.OperationNameChat, provider, genaiconv.TokenTypeOutput, attrs...)
	}
	if t.Outcome != modelcall.OutcomeOK {
		attrs = append(attrs, m.duration.AttrErrorType(genaiconv.ErrorTypeAttr(t.Outcome)))
	}
	m.duration.Record(ctx, t.Took.Seconds(), genaiconv.OperationNameChat, provider, attrs...)
}

// providerOf is the conventions' name of a provider, where that is not agentd's own.
func providerOf(name string) genaiconv.ProviderNameAttr {
	if name == "gemini" {
		return genaiconv.ProviderNameGCPGemini
	}
	return genaiconv.ProviderNameAttr(name)
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
