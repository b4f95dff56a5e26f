// Package fakeprovider is a provider of models for tests. It speaks the real
// wires: Anthropic's messages, Gemini's streamGenerateContent, and OpenAI's chat
// completions and responses. A test gives it a [Script], which says what each call
// is answered: text in pieces, tool calls, a refusal, events as they were recorded,
// silence, or an answer that breaks off.
//
// A [Provider] is an http.Handler; Start serves it on loopback. It is an
// http.RoundTripper as well, for tests in a bubble of fake time, which have no
// network. Only tests import it.
package fakeprovider
