// Package client is the Go SDK of agentd: the server runs trees of agents, this
// package runs their tools next to the caller's own data.
//
//	clnt := client.New("http://localhost:8080")
//	err := client.AddTool(clnt, "greet", "Returns a greeting", greet)
//	for event, err := range clnt.Run(ctx, agent, "Say hi to Alice") { … }
//
// [Client.Run] yields what happens in a turn while it happens: in [Event].Data is
// what, a pointer to one of the types that [EventData] lists. [Client.Do]
// returns the whole of it, [DoAs] the last response as a Go value. A [Session] is a
// conversation of many turns. All fail with an [*Error], whose code errors.Is
// compares. [LLM], [Sequential], [Parallel] and [Loop] make trees of agents.
//
// # Delivery
//
// Events come in the order of the server and exactly once per run; a caller who
// is slow to take them slows the reading of the stream, never its heartbeats. A
// run is not bound to one connection: once the turn has started or waits for its
// start, a stream that breaks is replaced by another one that begins where it
// ended. [Client.Attach] does so from another process, given the [Event].Seq of
// the last event seen.
//
// Tools of one turn run concurrently, and continue while there is no connection. A
// client remembers results, within bounds: if the server sends a call again under
// its id, also in a later run, the client sends the result from memory
// and its tool runs once per process; [WithToolJournal] remembers longer than
// the process. A call that was interrupted by the end of its run has no result;
// it runs again when it is asked again.
//
// A run never outlives its range loop, except for tool handlers that ignore the
// end of their context for longer than [WithGrace]. The turn itself does, if it
// is only left: by the end of the process, or of an Attach.
//
// # What it must not know
//
// The package speaks the protocol and knows nothing of how a server keeps its
// promises. It may import the generated protocol, Connect, protobuf and
// jsonschema-go, and nothing else of this module.
package client
