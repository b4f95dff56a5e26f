// Package store is the seam between sessions and a database. [Store] is what a database implements.
//
// # What a store keeps
//
// A store keeps, for each session:
//
//   - a log: records with the sequence numbers 1, 2, 3, …, without a gap. A record never changes. Purge removes
//     the records from the first one up to the last one.
//   - a head, see [Head], and the rest of [Info]: what the store reads without the log.
//   - rows of an index, see [Row], by kind and id.
//   - idempotency keys, see [Key], which are unique by scope and name across all sessions.
//
// It also keeps values that sessions share, see [SharedValue], by scope and key. They belong to no session.
//
// # How it writes
//
// Append is compare-and-swap: it writes a batch if the log ends at Batch.After and no owner of a higher
// epoch has appended. All of the batch is written in one transaction, or nothing of it. An append that is
// repeated succeeds without a second write, so a caller that does not know the outcome makes the same call
// again. AppendMany takes appends of many sessions, each of which succeeds or fails by itself; a store
// writes them in few transactions. Every write is durable when the method returns without an error, and
// every read that begins afterwards sees it.
//
// # Who writes
//
// Where one process owns the store, all epochs are 0. Where several processes share it, each session has
// one owner at a time, under a lease whose epoch rises with each owner. Batch.Epoch is the fencing token:
// the store refuses an append of an older owner, even one that has not noticed the loss of its lease. The
// lease itself is not the store's.
//
// # Tenants
//
// A session's id has the tenant that the session belongs to: it is the tenant, percent-encoded, a slash and
// the id that callers use; without a slash the tenant is "". So the same id in two tenants is two sessions,
// and a call that names a session cannot reach one of another tenant. Only the filters of lists, see
// [InfoQuery] and [RowQuery], look at the tenant by itself.
//
// # What it must not know
//
// A store knows neither what records and rows say, nor sessions in memory, nor who calls it. Ids, keys and
// turn ids are any UTF-8 text without NUL and are compared and ordered byte by byte. Data is any bytes.
// Times are UTC; a store cuts them to the microsecond. The package imports packages record and principal
// alone.
//
// Package storetest holds the conformance suite that every implementation runs; package sqlite is one.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Head is the state of a session's log that a store returns without reading the log.
type Head struct {
	// ID is the session's id.
	ID string
	// CreatedAt is in UTC, to the microsecond.
	CreatedAt time.Time
	// LastSeq is the sequence number of the last record, 0 for none.
	LastSeq int64
	// OpenTurn is the id of the turn that has started and not ended, or "".
	OpenTurn string
	// UpdatedAt is the time of the last append's last record, or Change.At of a later Change. It is
	// CreatedAt before either; records that a fork inherits do not count.
	UpdatedAt time.Time
	// Purged is the sequence number up to which records were purged, 0 for none.
	Purged int64
	// Attempts is how often the server made the open turn run since the turn's last step forward. It is 0
	// once the turn does not run. It stays above 0 if the process dies while the turn runs. It is
	// AttemptsClosing while the server ends the turn because of too many attempts. Append and SetAttempts
	// set it; the store does not count.
	Attempts int64
	// Waits is true while the open turn is suspended because it only waits. SetAttempts sets it, every
	// append clears it.
	Waits bool
	// Epoch is the highest Batch.Epoch that has written to the session, 0 for none. A fork begins with 0.
	Epoch int64
}

// AttemptsClosing is Head.Attempts of a turn that the server ends because it was running at several deaths
// of the process.
const AttemptsClosing = -1

// NewSession is a session to create.
type NewSession struct {
	// ID is not empty; an empty one is malformed.
	ID string
	// CreatedAt is in UTC, to the microsecond.
	CreatedAt time.Time
	// Creator is the text of the principal that creates the session; see [Info.Owner].
	Creator string
	// Labels and ClientRef are the caller's own notes on the session and its name for it. A label with an
	// empty value is ignored; one with an empty key is malformed.
	Labels    map[string]string
	ClientRef string
	// Metadata is the JSON text of the caller's own object, "" for none. A store does not read it.
	Metadata string
	// Agent names the agent that the session was made with, "" for none. A store does not read it.
	Agent string
	// Budget is what the session may spend; the zero value sets no bound.
	Budget record.Budget
	// DropToolPayloads says that what tools are given and return is not kept after its turn.
	DropToolPayloads bool
	// MaxOfTenant is how many sessions its tenant may have, this one included; 0 is no bound. Above it the
	// session is refused with the error of TooMany.
	MaxOfTenant int64
}

// errTooMany is the error of TooMany.
var errTooMany = errors.New("store: the tenant has as many sessions as it may")

// TooMany returns why the session must not be created when its tenant has so many sessions, or nil. Nothing
// was written.
func (n *NewSession) TooMany(sessions int64) error {
	if n.MaxOfTenant == 0 || sessions < n.MaxOfTenant {
		return nil
	}
	return errTooMany
}

// IsTooMany reports whether an error is that of TooMany.
func (*NewSession) IsTooMany(err error) bool { return errors.Is(err, errTooMany) }

// Info is all that a store returns of a session without reading its log.
type Info struct {
	Head
	// Creator, Labels and ClientRef are those of NewSession, with the changes of each Change since. Labels
	// is nil if there are none.
	Creator   string
	Labels    map[string]string
	ClientRef string
	// Metadata is that of NewSession, or of the last Change that set it.
	Metadata string
	// Agent is that of NewSession.
	Agent string
	// Budget is that of NewSession, or of the last Change that set one.
	Budget record.Budget
	// DropToolPayloads is that of NewSession.
	DropToolPayloads bool
	// Archived is that of the last Change that set it; false before.
	Archived bool
	// Version is 1 for a new session. Each Update adds 1.
	Version int64
	// Usage is that of the last batch or index.
	Usage record.Usage
	// LastTurn is the turn that started last, "" for none. LastStatus is the status of its row. Both are
	// those of the last batch, index or fork.
	LastTurn, LastStatus string
	// ForkedFrom is the session that a fork copied its first records from, "" for none. ForkedAt is
	// Fork.At. Inherited is the sequence number of the last record that was copied.
	ForkedFrom          string
	ForkedAt, Inherited int64
}

// Owner is the principal that created the session. The session reads and writes the `user:` keys of that
// principal. The role is not stored.
func (i Info) Owner() (p principal.Principal) {
	p.Read(i.Creator)
	return p
}

// Change says what Update changes of a session. A nil field leaves its value as it is.
type Change struct {
	// Version is the version that the session must have; 0 accepts any.
	Version int64
	// Labels are set beside those that the session has. An empty value removes a label; an empty key is
	// malformed.
	Labels map[string]string
	// ClientRef is the caller's own name for the session.
	ClientRef *string
	// Metadata replaces the session's metadata; "" removes it.
	Metadata *string
	// Archived says whether the session takes no new turns.
	Archived *bool
	// Budget replaces the session's budget; the zero value removes it.
	Budget *record.Budget
	// At becomes UpdatedAt unless it is zero.
	At time.Time
}

// InfoQuery selects sessions. A session matches if it matches every field; a zero field matches every
// session. The store cuts times to the microsecond.
type InfoQuery struct {
	// Tenant matches sessions of that tenant, see the package doc; nil matches those of all. A page of one
	// tenant costs what it returns, a page of all of them may cost a look at each session.
	Tenant *string
	// Archived matches sessions of that Info.Archived.
	Archived *bool
	// Labels matches sessions that have all of these labels, with these values.
	Labels map[string]string
	// ClientRef matches sessions of that Info.ClientRef.
	ClientRef string
	// LastStatuses matches sessions whose Info.LastStatus is one of these.
	LastStatuses []string
	// CreatedFrom and UpdatedFrom are the earliest times that match. CreatedBefore and UpdatedBefore are
	// later than the latest ones: a time that is equal does not match.
	CreatedFrom, CreatedBefore, UpdatedFrom, UpdatedBefore time.Time
	// After is the last session of the previous page. Sessions match whose (CreatedAt, ID) is lower than
	// that of After, which need not exist. Only these two fields of it are read.
	After *Info
	// Limit is how many sessions are returned at most. It is positive; another one is malformed.
	Limit int
}

// RowKind is what a row of the index describes.
type RowKind string

// The kinds of rows. A row of another kind is malformed.
const (
	RowTurn        RowKind = "turn"
	RowInteraction RowKind = "interaction"
	RowGoal        RowKind = "goal"
)

// Row is one entry of the index: the state of a turn or an interaction, which lists and lookups return
// without reading a log. A session writes it in the same batch as the records that it follows from.
type Row struct {
	// Kind, SessionID and ID are the primary key. ID is not empty. In a batch, SessionID is that of the
	// batch.
	Kind      RowKind
	SessionID string
	ID        string
	// TurnID is the turn that the row belongs to.
	TurnID string
	// Seq is the record that the turn or the interaction began with. CreatedAt is the time of that record,
	// in UTC, to the microsecond. A later write of the row does not change the two: the store keeps those
	// of the first one.
	Seq       int64
	CreatedAt time.Time
	// Status is what RowQuery.Statuses selects by. The store does not know the statuses.
	Status string
	// Data is the rest. The store returns it byte by byte.
	Data []byte
}

// RowQuery selects rows of one kind. A row matches if it matches every field; a zero field other than Kind
// matches every row. The store cuts times to the microsecond.
type RowQuery struct {
	// Tenant matches rows of sessions of that tenant; nil matches those of all, which may cost a look at
	// each row of the kind and status.
	Tenant            *string
	Kind              RowKind
	SessionID, TurnID string
	// Statuses matches rows whose Row.Status is one of these.
	Statuses []string
	// CreatedFrom is the earliest time that matches. CreatedBefore is later than the latest one: a time
	// that is equal does not match.
	CreatedFrom, CreatedBefore time.Time
	// After is the last row of the previous page. Rows match whose (CreatedAt, SessionID, Seq, ID) is lower
	// than that of After, which need not exist. Only these four fields of it are read.
	After *Row
	// Limit is how many rows are returned at most. It is positive; another one is malformed.
	Limit int
}

// Key is an idempotency key of a client, with what was created under it.
type Key struct {
	// Scope and Name are the primary key. Name is not empty.
	Scope, Name string
	// Content is a digest of the request: it differs if another request uses the same key. The store
	// compares it only to recognize a repeat.
	Content string
	// SessionID and ID are what was created: a session, and a turn of it, or "" if the session itself.
	SessionID, ID string
}

// Fork is a session to create with a copy of another session's log.
type Fork struct {
	// From is the session to copy from. Seq is the sequence number of the last record to copy; with 0 the
	// log of the new session is empty. The copies keep their sequence numbers.
	From string
	Seq  int64
	// At becomes Info.ForkedAt: the position that the client named.
	At int64
	// Into is the new session.
	Into NewSession
	// Rows are the rows of the new session; no rows are copied.
	Rows []Row
	// LastTurn, LastStatus and OpenTurn become those of the new session.
	LastTurn, LastStatus, OpenTurn string
	// Key, if set, is written for the new session; its SessionID is Into.ID.
	Key *Key
	// Recode, if set, changes Data of each copy before it is written. It must not use the store, and may be called
	// again for the same record. Its error is that of Fork, which then writes nothing.
	Recode func(*record.Record) error
}

// Batch is what one append writes: all of it or nothing.
type Batch struct {
	// SessionID is an existing session, or that of Create.
	SessionID string
	// Create, if set, is a session that the append creates; After is 0 then.
	Create *NewSession
	// After is the sequence number of the last record of the log as the writer knows it, 0 for an empty
	// log.
	After int64
	// Records have the sequence numbers After+1, After+2, …. There is at least one. The kinds turn_started
	// and turn_ended set Head.OpenTurn; the time of the last record becomes Head.UpdatedAt.
	Records []record.Record
	// Shared are shared values to write. The later one of two writes of a key stands, in the order of the
	// appends.
	Shared []SharedValue
	// Rewrites replace the data of records that the log has. Each is such a record but for its Data; another one is
	// malformed. What was there before is removed as by Delete.
	Rewrites []record.Record
	// Rows replace the rows of the same kind and id, but for Seq and CreatedAt.
	Rows []Row
	// Events are what a store with an event log keeps of the records; another one leaves them out.
	Events []Event
	// Usage becomes Info.Usage.
	Usage record.Usage
	// Spent, its tokens and cost, is added to what the tenant Payer has spent on PaidOn, a day of UTC counted from
	// 1970-01-01. It outlasts the session. A negative one is malformed.
	Spent  record.Spent
	Payer  string
	PaidOn int64
	// Notices are what others are to be told of the batch. One without ID, Hook or Event is malformed.
	Notices []Notice
	// LastTurn and LastStatus become those of Info.
	LastTurn, LastStatus string
	// Key, if set, is written for what the append creates; its SessionID is that of the batch.
	Key *Key
	// Attempts becomes Head.Attempts; 0 leaves it as it is. Every append sets Head.Waits to false.
	Attempts int64
	// Epoch is the lease epoch of the owner that writes; 0 where one process owns the store. A store
	// refuses an append, and a repeat of one, with ErrFenced if the epoch is lower than Head.Epoch.
	// Otherwise the append sets Head.Epoch. A negative epoch is malformed.
	Epoch int64
}

// Names returns the tenant of the session, "" for none, and the id that callers know it by.
func (b *Batch) Names() (tenantName, id string) {
	return tenant.Of(b.SessionID), tenant.ID(b.SessionID)
}

// SharedValue is one key of the state that sessions share.
type SharedValue struct {
	// Scope is "app", or "app:" and a tenant, or "user:" and the principal's name. An empty one is malformed.
	Scope string
	// Key is the key without the scope's prefix.
	Key string
	// Value is JSON; nil removes the key. Other text is malformed.
	Value json.RawMessage
}

// IsOf reports whether the scope is a principal's own or, for one without an id, any of its tenant.
func (v SharedValue) IsOf(p principal.Principal) bool {
	var owner principal.Principal
	if name, isUser := strings.CutPrefix(v.Scope, "user:"); isUser {
		owner.Read(name)
	} else if tenant, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(v.Scope, "app"), ":")); err == nil {
		owner.Tenant = tenant
	}
	return owner.Tenant == p.Tenant && (p.ID == "" || owner.ID == p.ID)
}

// Errors of a Store. Implementations return them so that errors.Is finds them, one at a time.
var (
	// ErrNoSession means that the store has no session of that id. Nothing was written.
	ErrNoSession = errors.New("store: no such session")
	// ErrSessionExists means that the store already has a session of that id. Nothing was written.
	ErrSessionExists = errors.New("store: session exists")
	// ErrConflict means that another writer has written to the session: its log does not end where the
	// caller expects, its version is another one, or an owner of a higher epoch has appended. Nothing was
	// written.
	ErrConflict = errors.New("store: the log has moved on")
	// ErrFenced means that an owner of a higher epoch has written to the session, see Batch.Epoch. It is an
	// ErrConflict; the caller owns the session no more. Nothing was written.
	ErrFenced = fmt.Errorf("%w: another owner writes to it", ErrConflict)
	// ErrMalformed means that the arguments are invalid: no store takes them, whatever it holds. An append
	// that starts or ends a turn that it cannot is one too. Nothing was written.
	ErrMalformed = errors.New("store: malformed")
	// ErrKeyTaken means that the key exists for something else. Nothing was written.
	ErrKeyTaken = errors.New("store: idempotency key is taken")
	// ErrNotFound means that the store has no such row or key.
	ErrNotFound = errors.New("store: not found")
	// ErrFull means that there is no space left. Nothing was written. The same call may succeed when there
	// is space again.
	ErrFull = errors.New("store: no space is left")
	// ErrDamaged means that stored data is damaged. Each call that reads that data fails the same way;
	// other calls may succeed. Nothing was written.
	ErrDamaged = errors.New("store: what is stored is damaged")
	// ErrFailed means that the store has failed for good: the outcome of a write is unknown, and a read may
	// be wrong. A store that fails to make a write durable (fsync fails, or a commit has an unknown
	// outcome) returns it for that write and for all later ones. Callers do not retry; they open the store
	// again and read it.
	ErrFailed = errors.New("store: failed")
)

// ReadBytes is how many bytes of data a page of Store.Read or Store.Rows holds before a store may end it
// below the limit. One record or row may hold several megabytes.
const ReadBytes = 4 << 20

// LastPage reports whether recs, which a Store.Read with that limit has returned, are the last ones of the
// log.
func LastPage(recs []record.Record, limit int) bool {
	size := 0
	for _, rec := range recs {
		size += len(rec.Data)
	}
	return len(recs) < limit && size < ReadBytes
}

// IsLast reports whether rows, which a Store.Rows with the query has returned, are the last ones of the list.
func (q RowQuery) IsLast(rows []Row) bool {
	size := 0
	for _, row := range rows {
		size += len(row.Data)
	}
	return len(rows) < q.Limit && size < ReadBytes
}

// Store keeps the sessions. The package doc says what that is.
//
// All methods may be called from any goroutine. A method whose context ends returns the context's error. A
// write that returns an error that is none of those above, such as that of a context, may or may not have
// happened; the caller repeats it to find out. A store keeps nothing of its arguments after it returns, and
// the caller owns the results.
//
// Package storetest is the definition of what an implementation must do.
type Store interface {
	// Create creates a session with an empty log, and writes the key if it is not nil. It returns
	// ErrSessionExists if the session exists, ErrKeyTaken if the key does, and the error of
	// NewSession.TooMany.
	Create(ctx context.Context, s NewSession, key *Key) error
	// Head returns the head of a session, or ErrNoSession.
	Head(ctx context.Context, id string) (Head, error)
	// Append writes the batch durably before it returns.
	//
	// It returns ErrFenced if Batch.Epoch is lower than Head.Epoch, and ErrConflict if the log does not end at
	// Batch.After. A repeat of an append that has happened succeeds and writes nothing: the log holds the
	// same records under the same sequence numbers, and the key, if there is one, is the same. The rest of
	// the batch is not compared, since later appends may have replaced it. A repeat of purged records is
	// ErrConflict.
	//
	// It returns ErrNoSession for an unknown session. It returns ErrSessionExists if Create is set and the
	// session exists, unless the append is a repeat. It returns ErrKeyTaken if the key exists, and the error
	// of NewSession.TooMany. It returns
	// ErrMalformed for a batch without records, with sequence numbers that do not follow After, with an
	// unknown kind, and for one that starts a turn while one is open or ends a turn that is not open.
	Append(ctx context.Context, b Batch) error
	// AppendMany appends batches of different sessions in one call. It returns one error a batch, in the
	// order of the batches, nil for one that is written: each is what Append returns for that batch. A
	// batch that fails takes no other one along. All batches that succeed are durable when the method
	// returns. A second batch of the same session is ErrMalformed. The batches need not be in one
	// transaction; a store uses as few as it can.
	AppendMany(ctx context.Context, batches []Batch) []error
	// Read returns at most limit records with a sequence number above after, in the order of the log. It
	// returns none past the end, and begins behind the purged ones. It may return fewer records although
	// there are more once they hold ReadBytes, and should: see LastPage. It returns ErrNoSession for an
	// unknown session. limit is positive; another one is malformed, here and below.
	Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error)
	// Shared returns all shared values of a scope by key; none for an unknown scope.
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
	// Scopes returns at most limit names of scopes that have shared values, above after, in their order.
	Scopes(ctx context.Context, after string, limit int) ([]string, error)
	// SetShared writes shared values outside an append, all of them or none. It may be repeated. It returns
	// ErrMalformed for a value without a scope or that is not JSON.
	SetShared(ctx context.Context, values []SharedValue) error
	// Spent returns the tokens and the cost that a tenant has paid for from a day to another, both included.
	Spent(ctx context.Context, tenant string, from, to int64) (record.Spent, error)
	// OpenTurns returns the heads of at most limit sessions whose OpenTurn is not empty and whose id is
	// above after, in the order of ids.
	OpenTurns(ctx context.Context, after string, limit int) ([]Head, error)
	// Idle returns the heads of at most limit sessions that have records, no open turn, and an UpdatedAt
	// before a time. They are in the order of UpdatedAt, then of ids.
	Idle(ctx context.Context, before time.Time, limit int) ([]Head, error)
	// Info returns the info of a session, or ErrNoSession.
	Info(ctx context.Context, id string) (Info, error)
	// Sessions returns at most q.Limit sessions that match, those with the highest (CreatedAt, ID) first.
	Sessions(ctx context.Context, q InfoQuery) ([]Info, error)
	// Update changes a session and returns its info after the change. It returns ErrConflict if c.Version
	// is not the session's, and ErrNoSession for an unknown session.
	Update(ctx context.Context, id string, c Change) (Info, error)
	// Delete removes a session with its records, rows, labels, keys and notices. Shared values stay. It returns
	// ErrConflict if the log does not end at lastSeq, and ErrNoSession for an unknown session. The id and
	// the keys are free afterwards.
	Delete(ctx context.Context, id string, lastSeq int64) error
	// Fork creates a session with a copy of another session's log. It returns ErrNoSession if the other
	// session is unknown, and ErrConflict if its log ends before f.Seq or was purged. It returns
	// ErrSessionExists, ErrKeyTaken and the error of NewSession.TooMany as Create does.
	Fork(ctx context.Context, f Fork) error
	// Row returns one row, or ErrNotFound.
	Row(ctx context.Context, kind RowKind, sessionID, id string) (Row, error)
	// Rows returns at most q.Limit rows that match, those with the highest (CreatedAt, SessionID, Seq, ID)
	// first. It may return fewer rows although there are more once their Data holds ReadBytes, and should:
	// see RowQuery.IsLast.
	Rows(ctx context.Context, q RowQuery) ([]Row, error)
	// Key returns the key of a scope and a name, or ErrNotFound.
	Key(ctx context.Context, scope, name string) (Key, error)
	// Unindexed returns the heads of at most limit sessions whose id is above after and that have records
	// from a build without an index, in the order of ids. A store that never held such records returns
	// none.
	Unindexed(ctx context.Context, after string, limit int) ([]Head, error)
	// Index replaces the rows, the usage and the last turn of a session by those of b, and marks the
	// session as indexed. Records, Shared, Create, Key and Epoch of b are zero; another value is malformed.
	// It returns ErrConflict if the log does not end at lastSeq, and ErrNoSession for an unknown session.
	// It may be repeated.
	Index(ctx context.Context, b Batch, lastSeq int64) error
	// SetAttempts sets Head.Attempts and Head.Waits. It returns ErrNoSession for an unknown session, and a
	// store that knows owners may return ErrFenced for one that another server owns. It may be repeated.
	SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error
	// Purge removes all records and rows of a session and sets Head.Purged to Head.LastSeq. Everything else
	// stays: the rest of the info, keys and shared values. The next append follows LastSeq as before. It
	// returns ErrConflict if the log does not end at lastSeq or a turn is open, and ErrNoSession for an
	// unknown session. A repeat changes nothing.
	Purge(ctx context.Context, id string, lastSeq int64) error
	// Ping writes to the store and returns the error of that: nil if the store takes writes.
	Ping(ctx context.Context) error
	// Close waits for the calls that run, and releases what the store holds. No method may be called after
	// it.
	Close() error
}
