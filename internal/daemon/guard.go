package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guarded protects a daemon from the web pages that a user of this machine visits. It
// looks at what comes over a loopback address, whatever the daemon listens on; where a
// server of the caller's listens, that one says who may call. A page may have its own
// name lead to 127.0.0.1, so the host that a request names has to be this machine, by an
// address or as localhost, or one of Config.AllowedHosts. A browser says from which page
// a request comes: that has to be of the same host, or of CORSOrigins. Other clients say
// nothing of the kind, and over HTTP/1.0 need not name a host either, which browsers do.
func (d *Daemon) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if ok && isLoopback(a) && !d.cfg.HandlerOnly {
			if why := d.cfg.foreign(r); why != "" {
				http.Error(w, why, http.StatusForbidden)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// foreign is why a request may be one of a foreign web page, "" if it is none.
func (c *Config) foreign(r *http.Request) string {
	if host := hostname(r.Host); r.Host != "" && !isHere(host) && !c.allows(host) {
		return fmt.Sprintf("from this machine itself this server is not called %.255q: "+
			"name it by its address or as localhost, or allow the name (--allowed-hosts)", host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(c.CORSOrigins, "*") || slices.Contains(c.CORSOrigins, origin) {
		return ""
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return ""
	}
	return fmt.Sprintf("a web page of %.255q must not call this server (--cors-origins)", origin)
}

// allows reports whether a name is one of AllowedHosts.
func (c *Config) allows(host string) bool {
	return slices.ContainsFunc(c.AllowedHosts, func(name string) bool { return hostname(name) == host })
}

// hostname is a host without its port, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isHere reports whether a name can lead to this machine alone, or is an address,
// which no page can have for its name unless it comes from there.
func isHere(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isLoopback reports whether an address is reached from this machine alone.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
