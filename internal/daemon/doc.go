// Package daemon puts agentd together: the one place where store, models,
// engine, sessions and handlers meet, and where a listener is opened. The
// command, the test kit and the examples all start what New returns.
//
// # One port
//
// HTTP/1.1, cleartext HTTP/2 and, with a certificate, TLS are served on one
// port: the first byte of a connection tells TLS from the rest. What is for the operator alone
// (metrics, profiles) has another address, Config.AdminAddr.
//
// # Start and stop
//
// New opens the store and checks the whole configuration, Start continues with the
// turns that were open, and listens. Shutdown ends it all: no new connections and
// turns, then the running turns are waited for until the context ends, then they
// are suspended, and their streams report it to the clients; then connections close;
// the store is closed when nobody is left to write, and the listener of the operator last.
//
// A store without space is waited for: turns pause, new ones are refused, readyz
// says so. A store that has failed for good ends the daemon: see Daemon.Failed.
//
// The package may import everything below cmd/agentd. It decides nothing about
// the protocol, sessions or agents.
package daemon
