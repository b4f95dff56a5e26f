package faults

import (
	"context"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// way is what goes through a proxy in one direction.
type way int

const (
	none way = iota // nothing is cut
	fromServer
	fromClient
)

// cuts is a TCP proxy that closes the first connection after so many bytes one
// way, or all of them when it is told to.
type cuts struct {
	url   string
	close func()

	mu    sync.Mutex
	conns []net.Conn // open ones; protected by mu
	count int        // of connections so far; protected by mu
	bytes [3]int64   // of the first connection, each way; protected by mu
}

func newCuts(t *testing.T, url string, cut way, after int64) *cuts {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuts{url: "http://" + listener.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.count++
			first := p.count == 1
			p.mu.Unlock()
			carry := func(to, from net.Conn, w way) {
				src := io.Reader(struct{ io.Reader }{from}) // no splice: its pipes stay open for a while
				if first && cut == w {
					src = io.LimitReader(src, after)
				}
				n, _ := io.Copy(struct{ io.Writer }{to}, src)
				_ = from.Close()
				_ = to.Close()
				p.mu.Lock()
				defer p.mu.Unlock()
				if first {
					p.bytes[w] = n
				}
			}
			wg.Go(func() { carry(out, in, fromClient) })
			wg.Go(func() { carry(in, out, fromServer) })
		}
	})
	p.close = sync.OnceFunc(func() {
		_ = listener.Close()
		p.all()
		wg.Wait()
	})
	t.Cleanup(p.close)
	return p
}

// all closes the connections that are open.
func (p *cuts) all() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// carried is how many bytes the first connection has carried one way.
func (p *cuts) carried(w way) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes[w]
}

// tally counts the runs of tools.
type tally struct {
	mu   sync.Mutex
	runs map[string]int // protected by mu
}

func (y *tally) add(tool string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs[tool]++
}

func (y *tally) counts() map[string]int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Clone(y.runs)
}

// fakeArgs are the arguments that the fake models call tools with.
type fakeArgs struct {
	Z int    `json:"z"`
	A string `json:"a"`
}

// offer has a client offer tools.
func (b *fixture) offer(c *client.Client, tools ...string) *tally {
	b.t.Helper()
	y := &tally{runs: map[string]int{}}
	for _, name := range tools {
		if err := client.AddTool(c, name, "the tool "+name, func(context.Context, fakeArgs) (any, error) {
			y.add(name)
			return "result of " + name + ", " + payload, nil
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	return y
}
