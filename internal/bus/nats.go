package bus

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of a NATS bus.
const (
	// MaxHint is the size of the largest hint, in bytes.
	MaxHint = 256 << 10
	// outHints and outBytes bound what waits to be sent, inHints and inBytes what waits for one subscriber.
	outHints, outBytes = 8192, 16 << 20
	inHints, inBytes   = 4096, 8 << 20
)

const (
	dialTimeout  = 2 * time.Second
	pingEvery    = 5 * time.Second // two without a reply end a connection
	writeTimeout = 5 * time.Second
	retryLeast   = 100 * time.Millisecond
	retryMost    = 2 * time.Second
)

// Config says where NATS is.
type Config struct {
	// URLs are servers of NATS, with commas between: nats://HOST:PORT or tls://HOST:PORT, with USER:PASSWORD@ or TOKEN@
	// where the server wants that.
	URLs string
	// CredsFile holds a JWT with its key, or a key (seed) alone, as NATS writes them; "" is none.
	CredsFile string
	// TLS is used with tls://, and where the server asks for it; nil is the default of crypto/tls.
	TLS *tls.Config
	// Secret is shared by the servers that meet on the bus.
	Secret string
	// Name is what operators of NATS see.
	Name string
	// Logger gets connections and their ends.
	Logger *slog.Logger
}

// NATS is a bus over NATS. Its methods may be called from any goroutine.
type NATS struct {
	counts
	conn *nats.Conn
	seal *seal
	log  *slog.Logger
	done chan struct{} // closed when the sender has ended
	more chan struct{} // holds one signal: there is something to send

	mu     sync.Mutex // protects the fields below
	out    []hint
	bytes  int // of out
	closed bool
}

// hint is a message that waits to be sent.
type hint struct {
	subject string
	data    []byte
}

// Dial returns a bus that connects in the background, again and again for as long as it is open: an error says that the
// configuration cannot work. A goroutine sends until Close.
func Dial(cfg Config) (*NATS, error) {
	sealed, err := newSeal(cfg.Secret)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &NATS{seal: sealed, log: cfg.Logger, done: make(chan struct{}), more: make(chan struct{}, 1)}
	opts := []nats.Option{
		nats.Name(cfg.Name), nats.Timeout(dialTimeout), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(retryAfter),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.ConnectHandler(b.up),
		nats.ReconnectHandler(func(c *nats.Conn) { b.reconnects.Add(1); b.up(c) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.down(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				b.dropped.Add(1)
			}
			b.log.Debug("the bus reports an error", slog.String("error", err.Error()))
		}),
	}
	if cfg.CredsFile != "" {
		proof, err := credentials(cfg.CredsFile)
		if err != nil {
			return nil, fmt.Errorf("bus: %w", err)
		}
		opts = append(opts, proof)
	}
	if cfg.TLS != nil && strings.Contains(cfg.URLs, "tls://") {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	if b.conn, err = nats.Connect(cfg.URLs, opts...); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	go b.send()
	return b, nil
}

// retryAfter is the wait before a connection is tried again, after as many tries of all servers.
func retryAfter(tries int) time.Duration {
	wait := min(retryLeast<<min(max(tries-1, 0), 10), retryMost)
	return wait/2 + rand.N(wait/2+1)
}

func (b *NATS) up(c *nats.Conn) {
	b.connected.Store(true)
	b.log.Info("connected to the bus", slog.String("server", c.ConnectedAddr()))
}

func (b *NATS) down(err error) {
	if !b.connected.Swap(false) {
		return
	}
	if err == nil {
		err = errClosed
	}
	b.log.Warn("the bus is gone: what waits for hints is slower", slog.String("error", err.Error()))
}

var errClosed = errors.New("the connection was closed")

// credentials proves who this server is by a file: a JWT with its key, or a key alone.
func credentials(file string) (nats.Option, error) {
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, err
	case bytes.Contains(text, []byte("BEGIN NATS USER JWT")):
		return nats.UserCredentials(file), nil
	}
	return nats.NkeyOptionFromSeed(file)
}

// State says how the bus is.
func (b *NATS) State() State { return b.state() }

// Carries reports whether hints of all subjects arrive now.
func (b *NATS) Carries() bool { return b.connected.Load() }

// Publish sends a hint of at most MaxHint bytes to all that have subscribed, also in this process. It does not block: a
// hint is dropped while there is no connection, or when too many wait. Hints of one process that are not dropped arrive
// in their order.
func (b *NATS) Publish(subject string, data []byte) {
	if !b.connected.Load() || len(data) > MaxHint || !b.enqueue(hint{subject, data}) {
		b.dropped.Add(1)
		return
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *NATS) enqueue(h hint) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.out) >= outHints || b.bytes+len(h.data) > outBytes {
		return false
	}
	b.out = append(b.out, h)
	b.bytes += len(h.data)
	return true
}

// send sends what waits, until the bus is closed.
func (b *NATS) send() {
	defer close(b.done)
	for range b.more {
		b.mu.Lock()
		out, closed := b.out, b.closed
		b.out, b.bytes = nil, 0
		b.mu.Unlock() // sending may block
		for _, h := range out {
			subject := b.seal.prefix + h.subject
			if err := b.conn.Publish(subject, b.seal.close(subject, h.data)); err != nil {
				b.dropped.Add(1)
				continue
			}
			b.sent.Add(1)
		}
		if closed {
			return
		}
	}
}

// Subscribe has f called with each hint of a subject that arrives, or of all subjects that begin as one that ends in
// ">". f gets one at a time, in order, from a goroutine of the bus, and must not block. end ends that, but for a call
// that is under way.
func (b *NATS) Subscribe(subject string, f func(subject string, data []byte)) (end func(), err error) {
	sub, err := b.conn.Subscribe(b.seal.prefix+subject, func(m *nats.Msg) {
		data, err := b.seal.open(m.Subject, m.Data)
		if err != nil {
			b.dropped.Add(1)
			return
		}
		b.received.Add(1)
		f(strings.TrimPrefix(m.Subject, b.seal.prefix), data)
	})
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(inHints, inBytes); err != nil {
		return nil, fmt.Errorf("bus: subscribe to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Close ends the bus. What waits to be sent is lost.
func (b *NATS) Close() {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if was {
		return
	}
	b.connected.Store(false)
	b.conn.Close()
	select {
	case b.more <- struct{}{}:
	default:
	}
	<-b.done
}
