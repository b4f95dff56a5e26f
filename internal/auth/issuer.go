package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/apzuk3/agentd/session/principal"
)

const (
	// leeway is how far the clocks of the issuer and of the server may differ.
	leeway = time.Minute
	// refetch is after which time the issuer's keys are fetched again, so that one that it has withdrawn is refused.
	refetch = 10 * time.Minute
	// stale is for how long the keys of an issuer that cannot be reached are used.
	stale = time.Hour
	// retryIssuer is how long an issuer that cannot be reached is left alone.
	retryIssuer = 5 * time.Second
	// pause is how long a response of the issuer stands for the next ones: a token that no key has signed makes a
	// request.
	pause = 2 * time.Second
	// fetchTimeout bounds a request to the issuer, maxDocument its response in bytes.
	fetchTimeout = 10 * time.Second
	maxDocument  = 1 << 20
	// maxToken is the size of the largest token.
	maxToken = 16 << 10
)

// algorithms are those by which a token may be signed: none is symmetric, none is "none".
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// Issuer is an OpenID Connect issuer, and how its tokens name principals.
type Issuer struct {
	// URL is the issuer, as its tokens name it. It is https, or a loopback address.
	URL string
	// Audience is what a token must be for.
	Audience string
	// ID, Tenant and Role are the claims that name the principal. ID is by default "sub". Without Tenant callers have
	// none. Without Role, and by a token without that claim, they are callers.
	ID, Tenant, Role string
	// Client makes the requests. Default: one that follows no redirects.
	Client *http.Client
}

// issuer verifies the tokens of an Issuer.
type issuer struct {
	cfg  Issuer
	log  *slog.Logger
	http *http.Client
	docs *documents

	fetching sync.Mutex // held while the issuer is asked; before mu
	mu       sync.Mutex // protects the fields below
	current  verifier   // the zero value before the first one
	before   verifier   // used while the keys of current cannot be fetched
	tried    time.Time  // when the issuer was last asked
	failure  error      // of that time
}

// verifier has the issuer's keys as of a time.
type verifier struct {
	*oidc.IDTokenVerifier
	made time.Time
}

func newIssuer(cfg Issuer, log *slog.Logger) (*issuer, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http",
		u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("auth: the issuer %q is no URL: want https://HOST, as its tokens name it", cfg.URL)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, fmt.Errorf("auth: the issuer %q is without TLS, which only one on this machine may be", cfg.URL)
	case cfg.Audience == "":
		return nil, errors.New("auth: an issuer needs an audience: a token for another service is none for this one")
	}
	if cfg.ID == "" {
		cfg.ID = "sub"
	}
	client := cfg.Client
	if client == nil {
		client = &http.Client{CheckRedirect: noRedirect}
	}
	own := *client
	docs := &documents{next: own.Transport, kept: map[string]document{}}
	own.Transport, own.Timeout = docs, fetchTimeout
	return &issuer{cfg: cfg, log: log, http: &own, docs: docs}, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// principal returns whom a token speaks for.
func (i *issuer) principal(ctx context.Context, token string) (principal.Principal, error) {
	if len(token) > maxToken {
		return principal.Principal{}, fmt.Errorf("the token has %d bytes, at most %d are allowed", len(token), maxToken)
	}
	current, before, err := i.verifiers(ctx)
	if err != nil {
		return principal.Principal{}, err
	}
	verified, err := current.Verify(ctx, token)
	if err != nil && before.IDTokenVerifier != nil && i.docs.failing() {
		verified, err = before.Verify(ctx, token)
	}
	if err != nil {
		return principal.Principal{}, fmt.Errorf("the token of the issuer: %w", err)
	}
	return i.named(verified)
}

// named reads the claims of a token that is right.
func (i *issuer) named(token *oidc.IDToken) (principal.Principal, error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return principal.Principal{}, fmt.Errorf("the claims of the token: %w", err)
	}
	var who [3]string
	for n, name := range []string{i.cfg.ID, i.cfg.Tenant, i.cfg.Role} {
		if raw, ok := claims[name]; ok && name != "" {
			if err := json.Unmarshal(raw, &who[n]); err != nil {
				return principal.Principal{}, fmt.Errorf("the claim %q of the token is no text", name)
			}
		}
	}
	p := principal.Principal{ID: who[0], Tenant: who[1], Expires: token.Expiry.Add(leeway)}
	switch {
	case p.ID == "":
		return principal.Principal{}, fmt.Errorf("the token has no claim %q, which names the principal", i.cfg.ID)
	case i.cfg.Tenant != "" && p.Tenant == "":
		return principal.Principal{}, fmt.Errorf("the token has no claim %q, which names the tenant", i.cfg.Tenant)
	case who[2] == "":
		return p, nil
	}
	if err := p.Role.UnmarshalText([]byte(who[2])); err != nil {
		return principal.Principal{}, fmt.Errorf("the claim %q of the token: %w", i.cfg.Role, err)
	}
	return p, nil
}

// verifiers returns what verifies tokens, and what did before. One goroutine at a time asks the issuer; the others wait
// for it only if there is nothing yet.
func (i *issuer) verifiers(ctx context.Context) (current, before verifier, err error) {
	if have, due := i.due(); due {
		if have {
			if i.fetching.TryLock() {
				i.fetch(ctx)
				i.fetching.Unlock()
			}
		} else {
			i.fetchFirst(ctx)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current.IDTokenVerifier == nil || time.Since(i.current.made) > stale {
		err := fmt.Errorf("the issuer %s cannot be asked for its keys: %w", i.cfg.URL, i.failure)
		return verifier{}, verifier{}, passing{err}
	}
	return i.current, i.before, nil
}

// fetchFirst has one goroutine ask the issuer, and the others wait for it.
func (i *issuer) fetchFirst(ctx context.Context) {
	i.fetching.Lock()
	defer i.fetching.Unlock()
	if _, due := i.due(); due {
		i.fetch(ctx)
	}
}

// due reports whether there is a verifier, and whether the issuer is to be asked for another one.
func (i *issuer) due() (have, due bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	have = i.current.IDTokenVerifier != nil
	due = !have || time.Since(i.current.made) > refetch
	return have, due && (i.failure == nil || time.Since(i.tried) > retryIssuer)
}

// fetch asks the issuer where its keys are.
func (i *issuer) fetch(ctx context.Context) {
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), i.http) // others wait for it too
	provider, err := oidc.NewProvider(ctx, i.cfg.URL)
	if err != nil {
		i.log.Warn("the issuer of tokens cannot be reached", slog.String("issuer", i.cfg.URL),
			slog.String("error", err.Error()))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tried, i.failure = time.Now(), err
	if err != nil {
		return
	}
	i.before = i.current
	i.current = verifier{provider.VerifierContext(ctx, &oidc.Config{
		ClientID: i.cfg.Audience, SupportedSigningAlgs: algorithms,
		Now: func() time.Time { return time.Now().Add(-leeway) },
	}), time.Now()}
}

// documents fetches the issuer's documents, each at most once within a pause, and bounds their size.
type documents struct {
	next http.RoundTripper // nil is Go's default

	mu   sync.Mutex // held while a document is fetched
	kept map[string]document
	bad  bool // the last request has failed
}

// document is a response that was received.
type document struct {
	resp http.Response
	body []byte
	at   time.Time
}

// RoundTrip implements http.RoundTripper.
func (d *documents) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, ok := d.kept[r.URL.String()]
	if !ok || time.Since(doc.at) >= pause {
		var err error
		doc, err = d.fetch(r)
		d.bad = err != nil || doc.resp.StatusCode != http.StatusOK
		if err != nil {
			return nil, err
		}
		if len(d.kept) >= 4 { // the issuer has moved its documents
			clear(d.kept)
		}
		d.kept[r.URL.String()] = doc
	}
	resp := doc.resp
	resp.Header, resp.Request = doc.resp.Header.Clone(), r
	resp.Body = io.NopCloser(bytes.NewReader(doc.body))
	return &resp, nil
}

func (d *documents) fetch(r *http.Request) (document, error) {
	next := d.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return document{}, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("%s has more than %d bytes", strings.ToValidUTF8(r.URL.Redacted(), "?"), maxDocument)
	}
	return document{*resp, body, time.Now()}, err
}

func (d *documents) failing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bad
}
