package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apzuk3/agentd/session/store"
)

// readers is how many connections there are beside those of the writers, unless the URL has pool_max_conns.
const readers = 8

// defaultTimeout is that of Config.Timeout.
const defaultTimeout = 10 * time.Second

var errClosed = errors.New("store is closed")

// Store is a store.Store in a PostgreSQL database. It owns the goroutines of its writers and those of its pools; Close
// ends them.
type Store struct {
	// Every method holds mu for reading while it runs. Close holds it for writing, so Close waits for them. It protects
	// closed.
	mu     sync.RWMutex
	closed bool

	pool    *pgxpool.Pool // for all but appends
	appends *pgxpool.Pool // a connection a writer
	writers [writers]*writer
	seed    maphash.Seed // of writerOf
	owner   func() int64 // of Config
	beside  beside       // what is not of sessions
	alone   *alone       // nil unless Config.Alone or Config.Together
	only    bool         // Config.ReadOnly: there are no writers
}

var _ store.Store = (*Store)(nil)

// Config says how a store is opened. The zero value works.
type Config struct {
	// Logger takes what no caller waits for: what of the server's settings breaks a promise of this package. Nil logs
	// nothing.
	Logger *slog.Logger
	// Owner returns the replica that owns what this store creates under an epoch, 0 for none; see package cluster. Nil
	// returns 0. It is called by the goroutines of appends, and does not wait.
	Owner func() int64
	// Timeout is how long a transaction of appends may take, with its wait for synchronous standbys. After that its
	// outcome is unknown and the connection is given up. Zero is 10 seconds.
	Timeout time.Duration
	// Alone refuses with ErrInUse a database that another store has open alone. If one takes it over while the server
	// cannot be reached, appends fail with store.ErrFailed from then on.
	Alone bool
	// Together refuses it in the same way if another store has it open alone, and not if others have it together.
	Together bool
	// ReadOnly opens a database for reading, also one that others use. The schema stays as it is: one that this program
	// would bring up to date is refused. Every method that writes fails.
	ReadOnly bool
	// Migration opens a database that package migrate has not finished, which is refused otherwise.
	Migration bool
	// AloneWait is how long Open waits for that other store to end.
	AloneWait time.Duration
}

// Open opens the database of a URL, postgres://user:password@host:port/database?parameters, or of a text of keywords,
// as libpq and pgx have them. The database must exist, in UTF8, of PostgreSQL 14 or later. It brings the schema up to
// date, and refuses one that a newer program has made that this one must not use. ctx bounds Open only. No error
// shows the password.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Owner == nil {
		cfg.Owner = func() int64 { return 0 }
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	s, err := open(ctx, url, &cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	for _, w := range s.writers {
		if w != nil {
			go w.run()
		}
	}
	return s, nil
}

// Pool returns the connections that read, for what a server keeps in the same database beside its sessions. They are
// closed with the store. A transaction on them must not write to a session.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Connect opens another connection to the database, which the caller closes.
func (s *Store) Connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
}

// writerOf returns the writer of a session.
func (s *Store) writerOf(id string) *writer {
	return s.writers[maphash.String(s.seed, id)%writers]
}

// Ping writes and commits a few bytes.
func (s *Store) Ping(ctx context.Context) error {
	err := s.write(ctx, func(t *tx) error { return t.exec(`UPDATE probe SET counter = counter + 1`) })
	if err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	return nil
}

// Close waits for the calls under way, ends the writers and closes the connections. A second Close does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, w := range s.writers {
		if w != nil {
			w.stop()
		}
	}
	if s.appends != nil {
		s.appends.Close()
	}
	err := s.beside.db.Close()
	s.alone.close()
	s.pool.Close()
	return err
}

// write runs f in a transaction of its own; see transact.
func (s *Store) write(ctx context.Context, f func(*tx) error) error {
	if s.only {
		return errReadOnly
	}
	_, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (struct{}, error) {
		return struct{}{}, transact(ctx, c, f)
	})
	return err
}

// view calls f with a connection of the pool, or with that of the snapshot that ctx belongs to. An error of f has the
// name that package store has for it.
func view[T any](ctx context.Context, s *Store, f func(context.Context, *pgx.Conn) (T, error)) (out T, err error) {
	if c := s.snapshot(ctx); c != nil {
		out, err = within(ctx, c, f)
		return out, named(ctx, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return out, errClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err == nil {
		out, err = f(ctx, conn.Conn())
		conn.Release() // which closes what is not idle
	}
	if err != nil {
		var zero T
		return zero, named(ctx, err)
	}
	return out, nil
}
