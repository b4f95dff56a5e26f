package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
)

// flaky is a network in memory that can be taken away.
type flaky struct {
	*memNet
	down  atomic.Bool
	dials atomic.Int32

	mu   sync.Mutex // protects open
	open []net.Conn
}

// cut takes the network away.
func (n *flaky) cut() {
	n.down.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.open {
		_ = conn.Close()
	}
}

func newFlaky(t *testing.T, l *turnLog) *flaky {
	t.Helper()
	return &flaky{memNet: newMemNetOf(t, l)}
}

func (n *flaky) client(opts ...client.Option) *client.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.dials.Add(1)
		if n.down.Load() {
			return nil, errors.New("no route")
		}
		conn, err := n.dial(ctx, network, addr)
		if err == nil {
			n.mu.Lock()
			n.open = append(n.open, conn)
			n.mu.Unlock()
		}
		return conn, err
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	opts = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: transport})}, opts...)
	return dial(n.t, "http://memory", opts...)
}

// half is a turn that says something and continues when more is closed.
func half(more <-chan struct{}) func(*turnLog) {
	return func(l *turnLog) {
		l.say("m", "one ")
		<-more
		l.say("m", "two")
		l.finish(true, "")
	}
}

// TestBudget measures on fake time how long a lost server is looked for.
func TestBudget(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			more := make(chan struct{})
			l := newTurnLog(t, half(more))
			defer close(more)
			net := newFlaky(t, l)
			c := net.client(client.WithReconnect(client.ReconnectPolicy{MaxElapsed: limit}))
			var begin time.Time
			var last error
			for event, err := range c.Run(t.Context(), llm(), "go") {
				last = err
				if err == nil && event.OutputChunk != nil {
					begin = time.Now()
					net.cut()
				}
			}
			want := limit
			if limit == 0 {
				want = client.DefaultReconnectMaxElapsed
			}
			failure, ok := errors.AsType[*client.Error](last)
			if !ok || !errors.Is(last, client.ErrUnavailable) || !failure.Retryable || failure.SessionID != session || !strings.Contains(last.Error(), "client.Attach") {
				t.Errorf("got %v", last)
			}
			if took := time.Since(begin); took != want {
				t.Errorf("gave up after %s, want %s", took, want)
			}
			// Half of Cap a try on average, after the first few.
			if n := int(net.dials.Load()); want > time.Second && (n < int(want/(5*time.Second)) || n > int(want/time.Second)) {
				t.Errorf("%d dials in %s", n, want)
			}
			if l.cancels != 0 {
				t.Error("the turn was cancelled")
			}
		})
	}
}

// TestCancelDuringBackoff: the run returns at once, and the server receives
// the cancel if it can be reached.
func TestCancelDuringBackoff(t *testing.T) {
	for _, reachable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			more := make(chan struct{})
			l := newTurnLog(t, half(more))
			defer close(more)
			net := newFlaky(t, l)
			c := net.client(client.WithReconnect(client.ReconnectPolicy{MaxElapsed: 1000 * time.Hour, Base: 100 * time.Hour, Cap: 100 * time.Hour}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var begin time.Time
			var last error
			for event, err := range c.Run(ctx, llm(), "go") {
				last = err
				if err == nil && event.OutputChunk != nil {
					net.cut()
					net.down.Store(!reachable)
					synctest.Wait() // the run waits to reconnect
					time.AfterFunc(time.Nanosecond, func() {
						begin = time.Now()
						cancel()
					})
				}
			}
			if !errors.Is(last, context.Canceled) {
				t.Errorf("want the context's error, got %v", last)
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("returned after %s", took)
			}
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if reachable && l.cancels != 1 {
				t.Errorf("the server was told %d times", l.cancels)
			}
		})
	}
}

// TestSilentStreamIsReplaced: a stream without replies to heartbeats is replaced.
func TestSilentStreamIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		close(more)
		l := newTurnLog(t, half(more))
		l.hook = func(ctx context.Context, stream int, s *peer) (bool, error) {
			if stream > 1 {
				return false, nil
			}
			msgs, _, _ := l.after(0)
			if err := s.send(msgs[0]); err != nil {
				return true, err
			}
			<-ctx.Done()
			return true, ctx.Err()
		}
		begin := time.Now()
		res, err := newFlaky(t, l).client().Do(t.Context(), llm(), "go")
		if err != nil || res.Text != "one two" {
			t.Errorf("got %+v, %v", res, err)
		}
		if took := time.Since(begin); took < 45*time.Second || took > 46*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestDial waits for a server that is not there yet.
func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		close(more)
		l := newTurnLog(t, half(more))
		net := newFlaky(t, l)
		net.down.Store(true)
		time.AfterFunc(time.Minute, func() { net.down.Store(false) })
		c := net.client(client.WithReconnect(client.ReconnectPolicy{Dial: true}))
		res, err := c.Do(t.Context(), llm(), "go")
		if err != nil || res.Text != "one two" || l.starts != 1 {
			t.Errorf("got %+v, %v, %d starts", res, err, l.starts)
		}
	})
}
