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
// A store that cannot take an append now is asked again, by a goroutine of the
// [Manager]: until the manager stops if there is no space left, for
// Limits.StorePatience if it fails for no known reason. Meanwhile the turn waits;
// what a client asks for is refused. A store that has failed for good (ErrFailed)
// stops the manager.
//
// # Turns and runs
//
// A turn is what one prompt sets off. It belongs to its session and not to the
// stream that asked for it, nor to the process that runs it. A [Runner] (the
// agent engine) drives it: it appends events, waits for tool results, and
// streams text deltas. Deltas are hints: they are shown at once and are not
// stored; the event that completes the message is the fact, and holds the whole
// text and the places of its deltas. A turn that waits for a client which is not
// there is suspended. A suspended turn, and a turn whose process was killed, is
// resumed by replay of its log.
//
// # People
//
// A tool call may ask a person: for leave to be made, or for an answer that is its
// result. It is an interaction then, under the call's id. No client is asked for
// it, and no time of it runs, until a person has resolved it; any client may say
// so for a person, and the first one counts, wherever the turn is by then.
//
// # Watching
//
// Facts and deltas of a session stand in one order, and each has a position in
// it. A [Watcher] turns what comes after a position into protocol messages: each
// piece of text exactly once, the tool calls of one model answer together. A
// watcher that does not keep up reads on from the log and from the messages on
// their way; it never slows the turn and never queues more than a fixed amount.
//
// This package imports the protocol's messages and the standard library. It
// knows neither the engine, nor a database, nor HTTP.
package session
