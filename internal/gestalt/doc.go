// Package gestalt is a part of agentd, not an API: it serves agents to a Gestalt host, which starts agentd as a child
// and speaks gRPC with it over a Unix socket. docs/gestalt.md describes it.
//
// A Provider does what a client of SessionService and Run can do, no more. The daemon runs in the same process, and the
// Provider reaches it by a connection within. What SessionService does not keep (who made something as the host says
// it, idempotency keys, numbers of events, grants) a Store does.
//
// The host is asked for tools, and runs them, without a lock held: to serve that it calls the Provider.
package gestalt
