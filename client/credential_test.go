package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/principal"
)

// gate takes tokens of the form "token-N" of one principal: each is valid for a time from when it was made.
type gate struct {
	valid time.Duration

	mu      sync.Mutex // protects the fields below
	made    map[string]time.Time
	revoked map[string]bool
	asked   int
}

// token is the source of a client.
func (g *gate) token(context.Context) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	for name, made := range g.made { // it is kept until it ends
		if time.Since(made) < g.valid && !g.revoked[name] {
			return name, nil
		}
	}
	name := fmt.Sprint("token-", len(g.made))
	g.made[name] = time.Now()
	return name, nil
}

func (g *gate) authenticate(r *http.Request) (principal.Principal, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.mu.Lock()
	defer g.mu.Unlock()
	made, ok := g.made[name]
	if !ok || g.revoked[name] || time.Since(made) >= g.valid {
		return principal.Principal{}, fmt.Errorf("%q is worth nothing", name)
	}
	return principal.Principal{ID: "ann", Expires: made.Add(g.valid)}, nil
}

func (g *gate) revokeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.made {
		g.revoked[name] = true
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.made)
}

// minutes is a script whose one response takes minutes.
const minutes = `answers: [{text: "one two three four five six seven eight nine ten", chunk_delay: 40s}]`

// TestTokensEnd: a turn that is longer than the tokens of its client is one turn, of which nothing is lost and nothing
// comes twice, over Run, over SessionService and for who watches the session.
func TestTokensEnd(t *testing.T) {
	for name, opts := range map[string][]client.Option{"Run": nil, "SessionService": {client.WithHTTP1()}} {
		for _, revoke := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", revoked ", revoke), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tokensEnd(t, opts, revoke) })
			})
		}
	}
}

func tokensEnd(t *testing.T, opts []client.Option, revoke bool) {
	g := &gate{valid: 45 * time.Second, made: map[string]time.Time{}, revoked: map[string]bool{}}
	if revoke {
		g.valid = 24 * time.Hour
	}
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"minutes": minutes}}, testdaemon.WithAuthentication(g.authenticate))
	c := d.Client(append(opts, client.WithTokenSource(g.token))...)
	s := c.NewSession(client.LLM("root", "scripted/minutes"))
	if revoke {
		go func() {
			for range 3 {
				time.Sleep(100 * time.Second)
				g.revokeAll()
			}
		}()
	}
	var text strings.Builder
	starts, ends := 0, 0
	for ev, err := range s.Stream(t.Context(), "go") {
		if err != nil {
			t.Fatal(err)
		}
		switch data := ev.Data.(type) {
		case *client.TurnStarted:
			starts++
		case *client.OutputChunk:
			text.WriteString(data.Content)
		case *client.End:
			ends++
		}
	}
	if got := text.String(); starts != 1 || ends != 1 || got != "one two three four five six seven eight nine ten" {
		t.Errorf("%d starts, %d ends, %q", starts, ends, got)
	}
	if n := g.count(); n < 4 {
		t.Errorf("the run needed %d tokens, want several", n)
	}
	info, err := s.Info(t.Context())
	if err != nil || info.CreatedBy != "ann" {
		t.Errorf("the session is %+v, %v", info, err)
	}
}

// TestTokensWithoutAnother: a client whose source has no other token gets the error; the turn continues.
func TestTokensWithoutAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{valid: 24 * time.Hour, made: map[string]time.Time{}, revoked: map[string]bool{}}
		d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"minutes": minutes}}, testdaemon.WithAuthentication(g.authenticate))
		first, err := g.token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := d.Client(client.WithAPIKey(first)).NewSession(client.LLM("root", "scripted/minutes"))
		time.AfterFunc(100*time.Second, g.revokeAll)
		began := time.Now()
		_, err = s.Send(t.Context(), "go")
		if !errors.Is(err, client.ErrUnauthenticated) || time.Since(began) < 100*time.Second || time.Since(began) > 135*time.Second {
			t.Errorf("after %v: %v, want UNAUTHENTICATED within half a minute of the revocation", time.Since(began), err)
		}
		next := d.Client(client.WithTokenSource(g.token)).Session(s.ID())
		last := ""
		for ev, err := range next.Attach(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if end, ok := ev.Data.(*client.End); ok {
				last = fmt.Sprint(end.Completed)
			}
		}
		if last != "true" {
			t.Errorf("the turn has ended with completed %q", last)
		}
	})
}

// TestTokenSourceFails: a source that has no token for a while is an outage like others.
func TestTokenSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{valid: 45 * time.Second, made: map[string]time.Time{}, revoked: map[string]bool{}}
		d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"minutes": minutes}}, testdaemon.WithAuthentication(g.authenticate))
		began := time.Now()
		source := func(ctx context.Context) (string, error) {
			if at := time.Since(began); at > 2*time.Minute && at < 3*time.Minute {
				return "", errors.New("the issuer is down")
			}
			return g.token(ctx)
		}
		s := d.Client(client.WithTokenSource(source)).NewSession(client.LLM("root", "scripted/minutes"))
		if _, err := s.Send(t.Context(), "go"); err != nil {
			t.Error(err)
		}
	})
}
