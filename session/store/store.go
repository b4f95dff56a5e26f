// Package store is the seam where logs are kept: what a session asks of a database, and the errors with
// which the database says how things are.
//
// Store keeps records and what is looked for beside them: a head for each session, rows of an index,
// idempotency keys, and state that sessions share. It knows neither what records mean, nor sessions in memory.
// Package storetest is the definition of what an implementation must do; package sqlite is one.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

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
	// UpdatedAt is the time of what was written last, the last record or a Change;
	// CreatedAt before there was either, whatever a fork has inherited.
	UpdatedAt time.Time
	// Purged is the sequence number up to which records are gone, 0 for none.
	Purged int64
	// Attempts is how often the open turn was made to run since its last step forward,
	// 0 once nothing of it runs. A process that has died left what it was running above
	// 0. It is AttemptsClosing while the turn is ended for too many of them.
	Attempts int64
	// Waits is true from when the open turn was suspended because it only waited, until
	// something of it is recorded.
	Waits bool
	// Epoch is the highest Batch.Epoch of the appends to the session, 0 for none.
	Epoch int64
}

// AttemptsClosing is Head.Attempts of a turn that is ended because it was running
// each time the process died.
const AttemptsClosing = -1

// NewSession is what a session begins with.
type NewSession struct {
	// ID is not empty.
	ID string
	// CreatedAt is in UTC, to the microsecond.
	CreatedAt time.Time
	// Creator names the principal that made it; see [Info.Owner].
	Creator string
	// Labels and ClientRef are the caller's own notes and name for it. A label with
	// an empty value is none; one without a key is malformed.
	Labels    map[string]string
	ClientRef string
	// Budget is what the session may spend; the zero value is no bound.
	Budget record.Budget
}

// Info is what a store knows of a session for those who look for one.
type Info struct {
	Head
	// Creator, Labels and ClientRef are as in NewSession and Change. Labels is nil
	// for none.
	Creator   string
	Labels    map[string]string
	ClientRef string
	// Budget is what NewSession or the last Change has given it.
	Budget record.Budget
	// Archived is what Change has made of it.
	Archived bool
	// Version is 1 for a new session and rises by one with each change.
	Version int64
	// Usage is that of the last batch.
	Usage record.Usage
	// LastTurn is the turn that was started last, "" for none, and LastStatus the
	// status of its row.
	LastTurn, LastStatus string
	// ForkedFrom is the session it was forked from, "" for none, ForkedAt the
	// position, and Inherited the sequence number of the last record that it has
	// from there.
	ForkedFrom          string
	ForkedAt, Inherited int64
}

// Owner is the principal that made the session, whose `user:` keys it has. Its role is
// not known.
func (i Info) Owner() principal.Principal { return principal.Read(i.Creator) }

// Change says what to change of a session; what is nil stays.
type Change struct {
	// Version is what the session has to have; 0 is any.
	Version int64
	// Labels are set; an empty value removes one.
	Labels map[string]string
	// ClientRef is the caller's own name for it.
	ClientRef *string
	// Archived is whether it takes no new turns.
	Archived *bool
	// Budget takes the place of the one that the session has; the zero value takes it
	// away.
	Budget *record.Budget
	// At becomes UpdatedAt, if it is set.
	At time.Time
}

// InfoQuery says which sessions; what is zero does not matter. Times count to
// the microsecond.
type InfoQuery struct {
	// Archived, if set, is what Info.Archived has to be.
	Archived *bool
	// Labels are those that a session has to have.
	Labels map[string]string
	// ClientRef is the caller's own name for it.
	ClientRef string
	// LastStatuses are those of which Info.LastStatus has to be one.
	LastStatuses []string
	// CreatedFrom and UpdatedFrom are the first times that count, CreatedBefore
	// and UpdatedBefore the first ones after that which do not.
	CreatedFrom, CreatedBefore, UpdatedFrom, UpdatedBefore time.Time
	// After is the last session of the page before: those follow whose (CreatedAt,
	// ID) is below its own.
	After *Info
	// Limit is positive.
	Limit int
}

// RowKind is what a row of the index is about.
type RowKind string

// The kinds of rows.
const (
	RowTurn        RowKind = "turn"
	RowInteraction RowKind = "interaction"
)

// Row is one entry of the index: what a session knows of a turn or an
// interaction, for those who look for one without reading its log. It is written
// with the records that it follows from.
type Row struct {
	// Kind, SessionID and ID name it. In a batch, SessionID is that of the batch.
	Kind      RowKind
	SessionID string
	ID        string
	// TurnID is the turn it belongs to.
	TurnID string
	// Seq is the record it began with, and CreatedAt the time of that, in UTC, to
	// the microsecond. Neither ever changes.
	Seq       int64
	CreatedAt time.Time
	// Status is what is looked for.
	Status string
	// Data is the rest; JSON.
	Data []byte
}

// RowQuery says which rows; what is zero does not matter, but for Kind. Times
// count to the microsecond.
type RowQuery struct {
	Kind              RowKind
	SessionID, TurnID string
	// Statuses are those of which Row.Status has to be one.
	Statuses []string
	// CreatedFrom is the first time that counts, CreatedBefore the first one after
	// that which does not.
	CreatedFrom, CreatedBefore time.Time
	// After is the last row of the page before: those follow whose (CreatedAt,
	// SessionID, Seq, ID) is below its own.
	After *Row
	// Limit is positive.
	Limit int
}

// Key says that something was made under a key that its caller has chosen.
type Key struct {
	// Scope and Name are unique together.
	Scope, Name string
	// Content tells one request from another.
	Content string
	// SessionID and ID are what was made: a session, and a turn of it or "".
	SessionID, ID string
}

// Fork says what a session is to begin with.
type Fork struct {
	// From is the session to inherit from, and Seq the sequence number of the last
	// record to inherit: 0 is none.
	From string
	Seq  int64
	// At is the position that is remembered.
	At int64
	// Into is the new session.
	Into NewSession
	// Rows are those of the new session.
	Rows []Row
	// LastTurn, LastStatus and OpenTurn are those of the new session.
	LastTurn, LastStatus, OpenTurn string
	// Key, if set, names the new session.
	Key *Key
}

// Batch is what one append writes, whole or not at all.
type Batch struct {
	// SessionID names an existing session, or that of Create.
	SessionID string
	// Create, if set, is a session that is made with the append; After is 0.
	Create *NewSession
	// After is the last sequence number the writer knows of.
	After int64
	// Records have the sequence numbers After+1, After+2, …; at least one.
	Records []record.Record
	// Shared are keys of state that sessions have in common, written together
	// with the records. The last write of a key stands.
	Shared []SharedValue
	// Rows are written in place of those of the same kind and id.
	Rows []Row
	// Usage becomes Info.Usage.
	Usage record.Usage
	// LastTurn and LastStatus become those of Info.
	LastTurn, LastStatus string
	// Key, if set, names what the append makes; its SessionID is that of the batch.
	Key *Key
	// Attempts becomes Head.Attempts; 0 leaves it as it is. Every append makes
	// Head.Waits false.
	Attempts int64
	// Epoch is the lease epoch of the owner that writes.
	Epoch int64
}

// SharedValue is one key of state that is not a session's own.
type SharedValue struct {
	// Scope is "app" or "user:" and the user's id.
	Scope string
	// Key is without the scope's prefix.
	Key string
	// Value is JSON; nil removes the key.
	Value json.RawMessage
}

// Errors of a Store. Implementations return them so that errors.Is finds them.
var (
	// ErrNoSession means that there is no session of that id.
	ErrNoSession = errors.New("store: no such session")
	// ErrSessionExists means that the id is taken.
	ErrSessionExists = errors.New("store: session exists")
	// ErrConflict means that the log does not end at Batch.After: another
	// writer was there. Nothing was written.
	ErrConflict = errors.New("store: the log has moved on")
	// ErrMalformed means that no store would ever take what it was given.
	// Nothing was written.
	ErrMalformed = errors.New("store: malformed")
	// ErrKeyTaken means that the key names something else. Nothing was written.
	ErrKeyTaken = errors.New("store: idempotency key is taken")
	// ErrNotFound means that there is no such row or key.
	ErrNotFound = errors.New("store: not found")
	// ErrFull means that there is no space left. Nothing was written; the same
	// call may succeed when there is space again.
	ErrFull = errors.New("store: no space is left")
	// ErrDamaged means that what is stored cannot be read: each call that meets it
	// fails the same way. Other calls may succeed. Nothing was written.
	ErrDamaged = errors.New("store: what is stored is damaged")
	// ErrFailed means that the store is of no use any more: what has been
	// written is not known, what is to be read may be wrong. Nothing is tried
	// again; only opening the store anew tells what is there. A Store that has
	// failed to make a write durable, after fsync or a commit of unknown outcome,
	// returns it for that write and for all later ones.
	ErrFailed = errors.New("store: failed")
)

// ReadBytes is how much data the records of one Store.Read, and the rows of one
// Store.Rows, need hold, in bytes: each may hold several megabytes.
const ReadBytes = 4 << 20

// LastPage tells whether records that a Store.Read with a limit has returned are
// the last ones of the log.
func LastPage(recs []record.Record, limit int) bool {
	size := 0
	for _, rec := range recs {
		size += len(rec.Data)
	}
	return len(recs) < limit && size < ReadBytes
}

// LastRows tells whether rows that a Store.Rows with a limit has returned are the
// last ones of the list.
func LastRows(rows []Row, limit int) bool {
	size := 0
	for _, row := range rows {
		size += len(row.Data)
	}
	return len(rows) < limit && size < ReadBytes
}

// Store keeps the logs. All methods may be called from any goroutine. A method
// whose context ends returns its error. A write that returns an error which is
// none of those above, such as that of a context, may or may not have happened;
// the way to know is to repeat it.
//
// Package storetest is the definition of what an implementation must do.
type Store interface {
	// Create makes an empty session, and the key, if there is one. It returns
	// ErrSessionExists if the id is taken, and ErrKeyTaken if the key is.
	Create(ctx context.Context, s NewSession, key *Key) error
	// Head returns ErrNoSession for an unknown id.
	Head(ctx context.Context, id string) (Head, error)
	// Append writes the batch durably before it returns. It returns ErrConflict
	// when the log's last sequence number is not Batch.After, except that
	// repeating an append that has happened (same sequence numbers, same
	// content) succeeds; ErrNoSession for an unknown id; ErrSessionExists when
	// Create is not new; ErrKeyTaken when Key is not; ErrMalformed for a batch
	// of sequence numbers that do not follow After, without records, with a kind
	// that is not known, or that starts a second turn or ends one that is not open.
	Append(ctx context.Context, b Batch) error
	AppendMany(ctx context.Context, batches []Batch) []error
	// Read returns at most limit records with a sequence number above after, in
	// order. It may return fewer although there are more once they hold ReadBytes,
	// and should: see LastPage. It returns none past the end and ErrNoSession for an
	// unknown id. limit must be positive.
	Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error)
	// Shared returns all keys of a scope; none for an unknown scope.
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
	// SetShared writes shared values that belong to no append, as Append writes those of
	// a batch; it may be repeated. It returns ErrMalformed for one without a scope or
	// that is not JSON.
	SetShared(ctx context.Context, values []SharedValue) error
	// OpenTurns returns the heads of at most limit sessions whose OpenTurn is
	// set and whose id is above after, in order of id.
	OpenTurns(ctx context.Context, after string, limit int) ([]Head, error)
	// Idle returns the heads of at most limit sessions that have records and no
	// open turn and were last updated before a time, the longest idle first, equals in order of id.
	Idle(ctx context.Context, before time.Time, limit int) ([]Head, error)
	// Info returns ErrNoSession for an unknown id.
	Info(ctx context.Context, id string) (Info, error)
	// Sessions returns at most Limit sessions, those with the highest (CreatedAt,
	// ID) first.
	Sessions(ctx context.Context, q InfoQuery) ([]Info, error)
	// Update changes a session and returns it as it is then. It returns ErrConflict
	// if Version is not the session's, and ErrNoSession for an unknown id.
	Update(ctx context.Context, id string, c Change) (Info, error)
	// Delete removes a session with all that belongs to it: records, rows, labels,
	// keys. Shared values stay. It returns ErrConflict if the log does not end at
	// lastSeq, and ErrNoSession for an unknown id.
	Delete(ctx context.Context, id string, lastSeq int64) error
	// Fork makes a session that begins with records of another one. It returns
	// ErrNoSession if that one is unknown, ErrConflict if it does not have the
	// records any more, or not yet, ErrSessionExists and ErrKeyTaken as Create.
	Fork(ctx context.Context, f Fork) error
	// Row returns one row, or ErrNotFound.
	Row(ctx context.Context, kind RowKind, sessionID, id string) (Row, error)
	// Rows returns at most Limit rows, those with the highest (CreatedAt,
	// SessionID, Seq, ID) first. It may return fewer although there are more once
	// their Data takes ReadBytes, and should: see LastRows.
	Rows(ctx context.Context, q RowQuery) ([]Row, error)
	// Key returns what was made under a key, or ErrNotFound.
	Key(ctx context.Context, scope, name string) (Key, error)
	// Unindexed returns the heads of at most limit sessions whose id is above after
	// and whose records were written before there was an index, in order of id.
	Unindexed(ctx context.Context, after string, limit int) ([]Head, error)
	// Index writes the rows, the usage and the last turn of a session whose log
	// ends at lastSeq, in place of those it has; the session is indexed from then on.
	// It returns ErrConflict if the log does not end there, and ErrNoSession for an
	// unknown id.
	Index(ctx context.Context, b Batch, lastSeq int64) error
	// SetAttempts sets Attempts and Waits of a session's head. It returns ErrNoSession
	// for an unknown id, and may be repeated.
	SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error
	// Purge removes all records and rows of a session, and nothing else: its head,
	// what it is called, its keys and shared values stay, and an append goes on
	// after LastSeq. It returns
	// ErrConflict if the log does not end at lastSeq or has an open turn, and
	// ErrNoSession for an unknown id. Purging again changes nothing.
	Purge(ctx context.Context, id string, lastSeq int64) error
	// Ping reports whether the store can take writes; it tries one.
	Ping(ctx context.Context) error
	// Close waits for appends under way. No method may be called after it.
	Close() error
}
