package server

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// proof is the credential of a stream, which must hold as long as the stream is open. Only the goroutine of its handler
// uses it. A nil proof is that of a server that authenticates nobody.
type proof struct {
	srv       *Server
	request   *http.Request
	principal principal.Principal
	timer     *time.Timer
}

type requestKey struct{}

// proofOf returns the proof of the request of a context.
func (s *Server) proofOf(ctx context.Context) *proof {
	r, ok := ctx.Value(requestKey{}).(*http.Request)
	if !ok {
		return nil
	}
	p := &proof{srv: s, request: r, principal: principal.Of(ctx)}
	p.timer = time.NewTimer(p.wait())
	return p
}

// wait is the time until the credential is to be looked at once more: at its end, or after a while, since it may be
// revoked.
func (p *proof) wait() time.Duration {
	d := p.srv.now().ReauthenticateEvery
	if e := p.principal.Expires; !e.IsZero() {
		d = max(0, min(d, time.Until(e)))
	}
	return d
}

// due receives when the credential is to be looked at.
func (p *proof) due() <-chan time.Time {
	if p == nil {
		return nil
	}
	return p.timer.C
}

// again returns why the stream must end, or nil.
func (p *proof) again() *fault.Error {
	now, err := p.srv.now().Authenticate(p.request)
	expired := !p.principal.Expires.IsZero() && !time.Now().Before(p.principal.Expires)
	if err != nil && (!isPassing(err) || expired) || err == nil && !same(now, p.principal) {
		return fault.Errorf(codeUnauthenticated, "the credential of this stream has expired or was revoked; "+
			"the turn continues: attach to it, behind the last seq, with another credential")
	}
	if err == nil {
		p.principal = now
	}
	p.timer.Reset(p.wait())
	return nil
}

// same reports whether two principals may do the same; their credentials may end at different times.
func same(a, b principal.Principal) bool {
	a.Expires, b.Expires, a.Via, b.Via = time.Time{}, time.Time{}, "", ""
	a.Own, b.Own = false, false // that is of the route
	return reflect.DeepEqual(a, b)
}

func (p *proof) stop() {
	if p != nil {
		p.timer.Stop()
	}
}
