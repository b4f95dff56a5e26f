// Package providertest replays recorded conversations with model providers, so
// that tests meet what providers really send without a key or a network.
//
// A [Recording] is a list of HTTP exchanges. [Server] answers them in order over
// loopback, in the provider's streaming form, and can break an answer on the way
// (see [Fault]). [Expect] derives from the same recording what a conversation
// must look like from the outside: prompts, tools, texts, thoughts, tool calls,
// tool results, usage and errors. [CheckHistory] tells whether a later request
// carries everything that was said before it. [Invent] makes recordings of
// answers that nobody gave.
//
// Four wires are known: OpenAI chat completions, OpenAI Responses, Anthropic
// Messages and Gemini; servers that are compatible with one of them count as it.
//
// The package knows the wires only. It must not know agentd's adapters, sessions
// or protocol, for it is what they are measured with; it reads the wires with
// its own few lines instead of the providers' SDKs, which its tests compare it
// with. It may import the standard library only.
package providertest
