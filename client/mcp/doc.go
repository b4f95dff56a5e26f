// Package mcp makes the tools of MCP servers tools of a client, on the official Go SDK.
//
//	servers, err := mcp.Build(ctx, ".agents", gate, nil) // .agents/mcp.json
//	for _, s := range servers {
//		defer s.Close()
//		opts = append(opts, client.WithAttachment(s.Name, s.ToolSet()))
//	}
//
// The servers are the client's: it starts them, talks to them and ends them; the daemon sees
// tools. They are named in a file:
//
//	{"version": 1, "servers": {
//	  "files":  {"transport": "stdio", "command": "mcp-files", "args": ["."], "env": {"TOKEN": "${env:FILES_TOKEN}"}},
//	  "issues": {"transport": "http", "url": "https://mcp.example.com/mcp",
//	             "headers": {"Authorization": "Bearer ${env:ISSUES_TOKEN}"}}}}
//
// All texts may hold ${env:NAME}; errors show that and never the value. A program gets PATH, HOME,
// the locale, TMPDIR and its env, and runs in the current folder.
//
// # Tools
//
// A model knows a tool as <server>_<tool>, see [Build]. The schema of its arguments goes to the model as the
// server has it (with its keys in alphabetic order). A tool that the daemon would refuse is left out
// with a notice: its schema is larger than 32 KiB, no object, refers to what is elsewhere, nests deeper than 16 levels.
// If the servers of a Build have more than 100 tools, all are deferred, see [client.Deferred].
//
// Each call asks the gate first. What a server says of its tools (readOnlyHint and the like) grants
// nothing: their effect is client.EffectNetwork, so that none runs in plan mode. It only decides whether a call is
// repeated after the connection was lost, or after this program has ended in the middle of it, see
// [client.Call.Begin].
//
// A server that has resources gets one more tool, <server>_read_resource; its prompts are for people,
// see [Server.Prompts].
//
// # Connections
//
// A lost connection is made again after 1, 2, 4, 8 and 16 s; then the server has failed for good. Calls wait
// meanwhile. A call that was under way is repeated, once, if the tool says readOnlyHint or
// idempotentHint, or if it was never sent; the model reads of any other that it may have happened.
//
// [Server.ToolSet] is one set for the life of the server. When the server says that its tools have changed, the set
// gets the new ones, and runs that start from then on have them.
//
// # What it must not know
//
// The package knows nothing of the gate's rules and of who answers questions. It may import client, client/permit,
// the MCP SDK and internal/backoff.
package mcp
