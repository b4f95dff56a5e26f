package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lines are the connections of all clients and fronts.
type lines struct {
	mu   sync.Mutex     // protects open
	open map[*line]bool // connections that live
	cuts atomic.Int64   // connections that were cut
	far  atomic.Int64   // of them, those between a front and the daemon
}

// line is one connection, which can be cut.
type line struct {
	net.Conn
	of   *lines
	far  bool         // between a front and the daemon
	busy atomic.Bool  // something has been received
	left atomic.Int64 // bytes until it is cut, plus one; 0: it is not to be
	once sync.Once
}

var errCut = errors.New("the test has cut the connection")

// phone is a client's way to the daemon. It can be taken away for good, as when
// the client's process dies.
type phone struct {
	lines *lines
	far   bool          // a front's
	route func() string // says where a connection leads; nil is where it is to lead

	mu   sync.Mutex // protects the fields below
	dead bool
	mine map[*line]bool
}

func (l *lines) phone(route func() string) *phone {
	return &phone{lines: l, route: route, mine: map[*line]bool{}}
}

// client is an HTTP client that speaks HTTP/2 over this phone.
func (p *phone) client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: p.dial}}
}

func (p *phone) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errCut
	}
	if p.route != nil {
		addr = p.route()
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: conn, of: p.lines, far: p.far}
	p.mine[l] = true
	p.lines.mu.Lock()
	p.lines.open[l] = true
	p.lines.mu.Unlock()
	return l, nil
}

// die cuts all connections and lets no new one come up.
func (p *phone) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for l := range p.mine {
		l.drop(rand.IntN(2) == 0)
	}
}

// cut has one connection break, now or after some more bytes.
func (l *lines) cut() {
	l.mu.Lock()
	var victim *line
	for c := range l.open { // in no order
		if c.busy.Load() && c.left.CompareAndSwap(0, 1+int64(rand.IntN(1+rand.IntN(3000)))) {
			victim = c
			break
		}
	}
	l.mu.Unlock()
	if victim != nil && rand.IntN(3) == 0 {
		victim.strike()
	}
}

// spend counts bytes and returns how many of n may still pass; less than n only
// if the connection breaks behind them.
func (c *line) spend(n int) int {
	for {
		left := c.left.Load()
		if left == 0 {
			return n
		}
		if int64(n) < left {
			if !c.left.CompareAndSwap(left, left-int64(n)) {
				continue
			}
			return n
		}
		return int(left - 1)
	}
}

func (c *line) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.busy.Store(true)
	}
	if may := c.spend(n); may < n {
		c.strike()
		return may, errCut
	}
	return n, err
}

func (c *line) Write(b []byte) (int, error) {
	if may := c.spend(len(b)); may < len(b) {
		n, _ := c.Conn.Write(b[:may])
		c.strike()
		return n, errCut
	}
	return c.Conn.Write(b)
}

func (c *line) strike() {
	if c.drop(rand.IntN(2) == 0) {
		c.of.cuts.Add(1)
		if c.far {
			c.of.far.Add(1)
		}
	}
}

// drop ends a connection, by a reset or as if it were over. It reports whether
// it was still there.
func (c *line) drop(hard bool) (dropped bool) {
	c.once.Do(func() {
		dropped = true
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		if tcp, ok := c.Conn.(*net.TCPConn); ok && hard {
			_ = tcp.SetLinger(0)
		}
		_ = c.Conn.Close()
	})
	return dropped
}

// Close is the client's.
func (c *line) Close() error {
	c.drop(false)
	return nil
}
