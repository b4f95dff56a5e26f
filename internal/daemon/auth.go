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
	"path/filepath"
	"time"

	"github.com/apzuk3/agentd/internal/auth"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store/sqlite"
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

// openAuth finds the ledger and makes what authenticates.
func (d *Daemon) openAuth() (err error) {
	if db, ok := d.store.(sqlledger.DB); ok {
		d.ledger = sqlledger.New(db)
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

// APIKey is an API key without its secret.
type APIKey = ledger.APIKey

// Keys are the API keys of a database on disk, also of a daemon that runs. Close ends it. One goroutine at a time may
// use it.
type Keys struct {
	store  *sqlite.Store
	ledger ledger.Ledger
}

// OpenKeys opens the database of a folder, and makes it if there is none.
func OpenKeys(ctx context.Context, dataDir string, allowNetworkFiles bool) (*Keys, error) {
	path := filepath.Join(dataDir, databaseFile)
	cfg := sqlite.Config{NetworkFiles: allowNetworkFiles}
	s, err := sqlite.Open(ctx, path, cfg)
	if errors.Is(err, sqlite.ErrLocked) { // a daemon has it
		cfg.Beside = true
		s, err = sqlite.Open(ctx, path, cfg)
	}
	if err != nil {
		return nil, err
	}
	return &Keys{s, sqlledger.New(s)}, nil
}

// NewPrincipal returns a principal, whose names a server takes.
func NewPrincipal(id, tenant, role string) (principal.Principal, error) {
	p := principal.Principal{ID: id, Tenant: tenant}
	err := p.Role.UnmarshalText([]byte(role))
	if err == nil {
		err = p.Check()
	}
	return p, err
}

// Create makes an API key for a principal, and returns what its holder sends, which nobody can find out later, and
// whether it is the first one.
func (k *Keys) Create(
	ctx context.Context, p principal.Principal, note string,
) (text string, key APIKey, first bool, err error) {
	has, err := k.ledger.HasKeys(ctx)
	if err != nil {
		return "", APIKey{}, false, err
	}
	text, key = auth.NewKey(ledger.Key, p)
	key.Note = note
	return text, key, !has, k.ledger.CreateKey(ctx, key)
}

// List returns the API keys of a tenant, or of all, in the order of their ids.
func (k *Keys) List(ctx context.Context, tenant string, all bool) (keys []APIKey, err error) {
	const page = 500
	q := ledger.KeyQuery{Kind: ledger.Key, Tenant: tenant, AllTenants: all, Limit: page}
	for {
		more, err := k.ledger.Keys(ctx, q)
		keys = append(keys, more...)
		if err != nil || len(more) < page {
			return keys, err
		}
		q.After = more[len(more)-1].ID
	}
}

// Revoke ends an API key, and the tokens that were made with it. A daemon refuses it within two seconds, and ends its
// streams within half a minute.
func (k *Keys) Revoke(ctx context.Context, id string) (APIKey, error) {
	return k.ledger.RevokeKey(ctx, id, time.Now())
}

// Close closes the database.
func (k *Keys) Close() error { return k.store.Close() }

// ErrNoKey means that there is no API key of an id.
var ErrNoKey = ledger.ErrNoKey

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
