package postgres

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy stands between a store and a server, and reads the messages of PostgreSQL's protocol that it passes on.
type proxy struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	lose  string     // what becomes of the next commit: "", "before" it or "behind" it the connection is cut
	lost  int        // commits that were lost
	conns map[net.Conn]bool
}

// newProxy passes connections on to an address until the end of the test.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// url is that of a server behind the proxy.
func (p *proxy) url(url, addr string) string {
	return strings.Replace(url, addr, p.listener.Addr().String(), 1)
}

// loseNext cuts the connection of the next commit, behind it or before it.
func (p *proxy) loseNext(persisted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = map[bool]string{false: "before", true: "behind"}[persisted]
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) losses() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// loses reports whether this is the commit to lose, at a place.
func (p *proxy) loses(where string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose != where {
		return false
	}
	p.lose = ""
	p.lost++
	return true
}

// serve passes on what one connection says, until it ends.
func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	end := func() {
		_, _ = client.Close(), server.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}
	l := &link{proxy: p}
	var wg sync.WaitGroup
	wg.Go(func() { defer end(); l.forward(server, client) })
	wg.Go(func() { defer end(); l.back(client, server) })
	wg.Wait()
}

// link is a connection through a proxy.
type link struct {
	proxy *proxy
	mu    sync.Mutex // protects inTx
	inTx  bool       // the server is in a transaction that was begun
}

func (l *link) inTransaction() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inTx
}

var errCut = errors.New("cut")

// forward passes on messages of the client. A commit is the statement, or an execution outside a transaction.
func (l *link) forward(server io.Writer, client io.Reader) {
	in := bufio.NewReader(client)
	if _, err := message(in, server, false, nil); err != nil { // the first one has no type
		return
	}
	for {
		_, err := message(in, server, true, func(kind byte, body []byte) error {
			commit := kind == 'Q' && strings.EqualFold(string(body[:len(body)-1]), "commit")
			if (commit || kind == 'E' && !l.inTransaction()) && l.proxy.loses("before") {
				return errCut
			}
			return nil
		})
		if err != nil {
			return
		}
	}
}

// back passes on messages of the server. It keeps the results of statements until the server is ready for the next one:
// it has committed then.
func (l *link) back(client io.Writer, server io.Reader) {
	in := bufio.NewReader(server)
	var kept strings.Builder
	wrote := false // a statement of a transaction that ends with it
	for {
		_, err := message(in, &kept, true, func(kind byte, body []byte) error {
			switch kind {
			case 'C':
				tag := string(body[:len(body)-1])
				wrote = tag == "COMMIT" || !l.inTransaction() && tag != "BEGIN"
			case 'Z':
				l.mu.Lock()
				l.inTx = body[0] != 'I'
				l.mu.Unlock()
				if wrote && body[0] == 'I' && l.proxy.loses("behind") {
					return errCut
				}
				wrote = false
			}
			return nil
		})
		if err != nil {
			return
		}
		if in.Buffered() == 0 {
			if _, err := io.WriteString(client, kept.String()); err != nil {
				return
			}
			kept.Reset()
		}
	}
}

// message passes on one message, unless look returns an error, and returns its type.
func message(in *bufio.Reader, out io.Writer, typed bool, look func(kind byte, body []byte) error) (byte, error) {
	head := make([]byte, 4, 5)
	var kind byte
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, err
	}
	size := head
	if typed {
		kind, size = head[0], head[1:]
	}
	body := make([]byte, binary.BigEndian.Uint32(size)-4)
	if _, err := io.ReadFull(in, body); err != nil {
		return 0, err
	}
	if look != nil {
		if err := look(kind, body); err != nil {
			return 0, err
		}
	}
	_, err := out.Write(append(head, body...))
	return kind, err
}
