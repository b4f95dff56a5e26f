package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
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
	lost     func()          // called when the stream of a server's own messages ends
	life     context.Context // ends all requests
	abort    context.CancelFunc
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
	w := &web{endpoint: u, headers: c.Headers, base: base, lost: lost}
	w.life, w.abort = context.WithCancel(context.Background())
	return w, nil
}

func (w *web) transport(a *authorizer) sdk.Transport {
	t := &sdk.StreamableClientTransport{
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
	if a != nil {
		t.OAuthHandler = a
	}
	return t
}

func (w *web) own(u *url.URL) bool { return u.Scheme == w.endpoint.Scheme && u.Host == w.endpoint.Host }

func (w *web) close() {
	w.abort()
	w.base.CloseIdleConnections()
}

// RoundTrip implements [http.RoundTripper].
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(w.life, cancel)
	done := func() {
		stop()
		cancel()
	}
	req = req.Clone(ctx)
	if w.own(req.URL) {
		for name, value := range w.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := w.base.RoundTrip(req)
	noteOutcome(req.Context(), resp, err)
	if err != nil {
		done()
		return nil, err
	}
	b := &body{ReadCloser: resp.Body, ended: func() {}, closed: done}
	switch mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case req.Header.Get("Mcp-Method") == "subscriptions/listen":
		// In the protocol of 2026-07-28 nothing else shows that a server has gone, and with it the notices that
		// the client has subscribed to.
		b.ended = w.lost
	case mediaType != "text/event-stream":
		b.ReadCloser = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	resp.Body = b
	return resp, nil
}

// body is the body of a response, which says when it ends.
type body struct {
	io.ReadCloser
	once   sync.Once
	ended  func() // called once, when there is no more to read
	closed func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.ended)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
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
