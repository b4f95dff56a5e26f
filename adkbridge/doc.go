// Package adkbridge is a part of agentd, not an API: it runs agent trees on google.golang.org/adk/v2. It
// implements session.Runner and is the only package that knows ADK.
//
// # Who does what
//
// ADK decides what runs next: it executes the tree, dispatches the tool calls of a
// response together and follows transfers. The bridge owns everything that must be
// durable, bounded or cheap:
//
//   - The session's log is ADK's session. Appending an ADK event is the commit point,
//     and ADK appends a model's response before it dispatches its calls.
//   - The bridge builds prompts, incrementally, per agent and branch, so a model call
//     costs the same after 10 events and after 5,000. ADK sees an empty history.
//   - Text deltas go from the model straight to the session. ADK sees only the complete
//     response.
//   - Every tool call gets an id that is unique in the session. What a model makes up
//     (tools, agents, arguments that are no object) becomes a tool error that the model
//     can read, and never ends the turn.
//   - Loops are agents of the bridge: exit_loop leaves only the innermost one.
//
// # Prompts
//
// A prompt is what ADK would build, with two exceptions. It leaves out the thoughts of
// other agents, and their parts that hold only a provider's opaque data. A call that
// never got its result, because the process died, gets one that says so.
//
// # Resuming and replay
//
// A turn that resumes runs from its start. The responses and results that the log holds
// are taken from there, until the log is used up. The run announces its steps to an
// observer; most runs have none. Verify and ModelCalls replay a turn under an observer
// that compares it with its log, or records what the models received.
//
// # Ends
//
// A turn ends naturally when the tree ends. On any other end the bridge appends what
// makes the history valid for every provider: complete responses that are not in the
// log, and one result for each call that has none. A result that says that its call was
// cut off is in the same append as the turn's end: a turn without an end in its log
// continues.
//
// This package imports the session's seams, the protocol's messages, model, ADK, genai
// and jsonschema-go. It knows neither stores, nor HTTP, nor providers.
package adkbridge
