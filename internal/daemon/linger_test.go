package daemon_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// The server ends a stream when the client has closed its side, or after a while.
// Ours closes it whenever there is nothing to wait for; the time is a bubble's.
func TestNobodyLingers(t *testing.T) {
	for name, tc := range map[string]func(*testing.T, *agentdtest.Daemon, *client.Client){
		"a request is refused": func(t *testing.T, _ *agentdtest.Daemon, c *client.Client) {
			if _, err := c.Do(t.Context(), llm("no name", "echo"), "hi"); !errors.Is(err, client.ErrInvalidAgentTree) {
				t.Errorf("got %v", err)
			}
		},
		"an attach is refused": func(t *testing.T, _ *agentdtest.Daemon, c *client.Client) {
			for _, err := range c.Attach(t.Context(), "nobody") {
				if !errors.Is(err, client.ErrSessionNotFound) {
					t.Errorf("got %v", err)
				}
			}
		},
		"there is nothing to tell": func(t *testing.T, _ *agentdtest.Daemon, c *client.Client) {
			id, last := "", int64(0)
			for e, err := range c.Run(t.Context(), llm("root", "echo"), "hi") {
				if err != nil {
					t.Fatal(err)
				}
				if as[*client.TurnStarted](e) != nil {
					id = e.SessionID
				}
				last = e.Seq
			}
			for e, err := range c.Attach(t.Context(), id, client.WithAfterSeq(last)) {
				t.Errorf("got %v, %v", e, err)
			}
		},
		"the server stops": func(t *testing.T, d *agentdtest.Daemon, c *client.Client) {
			called := make(chan struct{})
			err := client.AddTool(c, "wait", "waits", func(ctx context.Context, _ struct{}) (any, error) {
				close(called)
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := c.Do(t.Context(), llm("root", "scripted/demo", "wait"), "go")
				ended <- err
			}()
			<-called
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := agentdtest.Start(t, agentdtest.Config{})
				c := d.Client(client.WithReconnect(client.ReconnectPolicy{Off: true}))
				defer c.CloseIdleConnections()
				begin := time.Now()
				tc(t, d, c)
				// Who lingers is there for 2 s. When the server stops just as a stream
				// ends, net/http leaves the client a second to close the connection.
				if took := time.Since(begin); took >= 2*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
