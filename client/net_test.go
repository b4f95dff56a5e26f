package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// memNet is a network of one server in memory, for tests on fake time.
type memNet struct {
	t     *testing.T
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemNet(t *testing.T, f script) *memNet {
	t.Helper()
	return newMemNetOf(t, f)
}

func newMemNetOf(t *testing.T, f agentdv1connect.AgentdHandler) *memNet {
	t.Helper()
	n := &memNet{t: t, conns: make(chan net.Conn), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(f))
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(n) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
		synctest.Wait()
	})
	return n
}

func (n *memNet) client(opts ...client.Option) *client.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: n.dial}
	transport.Protocols.SetUnencryptedHTTP2(true)
	opts = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: transport})}, opts...)
	return dial(n.t, "http://memory", opts...)
}

func (n *memNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *memNet) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *memNet) Close() error {
	n.once.Do(func() { close(n.done) })
	return nil
}

func (n *memNet) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func greeting(_ context.Context, s *peer) error {
	if err := steps(s.started, func() error { return s.call("c", "greet", `{"n":1}`) }); err != nil {
		return err
	}
	m, err := s.toolResult()
	if err != nil {
		return err
	}
	return steps(
		func() error { return s.text(m.GetOutput(), true, "root") },
		func() error { return s.end(true, "") },
	)
}

func greet(_ context.Context, in numbered) (any, error) { return fmt.Sprint("hello ", in.N), nil }

func TestProtocols(t *testing.T) {
	options := map[string][]client.Option{
		"connect":  nil,
		"grpc":     {client.WithGRPC()},
		"grpc-web": {client.WithGRPCWeb()},
		"json":     {client.WithConnectOptions(connect.WithProtoJSON())},
	}
	for name, opts := range options {
		for _, tls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tls=%v", name, tls), func(t *testing.T) {
				srv := start(t, greeting, tls)
				if tls {
					opts = append(opts, client.WithTLSConfig(srv.Client().Transport.(*http.Transport).TLSClientConfig))
				}
				c := dial(t, srv.URL+"/", opts...)
				mustAdd(t, client.AddTool(c, "greet", "greets", greet))
				res, err := c.Do(t.Context(), llm("greet"), "hi")
				if err != nil || res.Text != "hello 1" || !res.Completed {
					t.Errorf("got %+v, %v", res, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for event, err := range c.Run(ctx, llm("greet"), "hi") {
					if err == nil && as[*client.TurnStarted](event) != nil {
						cancel()
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("want the context's error, got %v", err)
					}
				}
			})
		}
	}
}

func TestServerWithoutHTTP2(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(script(greeting)))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	soon := client.WithReconnect(client.ReconnectPolicy{Base: time.Millisecond, Cap: 10 * time.Millisecond})
	t.Run("default client", func(t *testing.T) {
		t.Parallel() // it waits
		if _, err := dial(t, srv.URL, soon).Do(t.Context(), llm(), "hi"); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("want UNAVAILABLE, got %v", err)
		}
	})
	t.Run("HTTP/1.1 client", func(t *testing.T) {
		t.Parallel() // it waits
		c := dial(t, srv.URL, soon, client.WithHTTPClient(srv.Client()))
		if _, err := c.Do(t.Context(), llm(), "hi"); err == nil {
			t.Error("want an error")
		}
	})
}

// TestRedirectIsNotFollowed because it would carry keys elsewhere.
func TestRedirectIsNotFollowed(t *testing.T) {
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("X-Agentd-Gemini-Api-Key") != "" || leaked.Load())
	}))
	defer other.Close()
	var asked atomic.Int32
	redirect := http.RedirectHandler(other.URL+"/a-secret", http.StatusFound)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		redirect.ServeHTTP(w, r)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Start()
	defer srv.Close()
	own := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	own.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	for _, opts := range [][]client.Option{nil, {client.WithHTTPClient(own)}} {
		c := dial(t, srv.URL, opts...)
		for name, events := range map[string]iter.Seq2[*client.Event, error]{
			"Run":    c.Run(t.Context(), llm(), "hi", client.WithProviderKey("gemini", "k")),
			"Attach": c.Attach(t.Context(), session),
		} {
			var err error
			for _, err = range events {
			}
			if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "redirects to "+other.URL+",") ||
				strings.Contains(err.Error(), "a-secret") {
				t.Errorf("%s: want INVALID_REQUEST that names %s and no more of the address, got %v", name, other.URL, err)
			}
		}
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("%d requests, want 4: a redirect is final", n)
	}
	if own.CheckRedirect != nil {
		t.Error("the caller's HTTP client was changed")
	}
	if leaked.Load() {
		t.Error("the key went to another host")
	}
}

func TestManyRunsOnOneClient(t *testing.T) {
	url := serve(t, func(ctx context.Context, s *peer) error {
		if s.execute.GetUserPrompt() == "leave" {
			if err := steps(s.started, func() error { return s.text("x", false, "root") }); err != nil {
				return err
			}
			_, err := s.receive()
			return err
		}
		if err := s.started(); err != nil {
			return err
		}
		id := s.execute.GetUserPrompt()
		for i := range 4 {
			if err := s.call(fmt.Sprintf("%s-%d", id, i), "greet", fmt.Sprintf(`{"n":%d}`, i)); err != nil {
				return err
			}
		}
		for range 4 {
			if _, err := s.toolResult(); err != nil {
				return err
			}
		}
		return steps(func() error { return s.text(id, true, "root") }, func() error { return s.end(true, "") })
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "greet", "greets", greet))
	agent := llm("greet")
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if i%4 == 3 {
				for event, err := range c.Run(t.Context(), agent, "leave") {
					if err != nil || event.OutputChunk != nil {
						break
					}
				}
				return
			}
			res, err := c.Do(t.Context(), agent, fmt.Sprint(i))
			if err != nil || res.Text != fmt.Sprint(i) {
				t.Errorf("run %d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
}

// TestBlackhole cuts the network without a word, like a pulled cable: the
// heartbeat is what notices.
func TestBlackhole(t *testing.T) {
	upstream := start(t, func(_ context.Context, s *peer) error {
		if err := s.started(); err != nil {
			return err
		}
		_, err := s.receive()
		return err
	}, false)
	var cut atomic.Bool
	proxy := newProxy(t, upstream.Listener.Addr().String(), &cut)
	c := dial(t, "http://"+proxy, client.WithHeartbeatInterval(20*time.Millisecond))
	var last error
	for event, err := range c.Run(t.Context(), llm(), "hi") {
		last = err
		if err == nil && as[*client.TurnStarted](event) != nil {
			cut.Store(true)
		}
	}
	if failure, ok := errors.AsType[*client.Error](last); !ok || !errors.Is(last, client.ErrUnavailable) || !failure.Retryable {
		t.Errorf("want a retryable UNAVAILABLE, got %v", last)
	}
}

// newProxy forwards TCP to addr and swallows everything once cut is set.
func newProxy(t *testing.T, addr string, cut *atomic.Bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []io.Closer
	pipe := func(dst, src net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			if !cut.Load() {
				_, _ = dst.Write(buf[:n])
			}
		}
	}
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				t.Errorf("proxy: %v", err)
				_ = in.Close()
				return
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			wg.Go(func() { pipe(out, in) })
			wg.Go(func() { pipe(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return listener.Addr().String()
}
