// Package remote runs agents on backends: other servers that hold a session, call a model, and ask for the results of
// tools. It is not for users of agentd.
//
// A Driver speaks the protocol of one kind of backend. Exchange gives a backend a message or results, and reads what
// follows up to the next boundary, in one form for all kinds: a connection that breaks is made again, what was read
// before is not read twice, and nothing is sent that the backend has already. The packages below this one are the
// drivers.
//
// This package knows neither the engine, nor logs, nor the file in which an operator names backends. It starts no
// goroutine; its functions may be called from any.
package remote
