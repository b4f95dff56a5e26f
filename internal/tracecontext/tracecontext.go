// Package tracecontext is a part of agentd, not an API: the trace that a request, a turn or a tool call is part of, in
// the text forms of W3C's Trace Context. It makes no spans, and knows nothing of who does.
package tracecontext

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the header of HTTP, in lower case, that names the span above.
const Header = "traceparent"

// StateHeader is the header that goes with it.
const StateHeader = "tracestate"

const (
	// maxState bounds a tracestate, in bytes: what W3C has everybody pass on. A longer one is left out.
	maxState = 512
	// traceIDAt and spanIDAt are where the ids stand in a traceparent, and flagsAt its flags.
	traceIDAt, spanIDAt, flagsAt = 3, 36, 53
)

// Context is a place in a trace. The zero value is in none. It is written into logs.
type Context struct {
	// Parent is a traceparent: it names the trace, and the span below which others are.
	Parent string `json:"traceparent"`
	// State is the tracestate that belongs to it.
	State string `json:"tracestate,omitempty"`
	// Spans is true where this server exports spans of the work, so that what it asks of others is below them.
	Spans bool `json:"spans,omitempty"`
}

// Parse returns the place that a traceparent and a tracestate name, the latter in one or more parts; it is zero for a
// wrong traceparent.
func Parse(parent string, states ...string) Context {
	if parent == "" {
		return Context{}
	}
	state := strings.Join(states, ",")
	if len(state) > maxState {
		state = ""
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{Header: parent, StateHeader: state})
	return From(trace.SpanContextFromContext(ctx))
}

// From returns the place of a span; it is zero for one that is not valid.
func From(span trace.SpanContext) Context {
	if !span.IsValid() {
		return Context{}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return Context{Parent: carrier[Header], State: carrier[StateHeader]}
}

// SpanContext returns the span that others are below; it is not valid for the zero value.
func (c Context) SpanContext() trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{Header: c.Parent, StateHeader: c.State})
	return trace.SpanContextFromContext(ctx)
}

// TraceID returns the id of the trace, in hexadecimal; "" for none.
func (c Context) TraceID() string {
	if len(c.Parent) < spanIDAt {
		return ""
	}
	return c.Parent[traceIDAt : spanIDAt-1]
}

// SpanID returns the id of the span of this name within the trace. The same names have the same ids, so that a span
// that begins before a restart and ends after it is one.
func (c Context) SpanID(name ...string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{c.TraceID()}, name...), "\x00")))
	copy(id[:], sum[:])
	return id
}

// Below returns the place below the span of a name. Without spans of this server it is c: whoever goes on is below the
// span that asked for the work.
func (c Context) Below(name ...string) Context {
	if !c.Spans || len(c.Parent) < flagsAt {
		return c
	}
	id := c.SpanID(name...)
	c.Parent = c.Parent[:spanIDAt] + hex.EncodeToString(id[:]) + c.Parent[flagsAt-1:]
	return c
}

// Untraced returns a context in which libraries that make spans of their own make none that is exported, as long as the
// program samples by what is above a span, which is OpenTelemetry's default: the engine's spans hold arguments and
// results of tools.
func Untraced(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	}))
}

type key struct{}

// With returns a context of work at this place.
func With(ctx context.Context, c Context) context.Context { return context.WithValue(ctx, key{}, c) }

// In returns the place of the work of a context.
func In(ctx context.Context) Context {
	c, _ := ctx.Value(key{}).(Context)
	return c
}
