// Package modelcall surrounds one model call with what no adapter does by itself.
//
// [Wrap] composes it, from the inside out: [Guard] holds a call to its limits and a response to
// the contract of package model, whatever an adapter does; files that the model does not take
// are described in words; a [Breaker] suspends the calls of a model that keeps failing;
// [WithRetry] makes failed calls again. What the server knows of a call beside the request, its
// origin and who wants to know of tries and raw responses, travels in the context, see [Info].
//
// It knows neither which models there are, nor sessions, nor the engine, nor the protocol.
package modelcall

import "github.com/apzuk3/agentd/model"

// Wrap returns llm behind a Guard with these limits, with the files that takes refuses in words,
// with its calls suspended while it keeps failing (limits.Breaker, by circuit), and with failed
// ones made again (limits.Retry). limits.OnTry receives each try. Each try has the guard's limits to
// itself. takes may be nil.
func Wrap(llm model.LLM, circuit Circuit, takes func(model.File) error, limits Limits) model.LLM {
	llm = filterFiles(Guard(llm, limits), takes)
	if limits.Breaker != nil {
		llm = limits.Breaker.wrap(llm, circuit, limits.Retry.WithDefaults().MaxRetryAfter)
	}
	if limits.OnTry != nil {
		llm = &reporting{llm: llm, circuit: circuit, report: limits.OnTry}
	}
	return WithRetry(llm, limits.Retry)
}
