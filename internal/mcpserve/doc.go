// Package mcpserve offers agent trees as tools of an MCP server, so that any MCP host can have them run.
//
//	s := mcpserve.New(mcpserve.Config{Version: "1"})
//	err := s.Add(mcpserve.Tool{Name: "greeter", Client: clnt, Agent: tree, Options: …})
//	err = s.Serve(ctx, os.Stdin, os.Stdout) // or http.Handler: s.Handler()
//
// A call is a turn of a daemon: its prompt is the argument prompt, and session_id goes on with the session of an
// earlier call. The result is the last text of the turn, and the same as structured content with session, turn and
// usage. A turn that fails is a tool error with the reason.
//
// # Who owns a turn
//
// A turn belongs to its call. It is canceled when the host cancels the call, when its MCP
// session ends (the end of standard input, DELETE), and when the server ends. The daemon logs it as canceled then. Of a
// program that is killed, or that does not reach the daemon any more, the daemon cancels the turns by itself after
// [Config].Grace. A request over HTTP whose connection is lost cancels nothing: the host can ask for the rest of
// its stream. If it has no request under way for the grace, its turns are canceled.
//
// # Questions
//
// What the turn asks of people, and what the gate asks about its tools ([Server.AskApproval]), the host's person
// answers by elicitation. With a host that has none, they are refused.
//
// # What it must not know
//
// The package knows nothing of files, flags and the gate's rules. It may import client, client/permit,
// client/terminal for what is shown of models, and the MCP SDK.
package mcpserve
