package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	// maxReply bounds a reply that is no stream, in bytes.
	maxReply = 32 << 20
	// headerTimeout is how long a backend may take to begin a reply.
	headerTimeout = 2 * time.Minute
	// silence is how long nothing may come on a stream before it counts as broken.
	silence = 90 * time.Second
)

// HTTP calls a backend. It is immutable.
type HTTP struct {
	client *http.Client
	// Secrets are not shown in errors.
	secrets []string
}

// NewHTTP returns an HTTP. It follows no redirect, which could take a key elsewhere. A nil transport is one of its own.
func NewHTTP(transport http.RoundTripper, secrets ...string) *HTTP {
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one, see net/http
		own.ResponseHeaderTimeout = headerTimeout
		transport = own
	}
	return &HTTP{
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		secrets: secrets,
	}
}

// Close closes connections that nobody uses.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Do makes a request. The body of the reply, whose status is 2xx, is the caller's to close.
func (h *HTTP) Do(req *http.Request) (*http.Response, error) {
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, h.broken(req.Context(), err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return nil, h.refused(req, resp.StatusCode, body)
}

// JSON makes a request and decodes the reply into out, unless that is nil.
func (h *HTTP) JSON(req *http.Request, out any) error {
	resp, err := h.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return h.broken(req.Context(), err)
	case len(body) > maxReply:
		return &Error{Code: fault.LimitExceeded,
			Message: fmt.Sprintf("a reply has more than %d bytes, which is how many are read", maxReply)}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &Error{Code: unavailable, Message: h.show("the reply cannot be read: " + err.Error())}
	}
	return nil
}

// unavailable is the code of a backend that does not do what it should.
const unavailable = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE

// broken is the error of a connection.
func (h *HTTP) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Error{Code: unavailable, Message: h.show("the connection failed: " + err.Error()), Temporary: true}
}

// refused is the error of a status.
func (h *HTTP) refused(req *http.Request, status int, body []byte) error {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	text := string(body)
	if json.Unmarshal(body, &said) == nil {
		_ = json.Unmarshal(said.Error, &inner)
		if words := strings.TrimSpace(inner.Message + said.Message); words != "" {
			text = words
		}
	}
	text = fmt.Sprintf("%s %s: status %d: %s", req.Method, req.URL.Path, status, Cut(text))
	e := &Error{Code: unavailable, Message: h.show(text)}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Code = agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED
	case status == http.StatusTooManyRequests:
		e.Code, e.Temporary = agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, true
	case status == http.StatusRequestTimeout, status >= 500:
		e.Temporary = true
	case status == http.StatusNotFound:
		e.Code = fault.NotFound
	case status == http.StatusConflict:
		e.Code = fault.Conflict
	case status/100 == 4:
		e.Code = fault.Invalid
	}
	return e
}

// show returns a text without secrets.
func (h *HTTP) show(text string) string {
	for _, s := range h.secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return text
}

// Broken is the error of a stream that has ended, or on which nothing more comes.
func (h *HTTP) Broken(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("it ended")
	}
	return h.broken(ctx, err)
}

// Watched is a body that is closed when nothing comes on it for too long: then its Read returns an error. It is used
// by one goroutine.
type Watched struct {
	body  io.ReadCloser
	timer *time.Timer
	once  sync.Once
}

// Watch returns a body that does not wait for ever.
func Watch(body io.ReadCloser) *Watched {
	w := &Watched{body: body}
	w.timer = time.AfterFunc(silence, w.close)
	return w
}

func (w *Watched) close() { w.once.Do(func() { _ = w.body.Close() }) }

// Read implements io.Reader.
func (w *Watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.timer.Reset(silence)
	return n, err
}

// Close implements io.Closer.
func (w *Watched) Close() error {
	w.timer.Stop()
	w.close()
	return nil
}
