package store

import "time"

// Notice is a fact of a batch that somebody outside of the server is to be told: a store writes it in the transaction
// of the batch, into the table notices, so that no crash parts the two. Package webhook reads the table, sends what is
// in it, and removes it. A deleted session takes its notices along; a purge leaves them.
type Notice struct {
	// ID is unique among all notices: a second one of the same id is left out.
	ID string
	// Hook is who is told, and Event what. A store knows neither.
	Hook, Event string
	// TurnID and Subject say what the fact is about; Seq is the record that states it, of the batch.
	TurnID, Subject string
	Seq             int64
	// At is when it happened, and from when on it may be sent.
	At time.Time
}
