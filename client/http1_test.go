package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// gateway forwards to a server, and speaks HTTP/1.1 alone on both sides.
func gateway(t *testing.T, to string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{Protocols: protocols}
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	srv.Config.Protocols = protocols
	srv.Start()
	t.Cleanup(func() {
		stop(srv)
		transport.CloseIdleConnections()
	})
	return srv.URL
}

// A turn with tools passes a gateway that knows HTTP/1.1 alone, and so does one that
// another client follows.
func TestHTTP1(t *testing.T) {
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0"})
	via := gateway(t, s.d.URL)
	c := dial(t, via, quick, client.WithHTTP1())
	runs := doubler(t, c)
	chat := c.NewSession(actor("double"))
	var model sync.WaitGroup
	model.Go(func() {
		s.next(t).gets(t, reply{text: "Let me see.", calls: []string{`double {"n": 21}`}})
		call := s.next(t)
		if len(call.results) != 1 || !strings.Contains(call.results[0], "42") {
			t.Errorf("the model was told %q", call.results)
		}
		call.gets(t, reply{text: "It is 42."})
	})
	if res, err := chat.Send(t.Context(), "twice 21?"); err != nil || res.Text != "Let me see.It is 42." || runs.Load() != 1 {
		t.Errorf("%v, got %+v after %d runs of the tool", err, res, runs.Load())
	}
	model.Wait()
	s.will(t, reply{text: "Gladly."})
	if res, err := chat.Send(t.Context(), "thanks"); err != nil || res.Text != "Gladly." {
		t.Errorf("%v, got %+v", err, res)
	}
	var seen [2][]string
	for i, c := range []*client.Client{c, dial(t, s.d.URL)} {
		for e, err := range c.Attach(t.Context(), chat.ID(), client.WithAfterSeq(0)) {
			if err != nil {
				t.Fatal(err)
			}
			seen[i] = append(seen[i], fmt.Sprintf("%d %T", e.Seq, e.Data))
		}
	}
	if len(seen[0]) == 0 || !slices.Equal(seen[0], seen[1]) {
		t.Errorf("attached, over HTTP/1.1 and over HTTP/2:\n%q\n%q", seen[0], seen[1])
	}
	plain := dial(t, via, client.WithReconnect(client.ReconnectPolicy{Off: true}))
	for _, err := range plain.Run(t.Context(), actor(), "hi") {
		if err == nil {
			t.Error("the gateway takes HTTP/2")
		}
	}
}

// What the server refuses is an error with its code, and the run leaves nothing behind.
func TestHTTP1Refusals(t *testing.T) {
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0"})
	c := dial(t, gateway(t, s.d.URL), quick, client.WithHTTP1())
	var failed *client.Error
	for _, err := range c.Attach(t.Context(), "none") {
		if !errors.As(err, &failed) || failed.Code != client.ErrSessionNotFound {
			t.Errorf("attaching to no session: %v", err)
		}
	}
	for _, err := range c.Run(t.Context(), actor(), " ") {
		if !errors.As(err, &failed) || failed.Code != client.ErrInvalidRequest || len(failed.Violations) == 0 {
			t.Errorf("an empty prompt: %v", err)
		}
	}
	away := dial(t, "http://127.0.0.1:1", quick, client.WithHTTP1())
	for _, err := range away.Run(t.Context(), actor(), "hi") {
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("without a server: %v", err)
		}
	}
}

// Whoever leaves a run cancels its turn.
func TestHTTP1Cancel(t *testing.T) {
	for name, leave := range map[string]func(context.CancelFunc) bool{
		"break":   func(context.CancelFunc) bool { return false },
		"context": func(cancel context.CancelFunc) bool { cancel(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0"})
			c := dial(t, gateway(t, s.d.URL), quick, client.WithHTTP1())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var session string
			for e, err := range c.Run(ctx, actor(), "hi") {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					break
				}
				if session = e.SessionID; !leave(cancel) {
					break
				}
			}
			turn, err := c.Session(session).Turn(t.Context(), "")
			for err == nil && turn.Status != client.TurnCanceled && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
				turn, err = c.Session(session).Turn(t.Context(), "")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Connections that are cut after any number of bytes lose no text, repeat none and run no
// tool twice.
func TestHTTP1CutAtAnyByte(t *testing.T) {
	script := `answers:
  - when: {step: 1}
    text: "` + strings.Repeat("one two three ", 80) + `"
    calls: [{name: double, args: {n: 1}}, {name: double, args: {n: 2}}]
  - when: {}
    text: "` + strings.Repeat("done ", 80) + `"
`
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0", Scripts: map[string]string{"s": script}})
	lost := 0
	for seed := range uint64(12) {
		proxy := newCutter(t, strings.TrimPrefix(d.URL, "http://"), 1500, rand.New(rand.NewPCG(seed, 1)))
		c := dial(t, proxy, client.WithHTTP1(), client.WithReconnect(client.ReconnectPolicy{Base: 1000, Cap: 1e6, Dial: true}))
		var runs atomic.Int32
		mustAdd(t, client.AddTool(c, "double", "doubles", func(_ context.Context, in numbered) (any, error) {
			runs.Add(1)
			return 2 * in.N, nil
		}))
		text := ""
		var end *client.End
		for e, err := range c.Run(t.Context(), client.LLM("a", "scripted/s", client.Tools("double")), "go") {
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if e.OutputChunk != nil {
				text += e.OutputChunk.Content
			}
			if _, is := e.Data.(*client.ConnectionLost); is {
				lost++
			}
			if e.End != nil {
				end = e.End
			}
		}
		want := strings.Repeat("one two three ", 80) + strings.Repeat("done ", 80)
		if text != want || runs.Load() != 2 || end == nil || !end.Completed {
			t.Fatalf("seed %d: %d runs of the tool, end %+v, text\n%q\nwant\n%q", seed, runs.Load(), end, text, want)
		}
	}
	if lost == 0 {
		t.Error("no connection was cut")
	}
}
