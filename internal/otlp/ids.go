package otlp

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

// ids makes random ids, but for spans whose context says which they have.
type ids struct{}

type spanIDKey struct{}

// withID returns a context in which the next span has this id.
func withID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, spanIDKey{}, id)
}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (id trace.TraceID, _ trace.SpanID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if id, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return id
	}
	_, _ = rand.Read(id[:])
	return id
}
