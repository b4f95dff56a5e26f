package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/apzuk3/agentd/internal/auth"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/test/issuer"
	"github.com/apzuk3/agentd/internal/test/memledger"
	"github.com/apzuk3/agentd/session/principal"
)

// counted counts the reads of a ledger.
type counted struct {
	ledger.Ledger
	reads  atomic.Int64
	broken atomic.Bool
}

func (c *counted) Key(ctx context.Context, id string) (ledger.APIKey, error) {
	c.reads.Add(1)
	if c.broken.Load() {
		return ledger.APIKey{}, errors.New("the disk is gone")
	}
	return c.Ledger.Key(ctx, id)
}

func (c *counted) HasKeys(ctx context.Context) (bool, error) {
	if c.broken.Load() {
		return false, errors.New("the disk is gone")
	}
	return c.Ledger.HasKeys(ctx)
}

func newLedger(t *testing.T) *counted {
	t.Helper()
	return &counted{Ledger: memledger.Open(t)}
}

func create(t *testing.T, l ledger.Ledger, kind ledger.Kind, p principal.Principal, via string) (text, id string) {
	t.Helper()
	text, k := auth.NewKey(kind, p)
	k.Via = via
	if err := l.CreateKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	return text, k.ID
}

func authenticator(t *testing.T, cfg auth.Config) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is one with headers, in pairs.
func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/x", http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func bearer(text string) *http.Request { return request("Authorization", "Bearer "+text) }

// refused checks that a request is refused, and why; the reason holds no secret.
func refused(t *testing.T, a *auth.Authenticator, what string, r *http.Request, want string) {
	t.Helper()
	p, err := a.Authenticate(r)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %+v, %v, want an error with %q", what, p, err, want)
		return
	}
	for _, h := range []string{"Authorization", "X-Api-Key"} {
		if secret := strings.TrimPrefix(r.Header.Get(h), "Bearer "); len(secret) > 30 && strings.Contains(err.Error(), secret[20:]) {
			t.Errorf("%s: the error holds the credential: %v", what, err)
		}
	}
}

func taken(t *testing.T, a *auth.Authenticator, what string, r *http.Request, want principal.Principal) {
	t.Helper()
	p, err := a.Authenticate(r)
	if err != nil || p.ID != want.ID || p.Tenant != want.Tenant || p.Role != want.Role {
		t.Errorf("%s: %+v, %v, want %+v", what, p, err, want)
	}
}

func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		a := authenticator(t, auth.Config{Ledger: l, Open: true})
		if open, err := a.IsOpen(t.Context()); err != nil || !open {
			t.Errorf("without a key: open is %v, %v", open, err)
		}
		taken(t, a, "without a key", request(), principal.Principal{ID: "local", Role: principal.Operator})
		taken(t, a, "a proxy's own credential", request("Authorization", "Basic eDp5"), principal.Principal{ID: "local", Role: principal.Operator})
		refused(t, a, "a key that was never made", bearer("agentd_key_abcdefghijkl_X"), "no such API key")

		ann := principal.Principal{ID: "ann", Tenant: "acme"}
		text, id := create(t, l, ledger.Key, ann, "")
		time.Sleep(auth.Freshness)
		refused(t, a, "no credential, after the first key", request(), "no credential")
		taken(t, a, "the key", bearer(text), ann)
		taken(t, a, "the key in the other header", request("X-Api-Key", text), ann)
		taken(t, a, "in both", request("X-Api-Key", text, "authorization", "bearer  "+text), ann)
		refused(t, a, "two of them", request("X-Api-Key", text, "Authorization", "Bearer x"), "send one of them")
		refused(t, a, "Basic", request("Authorization", "Basic "+text), "no credential")
		for _, wrong := range []string{text + "A", text[:len(text)-1], text[:len(text)-1] + "_", strings.ToLower(text)} {
			refused(t, a, "a wrong secret", bearer(wrong), "no such API key")
		}
		refused(t, a, "of another kind", bearer(strings.Replace(text, "_key_", "_token_", 1)), "no such API key")
		refused(t, a, "no key", bearer("opaque"), "no other tokens")

		reads := l.reads.Load()
		for range 10 {
			taken(t, a, "again", bearer(text), ann)
		}
		if n := l.reads.Load() - reads; n != 0 {
			t.Errorf("10 requests have read the ledger %d times", n)
		}
		if _, err := l.RevokeKey(t.Context(), id, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(auth.Freshness)
		refused(t, a, "a revoked key", bearer(text), "was revoked ("+id+")")
		refused(t, a, "no credential, after the only key was revoked", request(), "no credential")
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		a := authenticator(t, auth.Config{Ledger: l})
		ann := principal.Principal{ID: "ann", Role: principal.Observer, Expires: time.Now().Add(time.Minute)}
		text, _ := create(t, l, ledger.Key, ann, "")
		taken(t, a, "before", bearer(text), ann)
		if p, err := a.Authenticate(bearer(text)); err != nil || !p.Expires.Equal(ann.Expires) {
			t.Errorf("expires %v, %v", p.Expires, err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		taken(t, a, "just before", bearer(text), ann)
		time.Sleep(time.Nanosecond)
		refused(t, a, "at its end", bearer(text), "has expired")
	})
}

// TestTokenOfARevokedKey: a token ends with the key with which it was made.
func TestTokenOfARevokedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		a := authenticator(t, auth.Config{Ledger: l, Open: true})
		ann := principal.Principal{ID: "ann"}
		_, id := create(t, l, ledger.Key, ann, "")
		page := ann
		page.Session, page.Tools = "s", []string{"look"}
		page.Expires = time.Now().Add(time.Hour)
		text, tokenID := create(t, l, ledger.Token, page, id)
		p, err := a.Authenticate(bearer(text))
		if err != nil || p.Session != "s" || !p.Runs("look") || p.Runs("go") || p.Via != tokenID {
			t.Fatalf("%+v, %v", p, err)
		}
		if _, err := l.RevokeKey(t.Context(), id, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(auth.Freshness)
		refused(t, a, "a token of a revoked key", bearer(text), "is worth nothing")
	})
}

// TestLedgerFails: a server that cannot read its keys takes nobody.
func TestLedgerFails(t *testing.T) {
	l := newLedger(t)
	a := authenticator(t, auth.Config{Ledger: l, Open: true})
	l.broken.Store(true)
	refused(t, a, "without a credential", request(), "the disk is gone")
	refused(t, a, "with a key", bearer("agentd_key_abcdefghijkl_X"), "the disk is gone")
	for _, r := range []*http.Request{request(), bearer("agentd_key_abcdefghijkl_X")} {
		_, err := a.Authenticate(r)
		if e, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); !ok || !e.Temporary() {
			t.Errorf("%v is no error that passes", err)
		}
	}
	l.broken.Store(false)
	taken(t, a, "again", request(), principal.Principal{ID: "local", Role: principal.Operator})
}

func TestCertificates(t *testing.T) {
	a := authenticator(t, auth.Config{Ledger: newLedger(t), Open: true, Certificates: true})
	with := func(names ...string) *http.Request {
		cert := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
		for _, name := range names {
			u, err := url.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, u)
		}
		r := request()
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
		return r
	}
	taken(t, a, "a name", with("spiffe://x/y", "agentd://acme/observer/ann"), principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Observer})
	taken(t, a, "without a tenant", with("agentd:///operator/ops/1"), principal.Principal{ID: "ops/1", Role: principal.Operator})
	refused(t, a, "no name", with("spiffe://x/y"), "has no name of the form")
	refused(t, a, "two names", with("agentd:///caller/a", "agentd:///caller/b"), "several")
	refused(t, a, "no role", with("agentd://acme/ann"), "there is no role")
	refused(t, a, "no id", with("agentd://acme/caller/"), "it has no id")
	refused(t, a, "no certificate", request(), "no credential")
	unverified := with("agentd:///operator/eve")
	unverified.TLS.VerifiedChains = nil
	refused(t, a, "a certificate that nobody has verified", unverified, "no credential")
}

func TestProxy(t *testing.T) {
	a := authenticator(t, auth.Config{Ledger: newLedger(t), Open: true, Proxy: &auth.Proxy{
		From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, User: "X-User", Tenant: "X-Tenant", Role: "X-Role",
	}})
	from := func(addr string, headers ...string) *http.Request {
		r := request(headers...)
		r.RemoteAddr = addr
		return r
	}
	taken(t, a, "all headers", from("10.1.2.3:4", "X-User", "ann", "X-Tenant", "acme", "X-Role", "observer"), principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Observer})
	taken(t, a, "one header, from an address of IPv6", from("[::ffff:10.1.2.3]:4", "X-User", "ann"), principal.Principal{ID: "ann"})
	refused(t, a, "another address", from("11.1.2.3:4", "X-User", "ann"), "no credential")
	refused(t, a, "no address", from("@", "X-User", "ann"), "no credential")
	refused(t, a, "no user", from("10.1.2.3:4", "X-Tenant", "acme"), "no header X-User")
	refused(t, a, "two users", from("10.1.2.3:4", "X-User", "ann", "X-User", "eve"), "2 headers X-User")
	refused(t, a, "a strange role", from("10.1.2.3:4", "X-User", "ann", "X-Role", "root"), "there is no role")
	for _, p := range []auth.Proxy{{User: "X-User"}, {From: []netip.Prefix{netip.MustParsePrefix("::/0")}}} {
		if _, err := auth.New(auth.Config{Proxy: &p}); err == nil {
			t.Errorf("%+v is no error", p)
		}
	}
}

// claims are those of a token that is right, with changes in pairs of name and value; nil leaves one out.
func claims(changes ...any) map[string]any {
	all := map[string]any{"sub": "ann", "aud": "agentd", "exp": time.Now().Add(time.Hour).Unix(), "org": "acme", "role": "observer"}
	for i := 0; i < len(changes); i += 2 {
		if name := changes[i].(string); changes[i+1] == nil {
			delete(all, name)
		} else {
			all[name] = changes[i+1]
		}
	}
	return all
}

func issued(i *issuer.Issuer) auth.Config {
	return auth.Config{Issuer: &auth.Issuer{
		URL: i.URL, Audience: "agentd", Tenant: "org", Role: "role", Client: &http.Client{Transport: i},
	}}
}

func TestIssuer(t *testing.T) {
	i := issuer.New(t, "https://issuer.test")
	a := authenticator(t, issued(i))
	ann := principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Observer}
	taken(t, a, "a token", bearer(i.Token(t, claims())), ann)
	taken(t, a, "for several", bearer(i.Token(t, claims("aud", []string{"x", "agentd"}))), ann)
	taken(t, a, "without a role", bearer(i.Token(t, claims("role", nil))), principal.Principal{ID: "ann", Tenant: "acme"})
	taken(t, a, "within the leeway", bearer(i.Token(t, claims("exp", time.Now().Add(-30*time.Second).Unix()))), ann)

	key := i.Key()
	other := issuer.New(t, i.URL).Key()
	other.KeyID = key.KeyID
	for what, tt := range map[string]struct{ token, want string }{
		"expired":          {i.Token(t, claims("exp", time.Now().Add(-2*time.Minute).Unix())), "expired"},
		"without expiry":   {i.Token(t, claims("exp", nil)), "expired"},
		"not yet":          {i.Token(t, claims("nbf", time.Now().Add(time.Hour).Unix())), "before the nbf"},
		"wrong audience":   {i.Token(t, claims("aud", "other")), "audience"},
		"no audience":      {i.Token(t, claims("aud", nil)), "audience"},
		"wrong issuer":     {i.Token(t, claims("iss", "https://evil.test")), "different provider"},
		"another's key":    {issuer.Sign(t, jose.ES256, other, claims("iss", i.URL)), "signature"},
		"symmetric":        {issuer.Sign(t, jose.HS256, []byte(strings.Repeat("k", 32)), claims("iss", i.URL)), "unexpected signature algorithm"},
		"no algorithm":     {"eyJhbGciOiJub25lIn0." + strings.Split(i.Token(t, claims()), ".")[1] + ".", "signature algorithm"},
		"no subject":       {i.Token(t, claims("sub", nil)), `no claim "sub"`},
		"no tenant":        {i.Token(t, claims("org", nil)), `no claim "org"`},
		"tenant no text":   {i.Token(t, claims("org", 1)), "is no text"},
		"a strange role":   {i.Token(t, claims("role", "root")), "there is no role"},
		"too long":         {i.Token(t, claims("pad", strings.Repeat("x", 20_000))), "bytes, at most"},
		"no token":         {"nonsense", "malformed"},
		"a broken token":   {i.Token(t, claims())[1:], "malformed"},
		"an empty payload": {"e30.e30.e30", "malformed"},
	} {
		refused(t, a, what, bearer(tt.token), tt.want)
	}
	refused(t, a, "no credential", request(), "no credential")
	refused(t, a, "an API key without a ledger", bearer("agentd_key_abcdefghijkl_X"), "malformed")
	for _, wrong := range []auth.Issuer{{URL: "x", Audience: "a"}, {URL: "http://issuer.test", Audience: "a"}, {URL: "https://issuer.test"}} {
		if _, err := auth.New(auth.Config{Issuer: &wrong}); err == nil {
			t.Errorf("%+v is no error", wrong)
		}
	}
}

// TestRotation: a new key is known at once, one that the issuer has withdrawn is refused after a while.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := issuer.New(t, "https://issuer.test")
		a := authenticator(t, issued(i))
		ann := principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Observer}
		first := i.Token(t, claims())
		taken(t, a, "the first key", bearer(first), ann)
		time.Sleep(2 * time.Second)
		i.Rotate(t, 2)
		taken(t, a, "the second key", bearer(i.Token(t, claims())), ann)
		taken(t, a, "the first key, which is still published", bearer(first), ann)
		i.Rotate(t, 2)
		time.Sleep(11 * time.Minute)
		taken(t, a, "the third key", bearer(i.Token(t, claims())), ann)
		refused(t, a, "the first key, which was withdrawn", bearer(first), "signature")
	})
}

// TestIssuerDown: what was known of an issuer serves for an hour, no longer.
func TestIssuerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := issuer.New(t, "https://issuer.test")
		a := authenticator(t, issued(i))
		ann := principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Observer}
		i.Down(true)
		refused(t, a, "never reached", bearer(i.Token(t, claims())), "cannot be asked")
		refused(t, a, "asked a moment ago", bearer(i.Token(t, claims())), "cannot be asked")
		time.Sleep(6 * time.Second)
		i.Down(false)
		token := i.Token(t, claims("exp", time.Now().Add(48*time.Hour).Unix()))
		taken(t, a, "up", bearer(token), ann)
		i.Down(true)
		for range 5 {
			time.Sleep(11 * time.Minute)
			taken(t, a, "down again", bearer(token), ann)
		}
		time.Sleep(11 * time.Minute)
		refused(t, a, "down for an hour", bearer(token), "cannot be asked")
		time.Sleep(6 * time.Second)
		i.Down(false)
		taken(t, a, "up again", bearer(token), ann)
	})
}

// TestForgedTokens: tokens that no key has signed cost the issuer a request now and then, not one each.
func TestForgedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := issuer.New(t, "https://issuer.test")
		a := authenticator(t, issued(i))
		forger := issuer.New(t, i.URL)
		for range 100 {
			refused(t, a, "forged", bearer(forger.Token(t, claims())), "signature")
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.Requests(); n > 8 {
			t.Errorf("%d requests for 100 tokens in 10 s", n)
		}
	})
}
