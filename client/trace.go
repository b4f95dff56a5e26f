package client

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// w3c is the form in which traces travel, both ways.
var w3c propagation.TraceContext

// tracer makes spans with what the program has set for all of OpenTelemetry. Without that they are none.
func tracer() trace.Tracer { return otel.Tracer("github.com/apzuk3/agentd/client") }

// traced sends the trace of a request's context, as W3C's Trace Context has it. A header that the caller has set stays.
type traced struct{ connect.HTTPClient }

// Do implements connect.HTTPClient.
func (t traced) Do(req *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(req.Context()).IsValid() && req.Header.Get("Traceparent") == "" {
		req = req.WithContext(req.Context()) // a copy: the request is not ours
		req.Header = req.Header.Clone()
		w3c.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	}
	return t.HTTPClient.Do(req)
}

// CloseIdleConnections closes those of the client below.
func (t traced) CloseIdleConnections() {
	if closer, ok := t.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// runSpan makes a span of a run, on as many streams as it takes; end ends it with what the run has failed with, if it
// has.
func runSpan(ctx context.Context) (_ context.Context, end func(error)) {
	ctx, span := tracer().Start(ctx, "agentd.v1.Agentd/Run", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("rpc.system.name", "connectrpc"),
			attribute.String("rpc.method", "agentd.v1.Agentd/Run")))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(attribute.String("error.type", typeOf(err)))
		}
		span.End()
	}
}

// toolSpan makes a span of a tool call, below the server's span of it if that says which one it is. No span holds
// arguments or results.
func toolSpan(
	ctx context.Context, req *agentdv1.RunResponse_ToolCallRequest,
) (_ context.Context, end func(*agentdv1.RunRequest_ToolCallResponse)) {
	ctx = w3c.Extract(ctx, propagation.MapCarrier{
		"traceparent": req.GetTraceparent(), "tracestate": req.GetTracestate(),
	})
	ctx, span := tracer().Start(ctx, "execute_tool "+req.GetToolName(), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", req.GetToolName()),
		attribute.String("gen_ai.tool.call.id", req.GetToolCallId()), attribute.String("gen_ai.tool.type", "function"),
		attribute.String("gen_ai.conversation.id", req.GetSessionId())))
	return ctx, func(msg *agentdv1.RunRequest_ToolCallResponse) {
		if msg.GetError() != "" {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(attribute.String("error.type", "tool_error"))
		}
		span.End()
	}
}

// typeOf names what a run has failed with.
func typeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Code != 0 {
		return agentdv1.ErrorCode(e.Code).String()
	}
	return "canceled"
}
