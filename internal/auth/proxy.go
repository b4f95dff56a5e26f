package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/session/principal"
)

// Proxy is a proxy in front of the server that has authenticated callers and says in headers who they are. The proxy
// removes these headers from what it receives.
type Proxy struct {
	// From are the addresses of the proxy. The headers of others are not believed.
	From []netip.Prefix
	// User, Tenant and Role are the names of the headers. Without Tenant callers have none. Without Role, and in a
	// request without that header, they are callers.
	User, Tenant, Role string
}

func (p *Proxy) check() error {
	switch {
	case len(p.From) == 0:
		return errors.New("auth: a header of a proxy is trusted from no address: name those of the proxy")
	case p.User == "":
		return errors.New("auth: a proxy is trusted without the name of the header that says who calls")
	}
	return nil
}

// sent reports whether a request comes from the proxy.
func (p *Proxy) sent(r *http.Request) bool {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	from := addr.Addr().Unmap()
	return err == nil && slices.ContainsFunc(p.From, func(net netip.Prefix) bool { return net.Contains(from) })
}

// From returns the address of whoever makes a request: that of the connection, or, if that is the trusted proxy's, what
// the proxy says last in X-Forwarded-For.
func (a *Authenticator) From(r *http.Request) string {
	p := a.cfg.Proxy
	if p == nil || !p.sent(r) {
		return r.RemoteAddr
	}
	all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	addr, err := netip.ParseAddr(strings.TrimSpace(all[len(all)-1]))
	if err != nil {
		return r.RemoteAddr
	}
	return addr.String()
}

// principal reads the headers.
func (p *Proxy) principal(h http.Header) (principal.Principal, error) {
	var who [3]string
	for i, name := range []string{p.User, p.Tenant, p.Role} {
		if name == "" {
			continue
		}
		values := h.Values(name)
		if len(values) > 1 {
			return principal.Principal{}, fmt.Errorf("the proxy has sent %d headers %s, want one", len(values), name)
		}
		who[i] = h.Get(name)
	}
	out := principal.Principal{ID: who[0], Tenant: who[1]}
	if out.ID == "" {
		return principal.Principal{}, fmt.Errorf("the proxy has sent no header %s", p.User)
	}
	var err error
	if who[2] != "" {
		if err = out.Role.UnmarshalText([]byte(who[2])); err != nil {
			err = fmt.Errorf("the header %s of the proxy: %w", p.Role, err)
		}
	}
	return out, err
}
