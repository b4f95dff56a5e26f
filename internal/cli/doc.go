// Package cli is what the command line does as a client: it starts, follows,
// answers and cancels turns through SessionService, runs the tools of a file, asks
// the person at the terminal, and shows what comes back, as text for people or as
// JSON, one object a line, for programs.
//
// It knows the protocol from the caller's side and nothing of the server. Flags,
// signals, files to open and exit codes are the command's. What it writes for a
// terminal holds no control characters of models, tools or other callers.
package cli
