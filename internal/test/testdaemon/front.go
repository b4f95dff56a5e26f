package testdaemon

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/memowners"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

// Where daemons of a test find each other, and by what they know each other.
const (
	ownerAddress  = "http://owner.test"
	frontSecret   = session.Secret("what the daemons of a test know each other by")
	frontLastWord = "the front"
)

// BehindFront has clients talk to a daemon that owns no session: it forwards to the daemon under test, over the store
// that they share. The option comes after all others.
func BehindFront(t testing.TB) Option {
	t.Helper()
	return func(c *Config) {
		group := memowners.New(c.Daemon.Store)
		if err := group.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		owner, front := group.Join(ownerAddress), group.Join(frontLastWord)
		front.Drain() // it takes no sessions
		inFront := c.Daemon
		c.Daemon.Store = owner
		c.Daemon.Beside = daemon.Beside{Owners: owner, Address: ownerAddress, Secret: frontSecret}
		next := c.Front
		c.Front = func(hc *http.Client, url string) http.Handler {
			inFront.Store, inFront.HandlerOnly, inFront.Listener = notClosed{front}, true, nil
			inFront.Beside = daemon.Beside{
				Owners: front, Front: true, Address: frontLastWord, Secret: frontSecret, Client: rehost{hc, url},
			}
			d, err := daemon.New(inFront)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := d.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			})
			if next != nil {
				t.Error("a test with a front of its own has no second one")
			}
			return d.Handler()
		}
	}
}

// notClosed is a store that another daemon closes.
type notClosed struct{ store.Store }

// Close does nothing.
func (notClosed) Close() error { return nil }

// rehost is a client for whom ownerAddress is a URL.
type rehost struct {
	hc  *http.Client
	url string
}

// Do implements connect.HTTPClient.
func (r rehost) Do(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(r.url)
	if err != nil {
		return nil, err
	}
	req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, to.Host
	return r.hc.Do(req)
}
