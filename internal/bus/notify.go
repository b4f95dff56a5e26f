package bus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// channel is where servers listen.
	channel = "agentd_wake"
	// notifyEvery is the least time between two notifications of one process.
	notifyEvery = 20 * time.Millisecond
	// listenCheck is how long a connection may say nothing before it is asked whether it is there.
	listenCheck   = 30 * time.Second
	notifyTimeout = 2 * time.Second
)

// Database is what Notify needs of PostgreSQL.
type Database struct {
	// Exec runs a statement on any connection.
	Exec func(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	// Connect opens a connection of its own, which poolers in transaction mode must not share.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Logger gets what fails.
	Logger *slog.Logger
}

// Notify is a bus over LISTEN and NOTIFY that carries Wake alone, without data, at most once in notifyEvery. Its
// methods may be called from any goroutine.
type Notify struct {
	counts
	db     Database
	stop   context.CancelFunc
	wake   chan struct{} // holds one signal: there is something to send
	served sync.WaitGroup

	mu   sync.Mutex // protects the field below
	subs map[*func(string, []byte)]struct{}
}

// Listen returns a bus over PostgreSQL. One goroutine listens, another one notifies, until Close.
func Listen(db Database) *Notify {
	if db.Logger == nil {
		db.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Notify{db: db, stop: stop, wake: make(chan struct{}, 1), subs: map[*func(string, []byte)]struct{}{}}
	b.served.Go(func() { b.listen(ctx) })
	b.served.Go(func() { b.notify(ctx) })
	return b
}

// State says how the bus is.
func (b *Notify) State() State { return b.state() }

// Carries reports false: only Wake arrives.
func (*Notify) Carries() bool { return false }

// Publish notifies the others if the subject is Wake, and drops anything else. It does not block.
func (b *Notify) Publish(subject string, _ []byte) {
	if subject != Wake {
		return
	}
	select {
	case b.wake <- struct{}{}:
	default: // one waits to be sent
	}
}

// Subscribe has f called for each Wake that arrives, from a goroutine of the bus; f must not block.
func (b *Notify) Subscribe(subject string, f func(subject string, data []byte)) (end func(), err error) {
	if subject != Wake {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[&f] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, &f)
	}, nil
}

// Close ends the bus.
func (b *Notify) Close() {
	b.stop()
	b.served.Wait()
}

// notify sends.
func (b *Notify) notify(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		try, cancel := context.WithTimeout(ctx, notifyTimeout)
		_, err := b.db.Exec(try, `SELECT pg_notify($1, '')`, channel)
		cancel()
		if err == nil {
			b.sent.Add(1)
		} else {
			b.dropped.Add(1)
		}
		pause.Reset(notifyEvery)
	}
}

// listen receives, over one connection after the other.
func (b *Notify) listen(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; tries++ {
		began := time.Now()
		err := b.listenOnce(ctx)
		if b.connected.Swap(false) {
			tries = 0
			b.reconnects.Add(1)
		}
		if ctx.Err() == nil {
			b.db.Logger.LogAttrs(ctx, slog.LevelDebug, "the connection that listens to the database has ended",
				slog.String("error", err.Error()), slog.Duration("after", time.Since(began)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter(tries + 1)):
		}
	}
}

// listenOnce receives over a connection until that ends, which is the error.
func (b *Notify) listenOnce(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := b.db.Connect(try)
	if err != nil {
		return err
	}
	defer func() {
		now, cancel := context.WithTimeout(context.Background(), notifyTimeout)
		defer cancel()
		_ = conn.Close(now)
	}()
	if _, err := conn.Exec(try, `LISTEN `+channel); err != nil {
		return err
	}
	b.connected.Store(true)
	b.deliver() // what was said before is lost
	for {
		if err := b.wait(ctx, conn); err != nil {
			return err
		}
	}
}

// wait waits for a notification, or asks after a while whether the connection is there.
func (b *Notify) wait(ctx context.Context, conn *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	_, err := conn.WaitForNotification(quiet)
	switch {
	case err == nil:
		b.received.Add(1)
		b.deliver()
		return nil
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed():
		return err
	}
	ping, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	return conn.Ping(ping)
}

func (b *Notify) deliver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.subs {
		(*f)(Wake, nil)
	}
}
