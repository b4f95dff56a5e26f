// Package auth is a part of agentd, not an API: it finds out who makes a request, by an API key, a token of an
// OpenID Connect issuer, a client certificate, or a header that a trusted proxy sets.
//
// A request proves who it is in one way, the first of these that it uses; a credential that is refused is not made
// good by another one. A server without any of them that is Open takes whoever reaches it for its operator, until a
// first API key is made; it stays closed when that is revoked.
//
// It knows neither sessions nor the protocol.
package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
)

// Config says how callers prove who they are.
type Config struct {
	// Ledger has the API keys. nil: there are none.
	Ledger ledger.Ledger
	// Issuer is the OpenID Connect issuer whose tokens are taken. nil: none.
	Issuer *Issuer
	// Certificates takes the certificates of clients, which the TLS server has verified.
	Certificates bool
	// Proxy sets headers that are believed. nil: none.
	Proxy *Proxy
	// Next judges requests that have no API key, in place of all that follows. nil: nobody does.
	Next func(*http.Request) (principal.Principal, error)
	// Open takes whoever reaches the server for its operator while nothing else is configured and no API key was made.
	Open bool
	// OnRefused, if not nil, receives why a request is refused: one of the Reason constants. Several goroutines may
	// call it at once.
	OnRefused func(reason string)
	// Logger receives what goes wrong with the issuer and the ledger. Default: discard.
	Logger *slog.Logger
}

// Authenticator finds out who makes requests. Its methods may be called from any goroutine. It owns no goroutine.
type Authenticator struct {
	cfg    Config
	keys   *keys   // nil without a ledger
	issuer *issuer // nil without an issuer
}

// New returns an authenticator. It makes no request.
func New(cfg Config) (*Authenticator, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{cfg: cfg}
	if cfg.Ledger != nil {
		a.keys = newKeys(cfg.Ledger)
	}
	var err error
	if cfg.Issuer != nil {
		a.issuer, err = newIssuer(*cfg.Issuer, cfg.Logger)
	}
	if err == nil && cfg.Proxy != nil {
		err = cfg.Proxy.check()
	}
	return a, err
}

// Configured reports whether callers have another way to prove who they are than an API key.
func (a *Authenticator) Configured() bool {
	return a.cfg.Next != nil || a.issuer != nil || a.cfg.Certificates || a.cfg.Proxy != nil
}

// IsOpen reports whether whoever reaches the server is its operator.
func (a *Authenticator) IsOpen(ctx context.Context) (bool, error) {
	if !a.cfg.Open || a.Configured() {
		return false, nil
	}
	if a.keys == nil {
		return true, nil
	}
	has, err := a.keys.any(ctx)
	if err != nil {
		return false, passing{err}
	}
	return !has, nil
}

var (
	errNone = errors.New("the request has no credential: send an API key or a token as " +
		"\"Authorization: Bearer …\", or X-Api-Key")
	errTwo = errors.New("the request has both Authorization and X-Api-Key: send one of them")
)

// passing is the error of a request whose credential was not judged, since what it is compared with cannot be read now.
type passing struct{ error }

func (passing) Temporary() bool { return true }
func (p passing) Unwrap() error { return p.error }

// operator is whoever reaches an open server. It is the principal of a context that names nobody.
var operator = principal.Of(context.Background())

// Authenticate returns who makes a request. It reads the headers and the connection alone. The error says why the
// request is refused; it holds no secret, and is for the log.
func (a *Authenticator) Authenticate(r *http.Request) (principal.Principal, error) {
	p, way, err := a.authenticate(r)
	if err != nil && a.cfg.OnRefused != nil {
		a.cfg.OnRefused(reasonOf(err, way))
	}
	return p, err
}

// authenticate returns who makes a request, and the way in which it proves that, as a reason for a refusal.
func (a *Authenticator) authenticate(r *http.Request) (p principal.Principal, way string, err error) {
	text, err := bearer(r.Header)
	_, _, ours := parts(text)
	switch {
	case ours && a.keys != nil:
		p, err = a.keys.principal(r.Context(), text)
		return p, ReasonKey, err
	case a.cfg.Next != nil:
		p, err = a.cfg.Next(r)
		return p, ReasonCustom, err
	case err != nil:
		return p, ReasonMalformed, err
	case text != "" && a.issuer != nil:
		p, err = a.issuer.principal(r.Context(), text)
		return p, ReasonToken, err
	case a.cfg.Certificates && hasCertificate(r):
		p, err = ofCertificate(r.TLS.VerifiedChains[0][0])
		return p, ReasonCertificate, err
	case a.cfg.Proxy != nil && a.cfg.Proxy.sent(r):
		p, err = a.cfg.Proxy.principal(r.Header)
		return p, ReasonProxy, err
	}
	// A credential that nothing here reads may be one for a proxy in front.
	open, err := a.IsOpen(r.Context())
	switch {
	case err != nil:
		return p, ReasonUnavailable, err
	case open:
		return operator, "", nil
	case text != "":
		return p, ReasonUnknown, errors.New("the credential is no API key, and this server takes no other tokens")
	}
	return p, ReasonMissing, errNone
}

// bearer is the credential of a request, "" if it has none of its own.
func bearer(h http.Header) (string, error) {
	scheme, text, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		text = ""
	}
	key := strings.TrimSpace(h.Get("X-Api-Key"))
	text = strings.TrimSpace(text)
	switch {
	case key == "":
		return text, nil
	case text == "" || text == key:
		return key, nil
	}
	return "", errTwo
}
