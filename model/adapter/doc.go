// Package adapter is what adapters of model providers share. It helps to implement model.Provider
// for a provider with an HTTP API; nothing obliges an adapter to use it.
//
// # Writing an adapter
//
// An adapter is a model.Provider: it says what it is (Describe) and opens models by name (Open).
// A model is a model.LLM: it makes one call (Generate). The server does the rest: it makes failed
// calls again, ends those that take too long or are silent, bounds and checks responses, counts
// their cost, and never hands an adapter a request that another goroutine changes.
//
// Describe returns at least a Name; its models are then "name/…". KeyVariables, Secrets and
// Endpoint keep keys out of logs and name them in messages. Catalog lists prices, without
// which no budget in money holds.
//
// Open takes the caller's key, or the server's if that is "", and returns Describe().MissingKey() if
// there is neither. It makes no network call.
//
// Generate does five things:
//
//  1. It loads deferred functions: req = req.Load(), and reads the conversation from
//     req.ReferencesInWords, unless the provider knows references to tools natively.
//  2. It translates the request. [Text] joins the system instruction, [Parameters] is the schema of
//     a function as every provider takes it, [ArgsText] and [CallIDs] are what a call of the
//     history goes out with, [Result] is a tool's result as text. A part's signature and its
//     [Opaque] data go out only if [Owned] says that they are this provider's. What the provider
//     has no way for is an error of KindInvalid that names it, never dropped in silence.
//  3. It calls the provider, with the client of [HTTPClient]. An error without a response becomes
//     [TransportError], a refusal [Failure]: its kind decides whether the server tries again.
//     [WithSchema] asks in words for a response schema that the provider refuses.
//  4. It reads the stream, with [ReadEvents] if it is one of server-sent events, into a [Builder],
//     which emits text as it arrives and keeps the parts. [NewCall] makes the part of a function
//     call, also of one whose arguments are no JSON.
//  5. It returns the response with its finish reason and usage. A stream that ends before the
//     provider says that it is complete is [Truncated], a response that the provider withholds is
//     [Blocked]. model.Usage.Spent adds what a failed call took. When ctx ends, Generate returns its
//     error promptly.
//
// Package modeltest checks all of that against a fake of the provider on the loopback; run it in
// the adapter's tests. examples/provider/acme is a whole adapter in one file, and
// examples/provider serves it with package agentdhost.
//
// The package imports model, genai and the standard library, and knows no provider.
package adapter
