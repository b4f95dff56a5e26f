// Package position numbers the messages of a session.
//
// A position is a message's place in a session: the sequence number of a record, then a slot. Facts have
// the first slots of their record; the deltas that come after it, up to the next record, have the rest. So
// positions rise in the order in which things happened, for facts and deltas alike, and a client that names
// the last position it has received names exactly what it has. Slots are part of the wire: a slot keeps its
// number.
package position

// The slots of a record.
const (
	bits = 20

	Start = 0 // the response to execute; a retract
	State = 1 // state, after the text of the same event
	Alone = 2 // the start of an agent that starts with the turn
	// An event: what its deltas have not shown, then the state, then the calls.
	Thoughts   = 2
	Text       = 3
	Last       = 4
	EventState = 5
	User       = 6 // what a user says, after Start
	Completed  = 6 // of a model's response, which is never a user's
	Provided   = 7
	Compacted  = 8
	CallEnded  = 9
	Transfer   = 10
	Remote     = 11
	Calls      = 16
	// The end of a turn.
	Close  = 1 << 15
	Agents = 1<<15 + 1<<14
	Error  = 1<<16 - 2
	End    = 1<<16 - 1
	// Deltas.
	Deltas    = 1 << 16
	MaxDeltas = 1<<bits - Deltas
)

// Of is the position of a slot of a record.
func Of(seq int64, slot int) int64 { return seq<<bits | int64(slot) }

// Record is the sequence number of the record of a position.
func Record(pos int64) int64 { return pos >> bits }

// LastOf is the position of the last fact of a record; 0 for seq 0.
func LastOf(seq int64) int64 {
	if seq == 0 {
		return 0
	}
	return Of(seq, Deltas) - 1
}
