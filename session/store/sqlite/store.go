package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Memory is the path of a store that keeps everything in memory. Close removes it.
const Memory = ":memory:"

// Errors of Open.
var (
	// ErrLocked means that the database is open elsewhere.
	ErrLocked = errors.New("database is in use")
	// ErrNetwork means that the database is on a network file system, see Config.NetworkFiles.
	ErrNetwork = errors.New("database is on a network file system")
)

var (
	errClosed   = errors.New("store is closed")
	errReadOnly = errors.New("store was opened for reading")
)

// Store is a store.Store in a SQLite database. It owns two goroutines; Close ends them.
type Store struct {
	// Every method holds mu for reading while it runs. Close holds it for writing, so Close waits for them.
	// It protects closed.
	mu     sync.RWMutex
	closed bool

	writer *writer
	// readers is nil for a store in memory, whose only connection is the writer's.
	readers *sql.DB
	// reads is prepared on readers. In memory it is prepared on the writer's connection and belongs to the
	// writer goroutine.
	reads *reads
	hold  *hold // nil for a store in memory, and for a read-only one
	// only is set for a read-only store, which has neither writer, readers nor hold.
	only *readOnly
	// beside is set for a store that has nothing but Update and View.
	beside *beside
}

var _ store.Store = (*Store)(nil)

// Config says how a store is opened. The zero value works.
type Config struct {
	// Logger takes what no caller waits for: that the store has rebuilt the database, or could not tidy it
	// up. Nil logs nothing.
	Logger *slog.Logger
	// MaxBytes caps the size of the database file, in bytes, rounded down to whole pages of 4096. An append
	// that would exceed it fails as on a full disk: nothing is written and later calls may succeed. Under a
	// cap below the present size the file grows no further. Zero means no cap.
	MaxBytes int64
	// NetworkFiles has Open accept a database on a network file system, which it refuses otherwise. The
	// caller makes sure that one process of one machine opens it at a time.
	NetworkFiles bool
	// ReadOnly opens an existing database for reading, also one that another process has open. Every method
	// that writes fails. A database of an older schema is read from an upgraded copy in the folder for
	// temporary files, which Close removes. One goroutine at a time may use the store.
	ReadOnly bool
	// Alone keeps other processes out of a database that is opened with ReadOnly, and refuses one of an older schema
	// in place of reading a copy. It returns ErrLocked if another process has it open.
	Alone bool
	// Beside opens an existing database, also one that another process has open, for Transact and View alone. One
	// goroutine at a time may use the store.
	Beside bool
}

// option is what Config sets, or a test.
type option func(*options)

type options struct {
	maxBytes int64
	readOnly bool
	beside   bool
	alone    bool
	unsaved  bool // no copy is made before an upgrade
	saved    bool // one was made; set by Open
	log      *slog.Logger
	vacuum   int64 // bytes up to which a database is rebuilt
	fresh    bool  // there was no database; set by Open
	// scrubStop is how long Close scrubs.
	scrubStop time.Duration
	anyFiles  bool // also on a network
	// network is networkOf; tests have another one.
	network func(path string) (string, error)
	// schema is the script that makes the schema of an empty database; by "" the migrations do. Tests have
	// others.
	schema string
	// migrations are the schema's versions; tests have others.
	migrations fs.FS
	// commit stands between the writer and COMMIT; tests make it fail.
	commit func(commit func() error) error
}

// SetMaxBytes changes the cap of Config.MaxBytes while the store is open. Zero means no cap.
func (s *Store) SetMaxBytes(ctx context.Context, n int64) error {
	pages := int64(math.MaxUint32 - 1) // SQLite's own most
	if n > 0 {
		pages = max(1, n/pageBytes)
	}
	if s.writer == nil {
		return errReadOnly
	}
	full := s.writer.full.Load()
	err := s.write(ctx, 0, func(*tx) (refusal, fault error) {
		return nil, s.writer.exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	})
	if full { // that the cap could be set is no sign of space
		s.writer.full.Store(true)
	}
	if err != nil {
		return fmt.Errorf("sqlite: set the cap to %d bytes: %w", n, err)
	}
	return nil
}

// Open opens the database at path. It creates the database and its directory if they do not exist; only the
// owner may read them. It brings the schema up to date, after it has copied the database to a file beside
// it, and refuses a database that a newer build has written. It returns ErrLocked if another process, or
// another Store of this process, has the database open under any name, and ErrNetwork if the database is on
// a network file system. ctx bounds Open only, and not the copy.
func Open(ctx context.Context, path string, cfg Config) (*Store, error) {
	return openAs(ctx, path, func(o *options) {
		o.maxBytes, o.anyFiles, o.readOnly, o.beside = cfg.MaxBytes, cfg.NetworkFiles, cfg.ReadOnly, cfg.Beside
		o.alone = cfg.Alone
		if cfg.Logger != nil {
			o.log = cfg.Logger
		}
	})
}

// rest is the context of the rest of Open: a copy takes its time, so no deadline counts behind it.
func (o *options) rest(ctx context.Context) context.Context {
	if o.saved {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// openAs is Open with what tests set.
func openAs(ctx context.Context, path string, opts ...option) (*Store, error) {
	o := options{
		commit: func(commit func() error) error { return commit() },
		log:    slog.New(slog.DiscardHandler), vacuum: vacuumBytes, network: networkOf, scrubStop: scrubAtStop,
		schema: schema,
	}
	var err error
	if o.migrations, err = fs.Sub(migrations, "migrations"); err != nil {
		return nil, err
	}
	for _, opt := range opts {
		opt(&o)
	}
	open := openFile
	switch {
	case o.readOnly:
		open = openReadOnly
	case o.beside:
		open = openBeside
	case path == Memory:
		open = openMemory
	}
	s, err := open(ctx, path, &o)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	if s.writer != nil {
		go s.writer.run()
	}
	return s, nil
}

// Head returns the head of a session, or store.ErrNoSession.
func (s *Store) Head(ctx context.Context, id string) (store.Head, error) {
	head, err := view(ctx, s, func(ctx context.Context, r *reads) (store.Head, error) {
		return r.head(ctx, id)
	})
	if err != nil {
		return store.Head{}, fmt.Errorf("sqlite: head of session %q: %w", id, err)
	}
	return head, nil
}

// Read returns at most limit records with a sequence number above after, in order; see store.Store. The
// caller owns the result.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	recs, err := view(ctx, s, func(ctx context.Context, r *reads) ([]record.Record, error) {
		return r.log(ctx, id, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: read session %q after %d: %w", id, after, err)
	}
	return recs, nil
}

// OpenTurns returns the heads of at most limit sessions that have an open turn and an id above after, in
// order of the bytes of the id.
func (s *Store) OpenTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	heads, err := view(ctx, s, func(ctx context.Context, r *reads) ([]store.Head, error) {
		return r.openTurns(ctx, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: open turns after %q: %w", after, err)
	}
	return heads, nil
}

// Idle returns the heads of at most limit sessions that have records and no open turn and were last updated
// before a time, the longest idle first.
func (s *Store) Idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	heads, err := view(ctx, s, func(ctx context.Context, r *reads) ([]store.Head, error) {
		return r.idle(ctx, before, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: sessions idle since %v: %w", before, err)
	}
	return heads, nil
}

// Purge removes the records and rows of a session whose log ends at lastSeq; see store.Store. The package
// doc says when the bytes are gone from the files.
func (s *Store) Purge(ctx context.Context, id string, lastSeq int64) error {
	err := s.write(ctx, 0, func(tx *tx) (error, error) { return tx.purge(id, lastSeq) })
	if err != nil {
		return fmt.Errorf("sqlite: purge session %q: %w", id, err)
	}
	return nil
}

// Ping writes and commits a few bytes, so it costs an fsync. If the last write has failed for want of
// space, Ping writes as much as a usual append, to find out whether there is space again.
func (s *Store) Ping(ctx context.Context) error {
	padding := 0
	if s.writer != nil && s.writer.full.Load() {
		padding = probeBytes
	}
	probe := func(n int) error {
		return s.write(ctx, n, func(tx *tx) (error, error) { return nil, tx.probe(n) })
	}
	err := probe(padding)
	if err == nil && padding > 0 {
		err = probe(0)
	}
	if err != nil {
		return fmt.Errorf("sqlite: ping: %w", err)
	}
	return nil
}

// Close waits for the calls under way, ends the writer and closes the database. A second Close does
// nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.writer != nil {
		s.writer.stop()
	}
	if err := s.release(); err != nil {
		return fmt.Errorf("sqlite: close: %w", err)
	}
	return nil
}

// release gives back what Open took. The readers go first: the last connection to close folds the WAL into
// the database.
func (s *Store) release() error {
	var errs []error
	if s.reads != nil {
		errs = append(errs, s.reads.close())
	}
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	if s.writer != nil {
		if s.writer.checkpoints != nil {
			errs = append(errs, s.writer.checkpoints.stop())
		}
		errs = append(errs, s.writer.close())
	}
	if s.only != nil {
		errs = append(errs, s.only.close())
	}
	if s.hold != nil {
		errs = append(errs, s.hold.release())
	}
	if s.beside != nil {
		errs = append(errs, s.beside.close())
	}
	return errors.Join(errs...)
}

// write makes the writer goroutine call f in a transaction, and returns once that is committed. f returns a
// refusal if it has written nothing, or a fault, which undoes the transaction. The writer may call f a
// second time after it has undone a first transaction.
func (s *Store) write(ctx context.Context, size int, f func(*tx) (refusal, fault error)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return errClosed
	case s.writer == nil:
		return errReadOnly
	}
	o := newOp(ctx, "", size, f)
	err := s.writer.enqueue(o)
	if err == nil {
		err = o.wait()
	}
	return named(err)
}

// view runs a read on the pool of readers, or on the writer goroutine in memory.
func view[T any](ctx context.Context, s *Store, f func(context.Context, *reads) (T, error)) (T, error) {
	var zero T
	if s.readers == nil && s.only == nil {
		var out T
		// The writer's connection must not be interrupted, hence not ctx.
		err := s.write(ctx, 0, func(*tx) (refusal, fault error) {
			out, refusal = f(context.Background(), s.reads)
			return refusal, nil
		})
		if err != nil {
			return zero, err // out may still be written to
		}
		return out, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return zero, errClosed
	}
	out, err := f(ctx, s.reads)
	if err != nil && ctx.Err() != nil {
		return zero, ctx.Err()
	}
	return out, named(err)
}
