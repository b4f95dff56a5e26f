package testdaemon

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Listener is a net.Listener whose connections are pipes in memory. They work
// inside a testing/synctest bubble, where those of a network do not: a
// goroutine that waits for one is durably blocked.
type Listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{} // closed by Close
}

// NewListener returns an open listener.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the server's end of the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections; those that are open stay. It may be called
// again.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns an address that is on no network.
func (l *Listener) Addr() net.Addr { return addr{} }

// DialContext opens a connection, whatever network and address are.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case l.conns <- conn{server}:
		return conn{client}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: addr{}.Network(), Addr: addr{}, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Transport returns an HTTP/2 transport that dials the listener. The caller
// closes its idle connections.
func (l *Listener) Transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{DialContext: l.DialContext, Protocols: protocols}
}

// URL is what to give to a client that uses Transport.
func (l *Listener) URL() string { return "http://" + addr{}.String() }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "agentd.test:80" }

// conn is a pipe's end with our address.
type conn struct{ net.Conn }

func (conn) LocalAddr() net.Addr  { return addr{} }
func (conn) RemoteAddr() net.Addr { return addr{} }
