// Package adkbridge runs agent trees on google.golang.org/adk/v2: it implements
// session.Runner. It is the only package that knows ADK.
//
// # Who does what
//
// ADK decides what runs next: it executes the tree, dispatches the tool calls
// of an answer together and follows transfers. The bridge owns everything that
// must be durable, bounded or cheap:
//
//   - The session's log is ADK's session. Appending an ADK event is the commit
//     point, and ADK appends a model's answer before it dispatches its calls.
//   - Prompts are built here, incrementally, per agent and branch, so that a
//     model call costs the same after 10 events and after 5,000. ADK itself is
//     shown an empty history.
//   - Text deltas go from the model straight to the session; ADK sees only the
//     complete answer.
//   - Every tool call gets an id of ours, unique in the session. What a model
//     makes up (tools, agents, arguments that are no object) becomes a tool
//     error it can read, never the end of the turn.
//   - Loops are our own agents: leaving one leaves the innermost only.
//
// # Prompts
//
// A prompt is what ADK would have built, with two exceptions: the thoughts of
// other agents, and parts of theirs that hold nothing but a provider's opaque
// data, are left out; and a call that never got its result (the process died)
// is given one that says so.
//
// # Ends
//
// A turn ends naturally when the tree has finished. On any other end the bridge
// appends what is missing for the history to be valid for every provider:
// answers that were complete but not appended, and one result for each call
// that has none. A result that says that its call was cut off is in the same append as
// the turn's end: a log without the end is one of a turn that goes on.
//
// This package imports the session's seams, the protocol's messages, model, ADK,
// genai and jsonschema-go. It knows neither stores, nor HTTP, nor providers.
package adkbridge
