package faults

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// TestFaultContextCancelled is F09: the end of a client's context ends its Receive
// and reaches the daemon, while nothing comes from the model.
func TestFaultContextCancelled(t *testing.T) {
	b := newFixture(t, askerScripts)
	for name, opts := range harness.Protocols {
		t.Run(name, func(t *testing.T) {
			b := *b
			b.t = t
			// A stream that is cancelled is a client that leaves.
			mark := "<turn raw." + name + ">"
			b.models.freeze(mark)
			c := b.chain(allTools, opts...)
			ex := harness.StartTurn(fakeAgent("asker", "look", "one"), allTools...)
			ex.GetExecute().UserPrompt, ex.GetExecute().OnDisconnect = mark+payload, agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL
			c.send(ex)
			c.next()
			b.models.begun(mark)
			bidi, got := c.bidi, make(chan error, 1)
			go func() {
				for { // what was on its way comes first
					if _, err := bidi.Receive(); err != nil {
						got <- err
						return
					}
				}
			}()
			begin := time.Now()
			c.drop()
			err := <-got
			t.Logf("Receive has returned after %v", time.Since(begin))
			if connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("Receive returned %v", err)
			}
			b.models.quiet(mark) // the turn is being cancelled: a client that is back earlier keeps it
			c.attach()
			if end := c.rest(); end.GetCompleted() || end.GetReason() != "the client disconnected" {
				t.Errorf("got %v", end)
			}
			t.Logf("the turn was over after %v", time.Since(begin))
			c.whole = false
			b.check(c.session, c)

			// A Run whose context is cancelled cancels its turn.
			mark = "<turn run." + name + ">"
			b.models.freeze(mark)
			clnt := b.client(b.url, client.WithConnectOptions(opts...))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			id := ""
			for ev, err := range clnt.Run(ctx, fakeAgent("asker"), mark+payload) {
				switch {
				case err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("Run ended with %v", err)
				case err == nil && harness.As[*client.TurnStarted](ev) != nil:
					id = ev.SessionID
					cancel()
				}
			}
			b.awaitEnd(id)
			if turns := b.check(id); turns[0].Ended.Completed || turns[0].Ended.Receipt == nil {
				t.Errorf("the turn has ended as %+v", turns[0].Ended)
			}
		})
	}
}

// cable is a client's connection that can go dead: nothing arrives any more, and
// nobody is told.
type cable struct {
	net.Conn
	once   sync.Once
	cut    chan struct{} // closed when the cable is cut
	closed chan struct{} // closed by Close
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.cut:
		<-c.closed // what has arrived is lost
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *cable) Write(p []byte) (int, error) {
	select {
	case <-c.cut:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// watched is a listener that tells when its first connection is closed.
type watched struct {
	*testdaemon.Listener
	once   sync.Once
	closed chan struct{}
}

func (w *watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	out := c
	w.once.Do(func() { out = &ending{Conn: c, end: sync.OnceFunc(func() { close(w.closed) })} })
	return out, nil
}

type ending struct {
	net.Conn
	end func()
}

func (e *ending) Close() error {
	e.end()
	return e.Conn.Close()
}

// TestFaultHalfOpen is F08: a client whose network is gone without a word is
// missed after 15 s of silence and 15 s without an answer to a ping; then its
// connection is closed. Its turn does what was asked for: it waits for a client, or
// is cancelled.
func TestFaultHalfOpen(t *testing.T) {
	const script = `answers: [{text: "Two things. ", calls: [{name: look}]}, {text: "Thank you."}]`
	for name, policy := range map[string]agentdv1.OnDisconnect{
		"waits": agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE, "is cancelled": agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
				if err != nil {
					t.Fatal(err)
				}
				l := &watched{Listener: testdaemon.NewListener(), closed: make(chan struct{})}
				d, err := daemon.New(daemon.Config{Listener: l, Store: &harness.RecordedStore{Store: disk, Keep: true}, Scripts: map[string]string{"asker": script}})
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				wire := &cable{cut: make(chan struct{}), closed: make(chan struct{})}
				dead := l.Transport()
				dead.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					wire.Conn, err = l.DialContext(ctx, network, addr)
					return wire, err
				}
				b := &fixture{t: t, hc: &http.Client{Transport: dead}, url: l.URL()}
				c := b.chain(allTools)
				ex := harness.StartTurn(harness.ScriptedAgent("root", "asker", "look"), "look")
				ex.GetExecute().OnDisconnect = policy
				c.send(ex)
				call := c.until(isCall).GetToolCall()
				close(wire.cut)
				begin := time.Now()
				<-l.closed
				if took := time.Since(begin); took < 15*time.Second || took > 31*time.Second {
					t.Errorf("the connection was closed after %v, want 15s and 15s", took)
				}
				_ = wire.Close()
				c.drop()
				synctest.Wait() // what follows from it has happened

				alive := l.Transport()
				b.hc = &http.Client{Transport: alive}
				c.attach()
				end := c.rest()
				if name == "waits" && (!end.GetCompleted() || c.first[call.GetToolCallId()] == "") {
					t.Errorf("got %v, want the call asked again and the turn completed", end)
				}
				if name == "is cancelled" && (end.GetCompleted() || end.GetReason() != "the client disconnected") {
					t.Errorf("got %v, want a turn that was cancelled", end)
				}
				turns := harness.ReadLog(t.Context(), t, disk, c.session)
				c.inLog(t, b.told(c.session, 0), turns)
				c.stands(t, turns)
				dead.CloseIdleConnections()
				alive.CloseIdleConnections()
				stop, cancel := context.WithCancel(t.Context())
				cancel()
				if err := errors.Join(d.Shutdown(stop), disk.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
