package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

const (
	// checkpointPages are written to the WAL, by estimate, between two checkpoints: 4 MiB.
	checkpointPages = 1000
	// opPages are what an append writes beside its payload, by estimate.
	opPages = 8
	// longPages is the length of the WAL above which the writer makes the checkpoint whole, so that SQLite
	// begins the WAL anew: 16 MiB.
	longPages = 4096
)

// checkpointer moves the WAL into the database beside the writer, whose commits would else wait for it:
// SQLite's own checkpoints are part of a commit. A checkpoint of another connection never ends while the
// writer goes on, so the writer makes the last part of a long one, see finish.
type checkpointer struct {
	db   *sql.DB // of one connection
	wake chan struct{}
	done chan struct{}
	log  *slog.Logger

	// mu is held for each checkpoint, also by the writer: SQLite refuses a second one.
	mu sync.Mutex

	pages int         // written since the last wake, by estimate; owned by the writer's goroutine
	long  atomic.Bool // the WAL is long: the writer is to make the checkpoint whole
	// fault is why the database cannot be trusted any more: what a checkpoint wrote may not be on disk.
	fault atomic.Pointer[error]
}

// newCheckpointer takes over db, which opens its connection when the first checkpoint is due. The caller
// starts run and calls stop.
func newCheckpointer(db *sql.DB, log *slog.Logger) *checkpointer {
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return &checkpointer{db: db, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// run makes checkpoints until stop.
func (c *checkpointer) run() {
	defer close(c.done)
	failing := false
	for range c.wake {
		err := c.checkpoint()
		if err != nil && !failing { // once
			c.log.Warn("the WAL cannot be moved into the database: it grows", slog.String("error", err.Error()))
		}
		failing = err != nil
	}
}

// stop ends run and closes the connection. Nothing may be written any more.
func (c *checkpointer) stop() error {
	close(c.wake)
	<-c.done
	return c.db.Close()
}

// checkpoint moves what the WAL holds now.
func (c *checkpointer) checkpoint() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var busy, pages, moved int64
	err := c.db.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &moved)
	if err != nil {
		if classOfError(err) == broken {
			c.fault.CompareAndSwap(nil, new(fmt.Errorf("checkpoint: %w", err)))
		}
		return err
	}
	c.long.Store(pages > longPages)
	return nil
}

// wrote counts committed pages and wakes run when a checkpoint is due. Called by the writer's goroutine.
func (c *checkpointer) wrote(pages int) {
	c.pages += pages
	if c.pages < checkpointPages {
		return
	}
	c.pages = 0
	select {
	case c.wake <- struct{}{}:
	default: // one is under way and another one due
	}
}

// finish makes a checkpoint whole on the writer's connection, between two transactions, if the WAL is long
// and no other checkpoint is under way. Unless somebody reads from the WAL, the next transaction begins it
// anew. Called by the writer's goroutine.
func (w *writer) finish() error {
	c := w.checkpoints
	if !c.long.Load() || !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	c.long.Store(false)
	return w.exec("PRAGMA wal_checkpoint(PASSIVE)")
}

// truncate moves the WAL into the database and makes its file empty. It reports false, and moves what it
// can, if somebody reads from the WAL for longer than the connection's busy_timeout. Called by the writer's
// goroutine.
func (w *writer) truncate() (empty bool, err error) {
	if c := w.checkpoints; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	busy, err := w.number("PRAGMA wal_checkpoint(TRUNCATE)")
	return busy == 0, err
}

// trust fails if a checkpoint has failed so that it is not known what is on disk.
func (w *writer) trust() error {
	if w.checkpoints == nil {
		return nil
	}
	if err := w.checkpoints.fault.Load(); err != nil {
		return *err
	}
	return nil
}
