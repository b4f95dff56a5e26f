// Package cli is the command line as a user of package client: it starts, follows,
// cancels and shows turns, runs the programs of a file as their tools, and asks the
// person at the terminal. It writes text for people, or JSON, one object a line, for
// programs.
//
// Connections, retries of streams, tool calls and questions are package client's. This
// package knows nothing of the server. Flags, signals, files to open and exit codes are
// the command's. What it writes for a terminal holds no control characters of models,
// tools or other callers.
package cli
