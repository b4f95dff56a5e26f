// Package otlp is a part of agentd, not an API: what a daemon tells an OpenTelemetry collector, in OTLP over HTTP.
//
// # Spans
//
// A turn is one trace: the call that started it, the turn, its agents, each try of a model call, and its tool calls.
// The spans of turns, agents and tool calls are made of the session's log, when the record that ends them is durable,
// with the times of the records. Their ids follow from the trace, the turn and what they are of. So a turn that goes on
// after a restart, in another process too, goes on with its trace, and a span that began in one process ends in
// another. Spans are a view of the log, and no more durable than any: those that wait for their export when a process
// dies are lost.
//
// The trace of a turn is in its first record. Clients name theirs in the headers of W3C's Trace Context, and get the
// span of a tool call in ToolCallRequest. A turn of a trace that is not sampled has no spans.
//
// Names and attributes are those of the GenAI semantic conventions, version 1.41, or begin with "agentd". No span holds
// what is said: neither prompts, nor text of models, nor arguments and results of tools.
//
// # Metrics
//
// They are those of package telemetry, as Prometheus has them, and the GenAI conventions' own.
//
// # Bounds
//
// Spans wait for their export in a queue of 2,048; what is beyond it is dropped. A call waits for neither.
package otlp
