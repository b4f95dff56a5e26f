// Package server is the wire: Connect handlers for the protocol's services,
// health, reflection and readiness, as one http.Handler.
//
// It validates what comes in, translates it for package session, and maps what
// comes back. It decides nothing about a conversation. Everything a client can
// make it hold or wait for is bounded: message size, depth and values, messages a
// second, streams, the wait for the first message, a write nobody reads.
//
// # A stream and its goroutines
//
// Connect allows one sender and one receiver per stream. The handler goroutine
// is the sender: it alone calls Send, fed by the turn's watcher and by a
// bounded channel of replies. One more goroutine receives; it is joined before
// the handler returns. Only the handler goroutine ends a stream.
//
// An application error is an ErrorResponse and a clean end of the stream, never
// a transport error as well. After the last message the handler waits, bounded,
// for the client to close its side: an HTTP/2 server that returns earlier resets
// the stream, and some clients then lose the message.
//
// # A stream and its turn
//
// A turn outlives its streams. A client that goes away or stops reading, a limit
// of the stream (its age, its silence, messages that had to be refused, the
// deadline of the request) and a server that stops end the stream alone, without
// an EndResponse: package session decides what becomes of the turn. What stops a
// turn is its client's wish and a fault of this package. A client that is too old to
// say what its going away means says its wish by a reset of the stream.
//
// A message that cannot be decoded, or that holds a field which is not known, is
// answered with an ErrorResponse, and the turn goes on. When the framing itself is broken nothing more can be read:
// the turn then goes on as if the client had closed its side.
//
// This package imports session, the generated protocol, connect and its health
// and reflection services, protovalidate and x/time/rate. It knows neither the
// engine, nor models, nor a database.
package server
