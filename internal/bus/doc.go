// Package bus carries hints between servers that share a database: that there is work to look for, that a session has
// another owner, and what a turn says while somebody watches it at another server.
//
// A bus may lose everything, at any time and for any length of time. Who uses it is slower then, never wrong: what a
// hint is about stands in the database, and is looked for there too. Publish never blocks and is never part of a
// transaction.
//
// [NATS] carries all hints. [Notify] is PostgreSQL's own LISTEN and NOTIFY and carries [Wake] alone: its messages go
// through one lock of the whole database server, which appends wait for too.
//
// The package must not know what hints say, nor sessions.
package bus

import "sync/atomic"

// Wake is the subject of the hint that there is work without an owner.
const Wake = "wake"

// State is what a bus says of itself.
type State struct {
	// Connected is true while hints arrive and leave.
	Connected bool
	// Sent and Received count hints, Dropped those that were to be sent or received and were lost here: while there was
	// no connection, because a queue was full, or because they were not sealed by a server with the same secret.
	// Reconnects counts connections after the first one.
	Sent, Received, Dropped, Reconnects int64
}

// counts are the counters of a State.
type counts struct {
	connected                           atomic.Bool
	sent, received, dropped, reconnects atomic.Int64
}

func (c *counts) state() State {
	return State{
		Connected: c.connected.Load(), Sent: c.sent.Load(), Received: c.received.Load(),
		Dropped: c.dropped.Load(), Reconnects: c.reconnects.Load(),
	}
}
