// Package link stands between a client and a server of a test, on loopback, and does what networks do: it cuts
// connections, holds what is sent, and delays it.
//
// It knows bytes alone.
package link

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// pieceBytes is how much a link reads at once.
const pieceBytes = 16 << 10

// dialTimeout bounds how long a link tries to reach its server for a connection.
const dialTimeout = 10 * time.Second

// Link forwards connections to a server. Its methods may be called from any goroutine. It ends with the test.
type Link struct {
	target string
	listen net.Listener
	all    sync.WaitGroup // its goroutines

	mu      sync.Mutex // protects the fields below
	changed chan struct{}
	conns   map[net.Conn]bool
	closed  bool
	refuses bool // new connections are closed at once
	holds   bool // nothing is forwarded
	delay   time.Duration
}

// New returns a link to the server at an address.
func New(t testing.TB, target string) *Link {
	t.Helper()
	var lc net.ListenConfig
	listen, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{target: target, listen: listen, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Addr is where clients find the link.
func (l *Link) Addr() string { return l.listen.Addr().String() }

// Break closes all connections. New ones are taken.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakLocked()
}

func (l *Link) breakLocked() {
	for c := range l.conns {
		_ = c.Close()
	}
}

// Cut closes all connections, and new ones until Heal.
func (l *Link) Cut() {
	l.set(func() { l.refuses = true; l.breakLocked() })
}

// Hold forwards nothing until Heal: both sides wait, as behind a network that loses everything.
func (l *Link) Hold() { l.set(func() { l.holds = true }) }

// Slow forwards each piece after a delay, until Heal.
func (l *Link) Slow(delay time.Duration) { l.set(func() { l.delay = delay }) }

// Heal ends Cut, Hold and Slow. What was held goes on.
func (l *Link) Heal() { l.set(func() { l.refuses, l.holds, l.delay = false, false, 0 }) }

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) close() {
	_ = l.listen.Close()
	l.set(func() { l.closed = true; l.breakLocked() })
	l.all.Wait()
}

// own adds a connection, which is closed and false if there are to be none.
func (l *Link) own(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.refuses {
		_ = c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Link) disown(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *Link) accept() {
	for {
		c, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.join(c) })
	}
}

// join forwards a connection in both directions until one of them ends.
func (l *Link) join(client net.Conn) {
	if !l.own(client) {
		return
	}
	defer l.disown(client)
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", l.target)
	if err != nil || !l.own(server) {
		return
	}
	defer l.disown(server)
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			l.forward(to, from)
			_, _ = from.Close(), to.Close()
		})
	}
	both.Wait()
}

// forward copies until either side ends.
func (l *Link) forward(to io.Writer, from io.Reader) {
	piece := make([]byte, pieceBytes)
	for {
		n, err := from.Read(piece)
		if n > 0 && l.pass() {
			if _, werr := to.Write(piece[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until a piece may be forwarded. It is false when the link is closed.
func (l *Link) pass() bool {
	waited := false
	for {
		l.mu.Lock()
		closed, holds, delay, changed := l.closed, l.holds, l.delay, l.changed
		l.mu.Unlock()
		var after <-chan time.Time
		switch {
		case closed:
			return false
		case !holds && (delay == 0 || waited):
			return true
		case !holds:
			after, waited = time.After(delay), true
		}
		select {
		case <-after:
		case <-changed:
		}
	}
}
