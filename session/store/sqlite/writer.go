package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/apzuk3/agentd/session/store"
)

const (
	queueLen   = 256                    // operations that wait before callers do
	groupLen   = 128                    // operations in one transaction
	groupBytes = 4 << 20                // of payload in one transaction, after which it is closed
	walBytes   = 64 << 20               // size of the WAL at which the writer empties it, waiting for readers
	lookBytes  = 4 << 20                // of writes after which the writer looks how long the WAL is
	walWait    = 200 * time.Millisecond // how long; a backup reads for longer
	probeBytes = 64 << 10               // that Ping writes to see whether there is space again

	largeBytes = 64 << 10  // payload above which an append is large
	largeLen   = 128       // large appends that wait, beside the queue
	largeGroup = 512 << 10 // of payload of large appends in one transaction, or one append
)

// op is one operation of the writer. The caller owns it until it is in the queue, the writer goroutine from
// then on. Appends to one session are written in the order in which they were queued; those to other
// sessions overtake large ones.
type op struct {
	ctx  context.Context // of the caller; an op whose context has ended is not begun
	id   string          // of the session that it appends to, "" if it is no append
	size int             // bytes of payload
	f    func(*tx) (refusal, fault error)
	// done has room for the one error, or nil, that the writer sends.
	done chan error
	// result is what f returned, kept until the commit.
	result error
}

// writer owns the only connection that writes.
type writer struct {
	db      *sql.DB   // of one connection
	conn    *sql.Conn // owned by the goroutine of run
	tx      *tx       // owned by the goroutine of run
	wal     string    // path of the WAL, "" in memory
	hold    *hold     // of the database, nil in memory and until it is open
	walNext int64     // owned by the goroutine of run: WAL size to act on
	// unlooked are the bytes written, by estimate, since trim looked at the WAL; owned by the goroutine of run.
	unlooked int
	log      *slog.Logger
	vacuum   int64 // bytes up to which modernize rebuilds a database

	shrinks   bool          // owned by the goroutine of run: the database has auto_vacuum
	tidyTimer *time.Timer   // owned by the goroutine of run: until tidy, nil if there is nothing to tidy
	tidyBack  time.Duration // owned by the goroutine of run: the last wait for a reader, 0 for none
	commit    func(commit func() error) error
	// checkpoints are made beside the writer; nil in memory.
	checkpoints *checkpointer
	scrub       scrubber
	scrubStop   time.Duration // how long stop scrubs

	queue chan *op // closed by stop
	// large are operations that were taken from the queue and wait, the oldest first: large appends, and
	// what their sessions append behind them. Others go before them. Owned by the goroutine of run.
	large []*op
	// hadLarge is set while the last transaction had large ones. Owned by the goroutine of run.
	hadLarge bool
	done     chan struct{}

	// kept are the shared values that are kept in memory.
	kept kept

	// full is set while the last write has failed for want of space.
	full atomic.Bool
	// dead is why there are no more writes; owned by the goroutine of run.
	dead error
}

// newWriter takes over db, whose schema is up to date.
func newWriter(ctx context.Context, db *sql.DB, wal string, o *options) (*writer, error) {
	w := &writer{
		db: db, wal: wal, walNext: walBytes, commit: o.commit, log: o.log, vacuum: o.vacuum, scrubStop: o.scrubStop,
		queue: make(chan *op, queueLen), done: make(chan struct{}),
	}
	var err error
	if w.conn, err = db.Conn(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), db.Close())
	}
	if w.tx, err = prepareTx(ctx, w.conn); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// newOp returns an operation that is not queued yet.
func newOp(ctx context.Context, id string, size int, f func(*tx) (refusal, fault error)) *op {
	return &op{ctx: ctx, id: id, size: size, f: f, done: make(chan error, 1)}
}

// enqueue waits for a place in the queue. The caller makes sure that stop has not been called.
func (w *writer) enqueue(o *op) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	select {
	case w.queue <- o:
		return nil
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}

// wait returns the result of an operation that is queued, or the error of its context.
func (o *op) wait() error {
	select {
	case err := <-o.done:
		return err
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}

// stop closes the queue and waits until run has finished what is queued.
func (w *writer) stop() {
	close(w.queue)
	<-w.done
}

// close closes the connection; run must have ended or never have begun.
func (w *writer) close() error {
	return errors.Join(w.tx.close(), w.conn.Close(), w.db.Close())
}

// run writes, tidies up and scrubs until stop.
func (w *writer) run() {
	defer close(w.done)
	for {
		for len(w.large) > 0 {
			w.write(w.collect(nil))
			w.trim()
			select { // large appends may never end
			case <-w.tidyDue():
				w.tidy()
			case <-w.scrubDue():
				w.scrubStep()
			default:
			}
		}
		select {
		case o, ok := <-w.queue:
			if !ok {
				w.scrubAll(w.scrubStop)
				return
			}
			runtime.Gosched() // who is about to append shares the transaction; nobody waits if nobody is
			w.write(w.collect(o))
			w.trim()
		case <-w.tidyDue():
			w.tidy()
		case <-w.scrubDue():
			w.scrubStep()
		}
	}
}

// collect returns the operations of the next transaction: first, which may be nil, and those that wait in
// the queue. Every other transaction, and one without other operations, also takes large appends: at least
// one, and at most largeGroup bytes of them. So no large append waits for ever, and an operation that comes
// during a transaction with large appends does not wait for a second one.
func (w *writer) collect(first *op) (group []*op) {
	bytes := 0
	take := func(o *op) {
		if o.size > largeBytes || w.waits(o.id) {
			w.large = append(w.large, o)
		} else {
			group, bytes = append(group, o), bytes+o.size
		}
	}
	if first != nil {
		take(first)
	}
	for open := true; open && len(group) < groupLen-1 && bytes < groupBytes && len(w.large) < largeLen; {
		select {
		case o, ok := <-w.queue:
			if open = ok; ok {
				take(o)
			}
		default:
			open = false
		}
	}
	if w.hadLarge && len(group) > 0 {
		w.hadLarge = false
		return group
	}
	n := 0
	bytes = 0 // of these
	for n < len(w.large) && len(group) < groupLen && (n == 0 || bytes+w.large[n].size <= largeGroup) {
		group, bytes = append(group, w.large[n]), bytes+w.large[n].size
		n++
	}
	w.large = slices.Delete(w.large, 0, n)
	w.hadLarge = n > 0
	return group
}

// waits reports whether an append to a session waits in large.
func (w *writer) waits(id string) bool {
	return id != "" && slices.ContainsFunc(w.large, func(o *op) bool { return o.id == id })
}

// write runs the group and sends the result of every operation.
func (w *writer) write(group []*op) {
	err := w.dead
	if err == nil {
		if err = w.trust(); err != nil {
			w.dead = failedFor(err)
			err = w.dead
		} else {
			err = w.transact(group)
		}
	}
	if err != nil && w.dead == nil && len(group) > 1 && code(err) != sqlite3.SQLITE_BUSY {
		for i := range group {
			w.write(group[i : i+1])
		}
		return
	}
	for _, o := range group {
		if err != nil {
			o.result = err
		}
		o.done <- o.result
	}
}

// transact runs the group in one transaction. If it returns an error, nothing was written, or dead is set.
func (w *writer) transact(group []*op) error {
	defer func() {
		w.tx.removed = false
		if w.tx.shared {
			w.tx.shared = false
			w.kept.written()
		}
	}()
	if err := write(w.tx.begin); err != nil {
		return w.failed("begin", err)
	}
	for _, o := range group {
		var fault error
		if o.result = o.ctx.Err(); o.result == nil {
			o.result, fault = o.f(w.tx)
		}
		if fault != nil {
			return w.failed("write", fault)
		}
	}
	if w.tx.removed {
		if err := w.oweScrub(); err != nil {
			return w.failed("write", err)
		}
	}
	if err := w.commit(func() error { return write(w.tx.commit) }); err != nil {
		return w.failed(inCommit, err)
	}
	w.lookForChanges()
	if w.checkpoints != nil {
		bytes := 0
		for _, o := range group {
			bytes += o.size
		}
		w.checkpoints.wrote(len(group)*opPages + bytes/pageBytes)
		w.unlooked += len(group)*opPages*pageBytes + bytes
	}
	if w.hold != nil {
		if err := w.hold.moved(); err != nil { // nothing is acknowledged that its name does not lead to
			w.dead = err
			return err
		}
	}
	w.full.Store(false)
	if w.tx.removed {
		w.tidyLater(tidyDelay)
		if w.wal != "" {
			w.scrub.owed = true
			w.scrubLater(max(tidyDelay, w.scrub.wait))
		}
	}
	return nil
}

// inCommit is the step whose failure leaves the outcome of the transaction unknown.
const inCommit = "commit"

// failed undoes the transaction. It also ends all writing, unless SQLite says that the failure has left
// nothing on disk.
func (w *writer) failed(where string, err error) error {
	err = fmt.Errorf("%s: %w", where, err)
	// ROLLBACK fails where SQLite has rolled back by itself. Should a transaction remain in spite of it,
	// the next BEGIN fails and ends all writing.
	_ = w.exec("ROLLBACK")
	switch c := classOfError(err); {
	case c == full:
		w.full.Store(true)
	case c == refused, code(err) == sqlite3.SQLITE_BUSY, where != inCommit && (c == passing || c == unread):
	default:
		w.dead = failedFor(err)
		return w.dead
	}
	return err
}

// failedFor is the error of a store that takes no more writes.
func failedFor(err error) error {
	return fmt.Errorf("%w: it takes no more writes since one failed and it is not known what is on disk; "+
		"open it anew: %w", store.ErrFailed, err)
}

// trim keeps the WAL short. While there is always a reader, SQLite does not begin the WAL anew and it
// grows; trim empties it then. If that fails, trim tries again after another walBytes: what is in the WAL
// is safe.
func (w *writer) trim() {
	if w.wal == "" || w.dead != nil {
		return
	}
	if err := w.finish(); err != nil && classOfError(err) == broken {
		_ = w.failed("checkpoint", err)
		return
	}
	if w.unlooked < lookBytes {
		return
	}
	w.unlooked = 0
	info, err := os.Stat(w.wal)
	if err != nil || info.Size() < w.walNext {
		return
	}
	w.walNext = info.Size() + walBytes
	if _, err := w.emptyWALWithin(walWait); err != nil {
		return
	}
	if info, err := os.Stat(w.wal); err == nil {
		w.walNext = info.Size() + walBytes
	}
}

// exec runs a statement to its end: nothing may interrupt the writer.
func (w *writer) exec(query string) error {
	_, err := w.conn.ExecContext(context.Background(), query)
	return err
}
