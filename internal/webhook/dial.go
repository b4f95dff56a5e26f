package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// allowedKey is, in a context, the networks that a request may reach although they are not public.
type allowedKey struct{}

// headerBytes bounds the header of a response.
const headerBytes = 16 << 10

// newClient returns what requests are made with. Each has a connection of its own: one that was checked for a hook is
// not used for another.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // it would dial in our place, unchecked
			DialContext:            dial,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: headerBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// addressError is why an address is not dialed.
type addressError struct{ addr netip.Addr }

func (e *addressError) Error() string {
	return fmt.Sprintf("the address %s is not public: the hook's allow does not list it", e.addr)
}

// dial connects to an address that a request may reach, whatever its name is looked up as.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	allowed, _ := ctx.Value(allowedKey{}).([]netip.Prefix)
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if addr := to.Addr().Unmap().WithZone(""); !isPublic(addr) && !contains(allowed, addr) {
			return &addressError{addr}
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}

// private are networks that are not public, besides those that netip knows.
var private = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	"::/96",        // IPv4-compatible
	"64:ff9b::/96", // NAT64 leads to IPv4
	"64:ff9b:1::/48",
	"100::/64", "2001::/23", "2001:db8::/32",
	"2002::/16", // 6to4 leads to IPv4
	"3fff::/20", "5f00::/16", "fec0::/10",
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// isPublic reports whether an address is one of the public internet.
func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !contains(private, a)
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	for _, p := range networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
