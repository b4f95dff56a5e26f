package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Kind says what a record is about; it decides the form of Record.Data.
type Kind string

// The kinds of record. Data is JSON of the type named.
const (
	KindTurnStarted Kind = "turn_started" // TurnStarted
	KindTurnResumed Kind = "turn_resumed" // TurnResumed
	KindEvent       Kind = "event"        // the engine's own form, see Runner.Decode
	KindToolCall    Kind = "tool_call"    // ToolCall that no event holds
	KindToolResult  Kind = "tool_result"  // ToolResult
	KindTurnEnded   Kind = "turn_ended"   // TurnEnded
	KindTurnQueued  Kind = "turn_queued"  // TurnQueued; of a turn that waits for its start
	KindTurnDropped Kind = "turn_dropped" // TurnDropped; of a turn that waited for its start
	KindModelRetry  Kind = "model_retry"  // ModelRetry

	KindInteractionResolved Kind = "interaction_resolved" // InteractionResolved
)

// Record is one entry of a session's log. A record is immutable once appended;
// nobody may change Data.
type Record struct {
	// Seq is 1 for the first record of a session and rises by one.
	Seq int64
	// TurnID is the turn the record belongs to.
	TurnID string
	// Kind says how to read Data.
	Kind Kind
	// Time is when the record was appended, in UTC, to the microsecond.
	Time time.Time
	// Data is what happened.
	Data []byte
}

// Head is what a store knows of a session without reading its log.
type Head struct {
	// ID is the session's id.
	ID string
	// CreatedAt is in UTC, to the microsecond.
	CreatedAt time.Time
	// LastSeq is the sequence number of the last record, 0 for none.
	LastSeq int64
	// OpenTurn is the id of the turn that has started and not ended, or "".
	OpenTurn string
	// UpdatedAt is the time of the last record, or CreatedAt before the first.
	UpdatedAt time.Time
	// Purged is the sequence number up to which records are gone, 0 for none.
	Purged int64
}

// Batch is what one append writes, whole or not at all.
type Batch struct {
	// SessionID names an existing session.
	SessionID string
	// After is the last sequence number the writer knows of.
	After int64
	// Records have the sequence numbers After+1, After+2, …; at least one.
	Records []Record
	// Shared are keys of state that sessions have in common, written together
	// with the records. The last write of a key stands.
	Shared []SharedValue
}

// SharedValue is one key of state that is not a session's own.
type SharedValue struct {
	// Scope is "app" or "user:" and the user's id.
	Scope string
	// Key is without the scope's prefix.
	Key string
	// Value is JSON.
	Value json.RawMessage
}

// Errors of a Store. Implementations return them so that errors.Is finds them.
var (
	// ErrNoSession means that there is no session of that id.
	ErrNoSession = errors.New("session: no such session")
	// ErrSessionExists means that the id is taken.
	ErrSessionExists = errors.New("session: session exists")
	// ErrConflict means that the log does not end at Batch.After: another
	// writer was there. Nothing was written.
	ErrConflict = errors.New("session: log has moved on")
	// ErrMalformed means that no store would ever take what it was given.
	// Nothing was written.
	ErrMalformed = errors.New("session: malformed")
	// ErrFull means that there is no space left. Nothing was written; the same
	// call may succeed when there is space again.
	ErrFull = errors.New("session: no space left in the store")
	// ErrFailed means that the store is of no use any more: what has been
	// written is not known, what is to be read may be wrong. Nothing is tried
	// again; only opening the store anew tells what is there. A Store that has
	// failed to make a write durable, after fsync or a commit of unknown outcome,
	// returns it for that write and for all later ones.
	ErrFailed = errors.New("session: the store has failed")
)

// Store keeps the logs. All methods may be called from any goroutine. A method
// whose context ends returns its error. A write that returns an error which is
// none of those above, such as that of a context, may or may not have happened;
// the way to know is to repeat it.
//
// Package storetest is the definition of what an implementation must do.
type Store interface {
	// Create makes an empty session. It returns ErrSessionExists if the id is
	// taken.
	Create(ctx context.Context, id string, at time.Time) error
	// Head returns ErrNoSession for an unknown id.
	Head(ctx context.Context, id string) (Head, error)
	// Append writes the batch durably before it returns. It returns ErrConflict
	// when the log's last sequence number is not Batch.After, except that
	// repeating an append that has happened (same sequence numbers, same
	// content) succeeds; ErrNoSession for an unknown id; ErrMalformed for a batch
	// of sequence numbers that do not follow After, without records, with a kind
	// that is not known, or that starts a second turn or ends one that is not open.
	Append(ctx context.Context, b Batch) error
	// Read returns at most limit records with a sequence number above after, in
	// order. It returns none past the end and ErrNoSession for an unknown id.
	// limit must be positive.
	Read(ctx context.Context, id string, after int64, limit int) ([]Record, error)
	// Shared returns all keys of a scope; none for an unknown scope.
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
	// OpenTurns returns the heads of at most limit sessions whose OpenTurn is
	// set and whose id is above after, in order of id.
	OpenTurns(ctx context.Context, after string, limit int) ([]Head, error)
	// Idle returns the heads of at most limit sessions that have records and no
	// open turn and were last updated before a time, the longest idle first, equals in order of id.
	Idle(ctx context.Context, before time.Time, limit int) ([]Head, error)
	// Purge removes all records of a session, and nothing else: its head and
	// shared values stay, and an append goes on after LastSeq. It returns
	// ErrConflict if the log does not end at lastSeq or has an open turn, and
	// ErrNoSession for an unknown id. Purging again changes nothing.
	Purge(ctx context.Context, id string, lastSeq int64) error
	// Ping reports whether the store can take writes; it tries one.
	Ping(ctx context.Context) error
	// Close waits for appends under way. No method may be called after it.
	Close() error
}
