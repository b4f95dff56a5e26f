package adapter

import (
	"bytes"
	"cmp"
	"io"
	"net/http"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/wiretap"
)

// idleConns are the unused connections that are kept to one host.
const idleConns = 128

// writeBytes is up to which length a request is one write.
const writeBytes = 16 << 10

// HTTPClient returns a client for a provider's calls. It follows no redirect, since the key would
// travel along in a header of the provider's own; it ends a response with a line of more than
// maxLine bytes (0 means 1 MiB); it lets the server see that the provider is not silent, and keep
// raw responses for turns that ask for them. It sets no timeout, since the server does. base may
// be nil for a transport of its own with the default settings, but that it writes up to 16 KiB at once,
// and keeps up to 128 unused connections to each host, since a server of HTTP/1.1 needs one for each
// call at the same time.
func HTTPClient(base http.RoundTripper, maxLine int) *http.Client {
	if base == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConns, own.MaxIdleConnsPerHost = 4*idleConns, idleConns
		own.WriteBufferSize = writeBytes
		base = own
	}
	return &http.Client{
		Transport:     lineLimitTransport{base, cmp.Or(maxLine, seam.MaxLine)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// lineLimitTransport bounds the lines of each response.
type lineLimitTransport struct {
	base    http.RoundTripper
	maxLine int
}

// RoundTrip implements http.RoundTripper.
func (t lineLimitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = limitLines(wiretap.Body(req, resp), t.maxLine)
	return resp, nil
}

// limitLines returns body with seam.ErrLineTooLong in place of a line longer than limit bytes.
func limitLines(body io.ReadCloser, limit int) io.ReadCloser {
	return &lineLimiter{body: body, limit: limit}
}

// lineLimiter counts the bytes since the last line end. Its reader owns it.
type lineLimiter struct {
	body  io.ReadCloser
	limit int
	n     int
}

// Read implements io.Reader.
func (l *lineLimiter) Read(p []byte) (int, error) {
	if l.n > l.limit {
		return 0, seam.ErrLineTooLong
	}
	n, err := l.body.Read(p)
	for rest := p[:n]; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			l.n += len(rest)
			break
		}
		if l.n+i > l.limit {
			l.n = l.limit + 1
			return 0, seam.ErrLineTooLong
		}
		l.n, rest = 0, rest[i+1:]
	}
	if l.n > l.limit {
		return 0, seam.ErrLineTooLong
	}
	return n, err
}

// Close implements io.Closer.
func (l *lineLimiter) Close() error { return l.body.Close() }
