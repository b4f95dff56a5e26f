package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
)

const (
	// maxBody is the most of a page that is returned, and what is returned without max_bytes.
	maxBody = 64 << 10
	// fetchTime bounds a fetch with all its redirects, and maxRedirects those.
	fetchTime    = 30 * time.Second
	maxRedirects = 5
)

type fetchURLIn struct {
	URL      string `json:"url"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"how much to return, 65536 at most and by default"`
}

type fetchURLOut struct {
	URL         string `json:"url"`
	FinalURL    string `json:"final_url"`
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Bytes       int    `json:"bytes"`
	Truncated   bool   `json:"truncated,omitempty"`
	Body        string `json:"body"`
}

func (r *Registry) fetchURL(ctx context.Context, in fetchURLIn) (*fetchURLOut, error) {
	switch {
	case in.MaxBytes < 0 || in.MaxBytes > maxBody:
		return nil, fmt.Errorf("max_bytes must be 1 to %d, it is %d", maxBody, in.MaxBytes)
	case in.MaxBytes == 0:
		in.MaxBytes = maxBody
	}
	at, err := url.Parse(in.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	at.Fragment = ""
	if err := r.web.check(at); err != nil {
		return nil, err
	}
	if err := r.allowed(ctx, "fetch_url", permit.URL, at.String(), permit.Network); err != nil {
		return nil, err
	}
	if err := client.CallFrom(ctx).Begin(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("%s takes more than %s", at.Host, fetchTime))
	defer stop()
	denied := func(u *url.URL) bool { return r.gate.DeniesURL("fetch_url", u.String()) }
	out, err := r.web.get(ctx, at, in.MaxBytes, denied)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// fetcher fetches what some entries allow.
type fetcher struct {
	allow []allowed
}

// allowed is an entry of url_scope.allow.
type allowed struct {
	scheme, host string // host may begin with *.
	port         string // "": the scheme's own
	prefix       string // of the path, "" for all
}

func newFetcher(entries []string) (*fetcher, error) {
	f := &fetcher{}
	for _, entry := range entries {
		text := entry
		if !strings.Contains(text, "://") {
			text = "https://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
			u.Scheme != "https" && u.Scheme != "http" || strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
			return nil, fmt.Errorf("url_scope.allow: want a host, whose first label may be *, or https://host/prefix; "+
				"got %q", entry)
		}
		f.allow = append(f.allow, allowed{u.Scheme, strings.ToLower(u.Hostname()), portOf(u), u.Path})
	}
	return f, nil
}

// portOf returns the port of a URL, "" for that of its scheme.
func portOf(u *url.URL) string {
	if p := u.Port(); p != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		return p
	}
	return ""
}

// match returns the entry for a URL, nil if it has none.
func (f *fetcher) match(u *url.URL) *allowed {
	host := strings.ToLower(u.Hostname())
	for i := range f.allow {
		a := &f.allow[i]
		under, wild := strings.CutPrefix(a.host, "*")
		hosts := host == a.host || wild && strings.HasSuffix(host, under) && host != under[1:]
		if hosts && u.Scheme == a.scheme && portOf(u) == a.port && below(u.Path, a.prefix) {
			return a
		}
	}
	return nil
}

// below reports whether a path is a prefix or lies below it, as a server sees it that resolves .. in it.
func below(at, prefix string) bool {
	return strings.HasPrefix(path.Clean("/"+at)+"/", strings.TrimSuffix(prefix, "/")+"/")
}

// check says why a URL is out of reach.
func (f *fetcher) check(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("url: want https://…, got %q", u.Redacted())
	case u.User != nil:
		return errors.New("url: a user or a password must not be in it")
	case f.match(u) == nil:
		return fmt.Errorf("%s is not in reach: url_scope.allow has %s", u.Redacted(), f)
	}
	return nil
}

func (f *fetcher) String() string {
	var texts []string
	for _, a := range f.allow {
		host := a.host
		if a.port != "" {
			host = net.JoinHostPort(host, a.port)
		}
		texts = append(texts, a.scheme+"://"+host+a.prefix)
	}
	return strings.Join(texts, ", ")
}

// get fetches a page. It connects to the address that was checked, however often the name changes its own.
func (f *fetcher) get(ctx context.Context, at *url.URL, most int, denied func(*url.URL) bool) (*fetchURLOut, error) {
	transport := &http.Transport{
		Proxy:                  nil, // a proxy would look up the name again
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext:            f.dial,
	}
	defer transport.CloseIdleConnections()
	hc := &http.Client{
		Transport: transport,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			req.Header.Del("Referer")
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("more than %d redirects", maxRedirects)
			case denied(req.URL):
				return fmt.Errorf("%s is denied by a rule", req.URL.Redacted())
			}
			return f.check(req.URL)
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "agentd")
	resp, err := hc.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("%s: %w", at.Redacted(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := &fetchURLOut{
		URL: at.String(), FinalURL: resp.Request.URL.String(), Status: resp.StatusCode,
		ContentType: resp.Header.Get("Content-Type"),
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.Redacted(), err)
	}
	if out.Truncated = len(body) > most; out.Truncated {
		body = wholeRunes(body[:most])
	}
	if out.Bytes = len(body); readable(out.ContentType, body) {
		out.Body = valid(body)
	} else {
		out.Body = "[not shown: it is no text]"
	}
	return out, nil
}

// readable reports whether a body is text.
func readable(contentType string, body []byte) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return textual(body)
	}
	switch group, _, _ := strings.Cut(kind, "/"); group {
	case "image", "audio", "video", "font":
		return kind == "image/svg+xml"
	default:
		return textual(body)
	}
}

// dial connects to one of the addresses of a host that are in reach.
func (f *fetcher) dial(ctx context.Context, netw, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var refused error
	for _, ip := range ips {
		ip = ip.Unmap()
		if err := f.reaches(host, ip); err != nil {
			refused = err
			continue
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, netw, net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		refused = err
	}
	return nil, refused
}

// reaches says why an address must not be connected to: private ones belong to hosts that an entry names in full.
func (f *fetcher) reaches(host string, ip netip.Addr) error {
	switch {
	case ip.IsLinkLocalUnicast(), ip.IsMulticast(), ip.IsUnspecified(),
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s has the address %s, which is never in reach", host, ip)
	case !isPrivate(ip):
		return nil
	}
	for _, a := range f.allow {
		if strings.EqualFold(a.host, host) {
			return nil
		}
	}
	return fmt.Errorf("%s has the private address %s: url_scope.allow must name that host itself", host, ip)
}

// notGlobal are addresses that lead to no host of the Internet, or to one behind a translation, beside those that
// net/netip knows.
var notGlobal = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

func isPrivate(ip netip.Addr) bool {
	if ip.IsPrivate() || ip.IsLoopback() {
		return true
	}
	for _, p := range notGlobal {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
