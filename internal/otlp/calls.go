package otlp

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/tracecontext"
)

// serverFaults are the codes of calls that the server, not the caller, has to answer for.
var serverFaults = map[string]bool{
	"unknown": true, "deadline_exceeded": true, "unimplemented": true, "internal": true, "unavailable": true,
	"data_loss": true,
}

// Call makes a span of a call of a method, see server.Config.Observe. What the call starts is below it.
func (s *Spans) Call(ctx context.Context, method string) (context.Context, func(code string)) {
	above := tracecontext.In(ctx)
	_, span := s.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, above.SpanContext()), callName(method),
		trace.WithSpanKind(trace.SpanKindServer))
	if !ofFace(method) {
		span.SetAttributes(semconv.RPCSystemNameConnectrpc, semconv.RPCMethod(callName(method)))
	}
	if !span.SpanContext().IsSampled() {
		return ctx, func(string) {}
	}
	below := tracecontext.From(span.SpanContext())
	below.Spans = true
	return tracecontext.With(ctx, below), func(code string) {
		span.SetAttributes(semconv.RPCResponseStatusCode(code))
		if serverFaults[code] {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(code))
		}
		span.End()
	}
}

// callName is the method with its package; methods that there are not have one name, and so have the routes of a face.
func callName(method string) string {
	if method == "other" || ofFace(method) {
		return method
	}
	return "agentd.v1." + method
}

// ofFace reports whether a method stands for the routes of a face, which are no procedures.
func ofFace(method string) bool { return strings.HasPrefix(method, "face/") }

// providers are the names of providers in the conventions, where they are not agentd's own.
var providers = map[string]attribute.KeyValue{"gemini": semconv.GenAIProviderNameGCPGemini}

// ModelTried makes a span of a try of a model call.
func (s *Spans) ModelTried(ctx context.Context, t modelcall.Tried) {
	turn := turnOf(ctx)
	if turn == nil {
		return
	}
	info, end := modelcall.From(ctx), time.Now()
	provider, ok := providers[t.Circuit.Provider]
	if !ok {
		provider = semconv.GenAIProviderNameKey.String(t.Circuit.Provider)
	}
	attrs := []attribute.KeyValue{
		semconv.GenAIOperationNameChat, provider, semconv.GenAIRequestModel(t.Circuit.Model),
		semconv.GenAIConversationID(info.Session), attribute.String("agentd.turn.id", info.Turn),
		attribute.String("agentd.message.id", info.MessageID), attribute.Int("agentd.try", t.Try),
	}
	if u := t.Usage.Normal(); u.Total > 0 {
		attrs = append(attrs,
			semconv.GenAIUsageInputTokens(int(u.Prompt)), semconv.GenAIUsageCacheReadInputTokens(int(u.Cached)),
			semconv.GenAIUsageOutputTokens(int(u.Completion)),
			semconv.GenAIUsageReasoningOutputTokens(int(u.Thoughts)))
	}
	if t.Priced {
		attrs = append(attrs, attribute.Float64("agentd.cost_usd", float64(t.Nanos)/1e9))
	}
	made := spanOf{
		name: "chat " + t.Circuit.Model, kind: trace.SpanKindClient, above: turn.aboveModel(info.Path),
		began: end.Add(-t.Took), ended: end, attributes: attrs,
	}
	if t.Outcome != modelcall.OutcomeOK {
		made.failed = t.Outcome
	}
	s.emit(made)
}
