// Package tools has tools that agents of all kinds want, and that every client would
// write again: files, search, the shell, the web, a plan. They are ordinary tools of a
// client and run in its process; a daemon never has them.
//
//	cfg, _ := conf.Load(".")
//	gate, _ := permit.New(cfg, prompter)
//	reg, _ := tools.Build(cfg, gate, tools.Default())
//	defer reg.Close()
//	for event, err := range clnt.Run(ctx, agent, prompt, client.WithTools(reg.Set)) { … }
//
// An agent has those that its tool_names list.
//
// # What is in reach
//
// A path is looked up from the project's folder. What lies in it, or in a folder of
// path_scope, is opened through an [os.Root]: neither .. nor a link leads out of there, also
// if it is swapped meanwhile. Anything else is the gate's to ask about, and what is
// consented to is opened through the folder that it lies in, and nothing beside it. Only
// regular files and folders are opened: a FIFO or a device is refused before it is touched.
// The shell is not confined. The gate alone stands before it.
//
// # What the model sees
//
// What is returned is bounded, see [conf.OutputCap]; text that is cut ends with what it
// was, and the arguments of most tools can ask for the rest. Bytes that are no UTF-8
// become U+FFFD, a file with a NUL byte is binary and not shown. Errors are written for a
// model: they name the path or the limit, and what was received.
//
// # What happens once
//
// What changes something is begun in the journal of the client, after the gate and before
// the first byte: see [client.Call.Begin]. A program that was killed in between does not
// do it again when it comes back.
package tools
