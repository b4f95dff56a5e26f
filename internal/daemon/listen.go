package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// sniffTimeout is how long a new connection may take to send its first byte.
const sniffTimeout = 5 * time.Second

// tlsHandshake is the first byte of a TLS connection: a record of type
// handshake. No HTTP request begins with it.
const tlsHandshake = 0x16

// listen returns the listener of the config, or one on its address, which is judged before anybody can connect; nil for
// a daemon that does not listen.
func (d *Daemon) listen(ctx context.Context) (net.Listener, error) {
	if l := d.cfg.Listener; l != nil {
		if err := d.mayListen(ctx, l.Addr()); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	}
	if d.cfg.HandlerOnly {
		return nil, nil //nolint:nilnil // it is no error
	}
	addr, err := net.ResolveTCPAddr("tcp", d.cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("daemon: listen on %q: %w", d.cfg.Addr, err)
	}
	if err := d.mayListen(ctx, addr); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, fmt.Errorf("daemon: listen on %q: %w", d.cfg.Addr, err)
	}
	return l, nil
}

// limited is a listener with a bounded number of connections; more wait in the
// system's queue.
type limited struct {
	net.Listener
	free   chan struct{} // holds one token per open connection
	once   sync.Once
	closed chan struct{} // closed by Close
}

func limit(l net.Listener, n int) *limited {
	return &limited{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// split hands each connection of a listener to one of two: those that begin a
// TLS handshake, and the others. A goroutine accepts, one more for each
// connection waits, bounded, for its first byte; all end with close.
type split struct {
	l          net.Listener
	tls, plain *branch
	ctx        context.Context //nolint:containedctx // ends with close
	cancel     context.CancelFunc
	wg         sync.WaitGroup
}

func splitTLS(l net.Listener, cfg *tls.Config) *split {
	ctx, cancel := context.WithCancel(context.Background())
	s := &split{l: l, ctx: ctx, cancel: cancel}
	s.plain = &branch{s: s, conns: make(chan net.Conn)}
	s.tls = &branch{s: s, conns: make(chan net.Conn), cfg: cfg}
	s.wg.Go(s.accept)
	return s
}

func (s *split) accept() {
	defer s.cancel()
	for {
		c, err := s.l.Accept()
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			continue
		}
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				// As net/http does: out of descriptors is no reason to end.
				select {
				case <-time.After(100 * time.Millisecond):
					continue
				case <-s.ctx.Done():
				}
			}
			return
		}
		s.wg.Go(func() { s.sort(c) })
	}
}

// sort looks at a connection's first byte and hands it on.
func (s *split) sort(c net.Conn) {
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	p := &peeked{Conn: c, r: bufio.NewReaderSize(c, 16)}
	err := c.SetReadDeadline(time.Now().Add(sniffTimeout))
	var first []byte
	if err == nil {
		first, err = p.r.Peek(1)
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil || !stop() {
		_ = c.Close()
		return
	}
	to := s.plain
	if first[0] == tlsHandshake {
		to = s.tls
	}
	select {
	case to.conns <- p:
	case <-s.ctx.Done():
		_ = c.Close()
	}
}

// close ends both branches and waits for the goroutines.
func (s *split) close() error {
	s.cancel()
	err := s.l.Close()
	s.wg.Wait()
	return err
}

// branch is one of a split's listeners.
type branch struct {
	s     *split
	conns chan net.Conn
	cfg   *tls.Config // nil for the plain one
}

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		if b.cfg != nil {
			return tls.Server(c, b.cfg), nil
		}
		return c, nil
	case <-b.s.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (b *branch) Close() error   { return b.s.close() }
func (b *branch) Addr() net.Addr { return b.s.l.Addr() }

// peeked is a connection whose first bytes have been looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) {
	if p.r.Buffered() == 0 {
		return p.Conn.Read(b)
	}
	return p.r.Read(b)
}
