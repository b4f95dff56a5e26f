package daemon_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// cable is a connection that can go dead: nothing arrives any more, and neither
// side is notified.
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

// The server notices by pings that a client has vanished, and its turn does what
// on_disconnect says.
func TestClientThatVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testdaemon.NewListener()
		d, err := daemon.New(daemon.Config{Listener: l, Scripts: map[string]string{"slow": `answers: [{text: "a", delay: 24h}]`}, ModelIdleTimeout: 48 * time.Hour, ModelTimeout: 48 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wire := &cable{cut: make(chan struct{}), closed: make(chan struct{})}
		tr := l.Transport()
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			wire.Conn, err = l.DialContext(ctx, network, addr)
			return wire, err
		}
		c := agentdv1connect.NewAgentdClient(&http.Client{Transport: tr}, l.URL()).Run(t.Context())
		start := execute(llm("root", "scripted/slow"), "go")
		start.GetExecute().OnDisconnect = agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL
		if err := c.Send(start); err != nil {
			t.Fatal(err)
		}
		if msg, err := c.Receive(); err != nil || msg.GetExecute() == nil {
			t.Fatalf("got %v, %v", msg, err)
		}
		synctest.Wait() // until its model responds
		close(wire.cut)
		begin := time.Now()
		soft, stopSoft := context.WithTimeout(context.Background(), 12*time.Hour)
		defer stopSoft()
		// The soft end waits for the turn, which ends when its client is missed.
		if err := d.Shutdown(soft); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 15*time.Second || took > 60*time.Second {
			t.Errorf("the client was missed after %v, want two times 15s", took)
		}
		_ = wire.Close()
		_ = c.CloseRequest()
		_ = c.CloseResponse()
		tr.CloseIdleConnections()
	})
}
