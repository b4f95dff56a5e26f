// Package session is a part of agentd, not an API: a durable conversation.
//
// # The log is the truth
//
// A session is an append-only log of records with consecutive sequence numbers. Every record is durable
// before anybody sees it. The state of a session (its keys, its pending tool calls, its usage, whether a
// turn is open) follows from its records alone, applied in order. A [store.Store] keeps the logs. Append
// is compare-and-swap on the last sequence number, so that a session has a single writer.
//
// When the store cannot take an append now, a goroutine of the [Manager] retries it: until the manager
// stops if no space is left, for Limits.StorePatience if the reason is unknown. Meanwhile the turn waits,
// and what clients ask for is refused. A store that has failed for good (store.ErrFailed) stops the
// manager.
//
// # Turns and runs
//
// A turn is what one prompt sets off. It belongs to its session, not to the stream that started it nor to
// the process that runs it. A [Runner] (the agent engine) drives it: it appends events, awaits tool
// results, and streams deltas. A delta is a hint: it is published at once and not stored. The event that
// completes the message is the fact, with the whole text and the marks of its deltas. A turn that waits
// for an absent client is suspended. A suspended turn, and a turn whose process died, is resumed by
// replay of its log.
//
// # People
//
// A tool call may be an interaction: it asks a person for an approval, or for an answer that is its
// result. It is offered to no client, and its timeout does not run, until a person has resolved it. Any
// client may send the resolution, and the first one stands, also while the turn is suspended.
//
// # Watching
//
// Facts and deltas of a session have one order, and each has a position in it. A [Watcher] renders what
// follows a position as protocol messages: each piece of text exactly once, the tool calls of one
// response together. A watcher that lags continues from the log and from the partials. It never slows the
// turn, and its queue is bounded.
//
// # Rooms
//
// This package has the sessions of a server: which are in memory, which turns may run, what becomes of
// turns when a process has died or their clients have left. One session in memory, with its turns and their
// phases, is of internal/live. Below both are rooms that need no lock of a session: what records mean
// (record), the seam of the database (store), what is looked up (index), how a log becomes messages
// (internal/render). These packages import the protocol's messages and the standard library. They know
// neither the engine, nor a database, nor HTTP.
package session
