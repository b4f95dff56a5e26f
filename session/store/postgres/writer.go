package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apzuk3/agentd/session/store"
)

const (
	writers    = 2       // goroutines that write, each with a connection
	queueLen   = 256     // appends that wait for a writer before callers do
	groupLen   = 128     // appends in one transaction
	groupBytes = 4 << 20 // of payload in one transaction, after which it is closed
)

// op is one append. The caller owns it until it is in the queue, the writer from then on.
type op struct {
	ctx   context.Context //nolint:containedctx // of the caller; an append whose context has ended is not begun
	batch *store.Batch
	usage string
	size  int   // bytes of payload
	owner int64 // of the session, if the batch creates it; 0 for nobody
	// plain is the statement that writes the batch in a group, "" for one that goes alone.
	plain string
	args  []any
	// done has room for the one error, or nil, that the writer sends.
	done chan error
	// written is whether the statement has written the batch.
	written bool
}

// writer writes the appends of some sessions.
type writer struct {
	pool    *pgxpool.Pool
	timeout time.Duration // of a transaction
	queue   chan *op      // closed by stop
	next    *op           // taken from the queue for the next transaction; owned by the goroutine of run
	done    chan struct{}
}

func newWriter(pool *pgxpool.Pool, timeout time.Duration) *writer {
	return &writer{pool: pool, timeout: timeout, queue: make(chan *op, queueLen), done: make(chan struct{})}
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

// wait returns the result of an append that is queued, or the error of its context.
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

// run writes until stop.
func (w *writer) run() {
	defer close(w.done)
	for {
		first := w.next
		w.next = nil
		if first == nil {
			var ok bool
			if first, ok = <-w.queue; !ok {
				return
			}
			runtime.Gosched() // who is about to append shares the transaction
		}
		w.write(w.collect(first))
	}
}

// collect returns the appends of the next transaction: first, and those that wait behind it, up to one that goes
// alone or is the second of its session or with its key.
func (w *writer) collect(first *op) []*op {
	group := []*op{first}
	type key struct{ scope, name string } // of a session: its id, and no name
	seen := make(map[key]bool)
	again := func(b *store.Batch) bool {
		session := key{scope: b.SessionID}
		if seen[session] || b.Key != nil && seen[key{b.Key.Scope, b.Key.Name}] {
			return true
		}
		seen[session] = true
		if b.Key != nil {
			seen[key{b.Key.Scope, b.Key.Name}] = true
		}
		return false
	}
	again(first.batch)
	for bytes := first.size; first.plain != "" && len(group) < groupLen && bytes < groupBytes; {
		select {
		case o, ok := <-w.queue:
			switch {
			case !ok:
				return group
			case o.plain == "" || again(o.batch):
				w.next = o
				return group
			}
			group, bytes = append(group, o), bytes+o.size
		default:
			return group
		}
	}
	return group
}

// write writes a group and sends the result of every append.
func (w *writer) write(group []*op) {
	group = slices.DeleteFunc(group, func(o *op) bool {
		err := o.ctx.Err()
		if err != nil {
			o.done <- err
		}
		return err != nil
	})
	if len(group) == 0 {
		return
	}
	if group[0].plain == "" {
		group[0].done <- w.alone(group[0])
		return
	}
	err := w.together(group)
	for _, o := range group {
		switch {
		case err == nil && o.written:
			o.done <- nil
		case err == nil || undone(err) && len(group) > 1 || passes(err):
			o.done <- w.alone(o)
		default:
			o.done <- err
		}
	}
}

// together writes a group in one transaction and one round trip, and says of each append whether it was written.
func (w *writer) together(group []*op) error {
	return w.with(func(ctx context.Context, conn *pgx.Conn) error {
		forgetWarning(conn)
		order := slices.SortedStableFunc(slices.Values(group), lockOrder)
		batch, written := &pgx.Batch{}, make([]*store.Batch, len(order))
		for i, o := range order {
			batch.Queue(o.plain, o.args...)
			written[i] = o.batch
		}
		queueEvents(batch, written...) // of those that are written
		results := conn.SendBatch(ctx, batch)
		var err error
		for _, o := range order {
			n := 0
			if err = results.QueryRow().Scan(&n); err != nil {
				break
			}
			o.written = n == 1
		}
		if err = cmp.Or(err, results.Close()); err == nil && warned(conn) { // Close reads whether it was committed
			err = errUnreplicated
		}
		return err
	})
}

// lockOrder is the order in which all transactions lock what sessions have in common, so that they do not wait for each
// other in a circle, and as late as they can: the count of a tenant with the keys under which its sessions are created,
// the other keys, what tenants have spent.
func lockOrder(a, b *op) int {
	class := func(b *store.Batch) int {
		switch {
		case spends(b):
			return 3
		case b.Create != nil:
			return 1
		default:
			return 2 * boolInt(b.Key != nil)
		}
	}
	x, y := a.batch, b.batch
	c := cmp.Compare(class(x), class(y))
	switch {
	case c != 0:
		return c
	case spends(x):
		return cmp.Or(cmp.Compare(x.Payer, y.Payer), cmp.Compare(x.PaidOn, y.PaidOn))
	case x.Create != nil:
		c = cmp.Compare(counted(x), counted(y))
	}
	if x.Key != nil && y.Key != nil {
		c = cmp.Or(c, cmp.Compare(x.Key.Scope, y.Key.Scope), cmp.Compare(x.Key.Name, y.Key.Name))
	}
	return cmp.Or(c, cmp.Compare(boolInt(x.Key != nil), boolInt(y.Key != nil)), cmp.Compare(x.SessionID, y.SessionID))
}

// counted is the name under which the sessions of a tenant are counted, "" for none.
func counted(b *store.Batch) string {
	name, _, found := strings.Cut(b.SessionID, "/")
	if !found {
		return ""
	}
	return name
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func spends(b *store.Batch) bool { return b.Spent.Tokens > 0 || b.Spent.Cost > 0 }

// alone writes an append in a transaction of its own, step by step.
func (w *writer) alone(o *op) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	return w.with(func(ctx context.Context, conn *pgx.Conn) error {
		return transact(ctx, conn, func(t *tx) error {
			t.owner = o.owner
			return t.append(o.batch, o.usage)
		})
	})
}

// with calls f with a connection and a context that ends after the timeout of a transaction.
func (w *writer) with(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	conn, err := w.pool.Acquire(ctx)
	if err == nil {
		err = f(ctx, conn.Conn())
		conn.Release() // which closes what is not idle
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the server has not answered within %v", w.timeout) // and no error of the caller's context
	}
	return named(ctx, err)
}
