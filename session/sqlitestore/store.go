package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/apzuk3/agentd/session"
)

// Memory is the path of a store that keeps everything in this process and is
// gone when it is closed.
const Memory = ":memory:"

var errClosed = errors.New("sqlitestore: store is closed")

// Store is a session.Store in a SQLite database. It owns one goroutine, which
// ends with Close.
type Store struct {
	// mu is held for reading by every method under way and for writing by
	// Close, which so waits for them. It protects closed.
	mu     sync.RWMutex
	closed bool

	writer *writer
	// readers is nil for a store in memory: its only connection is the
	// writer's.
	readers *sql.DB
	// reads are prepared on readers, or on the writer's connection, and then
	// only the writer goroutine may use them.
	reads *reads
	lock  *fileLock // nil for a store in memory
}

var _ session.Store = (*Store)(nil)

// Option changes how a store is opened.
type Option func(*options)

type options struct {
	maxBytes int64
	// commit stands between the writer and COMMIT; tests fail it.
	commit func(commit func() error) error
}

// WithMaxBytes caps the size of the database file, in bytes, rounded down to
// whole pages. An append that would exceed it fails as on a full disk: nothing
// is written and the store goes on. A cap below the present size lets the file
// grow no further. Zero means no cap.
func WithMaxBytes(n int64) Option {
	return func(o *options) { o.maxBytes = n }
}

// Open opens the database at path, and makes it with the directory it is in if
// there is none; files are for the owner alone. It brings the schema up to date,
// and refuses a database that a newer version has written. It fails when another
// process, or another Store of this one, has the database open. ctx bounds Open
// only.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	o := options{commit: func(commit func() error) error { return commit() }}
	for _, opt := range opts {
		opt(&o)
	}
	open := openFile
	if path == Memory {
		open = openMemory
	}
	s, err := open(ctx, path, &o)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: open %q: %w", path, err)
	}
	go s.writer.run()
	return s, nil
}

// Create makes an empty session.
func (s *Store) Create(ctx context.Context, id string, at timeT) error {
	return nil
}

// Close waits for the calls under way, ends the writer and closes the
// database. A second Close does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.writer.stop()

	// The readers go first: the last connection folds the WAL into the database.
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.reads.close(), s.readers.Close())
	}
	errs = append(errs, s.writer.close())
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sqlitestore: close: %w", err)
	}
	return nil
}
