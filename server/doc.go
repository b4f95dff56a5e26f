// Package server is a part of agentd, not an API: the wire, Connect handlers for the protocol's services,
// health, reflection and readiness, as one http.Handler.
//
// It validates requests, translates them for package session, and translates what comes
// back. It decides nothing about a conversation. Everything that a client can make it
// hold or wait for is bounded: the size, depth and values of a message, messages a
// second, streams, the wait for the first message, a write that nobody reads.
//
// # A stream and its goroutines
//
// Connect allows one sender and one receiver per stream. The handler goroutine is the
// sender: it alone calls Send, with what the turn's watcher yields and with replies from
// a bounded channel. One more goroutine receives; the handler waits for its end before
// it returns. Only the handler goroutine ends a stream. Run, WatchTurn and WatchSession
// share the loop that sends; see follower.
//
// An application error is an ErrorResponse and a clean end of the stream, never a
// transport error as well. After the last message the handler waits, bounded, for the
// client to close its side: an HTTP/2 server that returns earlier resets the stream, and
// some clients then lose the message.
//
// # A stream and its turn
//
// A turn outlives its streams. The following end only the stream, without an
// EndResponse, and package session decides what becomes of the turn: a client that goes
// away or stops reading, a limit of the stream (its age, its silence, refused messages,
// the deadline of the request), and a server that stops. A turn is stopped by a request
// of its client and by a fault of this package. A client that is too old to know
// on_disconnect requests it by a reset of the stream.
//
// A message that cannot be decoded, or that holds an unknown field, gets an
// ErrorResponse, and the turn continues. When the framing itself is broken nothing more
// can be read: the turn continues as if the client had closed its side.
//
// This package imports session, the generated protocol and its rules, the entries of the audit
// trail, connect and its health and reflection services, x/time/rate and an LRU. It knows neither
// the engine, nor models, nor a database.
package server
