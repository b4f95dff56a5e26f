// Package session is a durable conversation.
//
// # The log is the truth
//
// A session is one append-only log of records whose sequence number rises by
// one. Every record is durable before anybody sees it. Whatever a session
// knows (its state, its pending tool calls, its usage, whether a turn runs) is
// what applying its records in order gives, and nothing else. A [Store] keeps
// the logs; append is compare-and-swap on the last sequence number, so that a
// session has a single writer.
//
// # Turns and runs
//
// A turn is what one prompt sets off. It belongs to its session and not to the
// stream that asked for it. A [Runner] (the agent engine) drives it: it appends
// events, waits for tool results, and streams text deltas. Deltas are hints:
// they are shown at once and are not stored; the event that completes the
// message is the fact, and holds the whole text.
//
// # Watching
//
// A [Watcher] turns the records after a cursor, and the deltas that come in
// meanwhile, into protocol messages: each piece of text exactly once, the tool
// calls of one model answer together. A watcher that does not keep up loses
// deltas and reads on from the log; it never slows the turn and never holds
// more than a fixed amount of memory.
//
// This package imports the protocol's messages and the standard library. It
// knows neither the engine, nor a database, nor HTTP.
package session
