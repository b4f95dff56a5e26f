package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/apzuk3/agentd/internal/auth"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/session/principal"
)

// Auth says how callers of a daemon prove who they are, besides API keys, which each daemon takes.
type Auth struct {
	// Issuer is an OpenID Connect issuer whose tokens are taken. nil: none.
	Issuer *Issuer
	// ClientCAFile has the certificates, PEM, of those who issue certificates to clients. It needs TLS. Default: none.
	ClientCAFile string
	// Proxy is a proxy whose headers are believed. nil: none.
	Proxy *Proxy
}

// Issuer is an OpenID Connect issuer.
type Issuer = auth.Issuer

// Proxy is a proxy that says who calls.
type Proxy = auth.Proxy

// verifyClients has a TLS server verify the certificates that clients show. Clients without one are for others to
// judge.
func (a *Auth) verifyClients(cfg *tls.Config) error {
	if a.ClientCAFile == "" {
		return nil
	}
	text, err := os.ReadFile(a.ClientCAFile)
	if err != nil {
		return fmt.Errorf("daemon: certificates of client authorities: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !cfg.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("daemon: %s has no certificate in PEM form", a.ClientCAFile)
	}
	return nil
}

// openAuth finds the ledger and makes what authenticates, and the audit trail.
func (d *Daemon) openAuth() (err error) {
	if db, ok := d.store.(sqlledger.DB); ok {
		d.ledger = sqlledger.New(db)
	}
	if d.ledger != nil && d.ring != nil {
		d.ledger = sealed.NewLedger(d.ledger, d.ring)
	}
	a := d.cfg.Auth
	d.auth, err = auth.New(auth.Config{
		Ledger: d.ledger, Issuer: a.Issuer, Certificates: a.ClientCAFile != "", Proxy: a.Proxy,
		Next: d.cfg.Authenticate, Open: true, Logger: d.log,
		OnRefused: d.metrics.Refused,
	})
	return err
}

// mayListen refuses an address that other machines reach if whoever reaches it is the operator.
func (d *Daemon) mayListen(ctx context.Context, addr net.Addr) error {
	if !exposed(addr) {
		return nil
	}
	open, err := d.auth.IsOpen(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("daemon: look for API keys: %w", err)
	case !open:
		return nil
	case !d.cfg.Insecure:
		return fmt.Errorf("daemon: %w: other machines reach %s", ErrOpen, addr)
	}
	d.log.Warn("the port is open to the network without authentication: " +
		"whoever reaches it can run agents at your cost; an API key closes it: agentd keys create NAME")
	return nil
}

// ErrOpen is why a daemon does not listen on an address that other machines reach.
var ErrOpen = errors.New("nothing authenticates callers")

// exposed reports whether others than this machine can reach an address.
func exposed(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

const (
	// tokensKept is how long a token stays in the ledger after its end, so that its holder reads why it is refused.
	tokensKept = time.Hour
	// tokensSwept is how many tokens that have ended are removed when one is made.
	tokensSwept = 100
)

// createTokens makes tokens for one session; nil without a ledger.
func (d *Daemon) createTokens() func(context.Context, principal.Principal, principal.Principal) (string, error) {
	if d.ledger == nil {
		return nil
	}
	return func(ctx context.Context, maker, token principal.Principal) (string, error) {
		text, k := auth.NewKey(ledger.Token, token)
		k.Maker, k.Via = maker.Key(), maker.Via
		if _, err := d.ledger.RemoveTokens(ctx, k.Created.Add(-tokensKept), tokensSwept); err != nil {
			return "", err
		}
		return text, d.ledger.CreateKey(ctx, k)
	}
}

// Networks reads addresses and networks, such as 10.0.0.0/8 or ::1.
func Networks(list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(list))
	for _, text := range list {
		net, err := netip.ParsePrefix(text)
		if addr, failed := netip.ParseAddr(text); err != nil && failed == nil {
			net, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		out = append(out, net.Masked())
	}
	return out, nil
}
