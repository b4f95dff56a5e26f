package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBody is the most bytes of an answer that is no stream of events, whose events the SDK bounds.
const maxBody = 32 << 20

// web is a server that is reached by HTTP.
type web struct {
	endpoint *url.URL
	headers  map[string]string
	base     *http.Transport
	lost     func() // called when the stream of a server's own messages ends
}

func newWeb(c serverConfig, lost func()) (*web, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     time.Minute,
	}
	return &web{endpoint: u, headers: c.Headers, base: base, lost: lost}, nil
}

func (w *web) transport() sdk.Transport {
	return &sdk.StreamableClientTransport{
		Endpoint: w.endpoint.String(),
		HTTPClient: &http.Client{
			Transport: w,
			// The headers are for this host alone.
			CheckRedirect: func(req *http.Request, via []*http.Request) error {
				if !w.own(req.URL) || len(via) > 3 {
					return http.ErrUseLastResponse
				}
				return nil
			},
		},
	}
}

func (w *web) own(u *url.URL) bool { return u.Scheme == w.endpoint.Scheme && u.Host == w.endpoint.Host }

func (w *web) close() { w.base.CloseIdleConnections() }

// RoundTrip implements [http.RoundTripper].
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.own(req.URL) {
		req = req.Clone(req.Context())
		for name, value := range w.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := w.base.RoundTrip(req)
	noteOutcome(req.Context(), resp, err)
	if err != nil {
		return nil, err
	}
	if req.Header.Get("Mcp-Method") == "subscriptions/listen" {
		resp.Body = &watched{ReadCloser: resp.Body, ended: w.lost}
		return resp, nil
	}
	if resp.Header.Get("Content-Type") == "application/json" || resp.StatusCode >= 300 {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	return resp, nil
}

// watched reports the end of a body. In the protocol of 2026-07-28 nothing else shows that a server has gone, and
// with it the notices that the client has subscribed to.
type watched struct {
	io.ReadCloser
	once  sync.Once
	ended func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		w.once.Do(w.ended)
	}
	return n, err
}

// outcome is what became of the request of a call; see noteOutcome.
type outcome struct {
	mu     sync.Mutex // protects the fields below
	sent   bool       // the server may have it
	status int        // the last answer; 0 for none
}

type outcomeKey struct{}

// withOutcome returns a context whose HTTP requests tell the outcome.
func withOutcome(ctx context.Context) (context.Context, *outcome) {
	o := new(outcome)
	return context.WithValue(ctx, outcomeKey{}, o), o
}

// noteOutcome notes what became of a request, for the call it was made for.
func noteOutcome(ctx context.Context, resp *http.Response, err error) {
	o, _ := ctx.Value(outcomeKey{}).(*outcome)
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch op, dialing := errors.AsType[*net.OpError](err); {
	case err != nil:
		o.sent = o.sent || !dialing || op.Op != "dial"
	case resp.StatusCode < 400 || resp.StatusCode >= 500:
		o.sent, o.status = true, resp.StatusCode
	default:
		o.status = resp.StatusCode // refused
	}
}

// mayHaveRun reports whether the server may have begun the call.
func (o *outcome) mayHaveRun() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent
}

// refusal is the status with which the server refused, which the SDK's errors only hint at; nil if it did not.
func (o *outcome) refusal() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status < 400 {
		return nil
	}
	return fmt.Errorf("it answers %d %s", o.status, http.StatusText(o.status))
}
