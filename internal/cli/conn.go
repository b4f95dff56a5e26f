package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

const (
	// dialTimeout bounds setting up a connection, callTimeout a unary call: a cancel
	// waits until nothing of the turn runs.
	dialTimeout = 10 * time.Second
	callTimeout = 2 * time.Minute
	// maxMessage bounds what a daemon may send at once, in bytes.
	maxMessage = 16 << 20
)

// Conn is a daemon. It holds no goroutine between calls; its methods may be called
// from any goroutine.
type Conn struct {
	agentdv1connect.SessionServiceClient
	url       string
	transport *http.Transport
}

// Dial names the daemon at a URL such as http://127.0.0.1:8080. It does not
// connect.
func Dial(address string) (*Conn, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the daemon's URL has to be http://host:port or https://host, got %q", address)
	}
	tr := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     time.Minute,
	}
	// A redirect would carry what is sent to another host.
	hc := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Conn{
		SessionServiceClient: agentdv1connect.NewSessionServiceClient(hc, strings.TrimRight(u.String(), "/"), connect.WithReadMaxBytes(maxMessage)),
		url:                  u.Redacted(),
		transport:            tr,
	}, nil
}

// Close closes the connections that are idle.
func (c *Conn) Close() { c.transport.CloseIdleConnections() }

// Error is what a daemon has refused, or that there is none.
type Error struct {
	// Code is the protocol's; unset when the daemon was not reached.
	Code agentdv1.ErrorCode
	// Message is for people.
	Message string
	// Unreachable is true when nobody has answered.
	Unreachable bool
	// Retryable is true when the daemon says that the same may succeed later.
	Retryable bool
	// RetryAfter is how long the daemon asks to wait, 0 if it does not.
	RetryAfter time.Duration
	// Err is the cause.
	Err error
}

// Error returns the message, and the code for those who look it up.
func (e *Error) Error() string {
	if e.Code == agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED {
		return e.Message
	}
	return e.Message + " (" + codeName(e.Code) + ")"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// refusal is what a daemon has said.
func refusal(e *agentdv1.RunResponse_ErrorResponse, err error) *Error {
	return &Error{Code: e.GetCode(), Message: Clean(e.GetMessage()), Retryable: e.GetRetryable(), RetryAfter: e.GetRetryAfter().AsDuration(), Err: err}
}

// codeName is SESSION_BUSY for ERROR_CODE_SESSION_BUSY.
func codeName(c agentdv1.ErrorCode) string { return strings.TrimPrefix(c.String(), "ERROR_CODE_") }

// explain makes an error of a call one that people understand.
func (c *Conn) explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return &Error{Message: err.Error(), Err: err}
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if e, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok {
				return refusal(e, ce)
			}
		}
	}
	switch {
	case ce.Code() == connect.CodeCanceled, ce.Code() == connect.CodeResourceExhausted:
		return &Error{Message: Clean(ce.Message()), Err: ce}
	case ce.Code() == connect.CodeUnimplemented:
		return &Error{Message: fmt.Sprintf("the server at %s does not know this: it is no agentd, or an older one than this program", c.url), Err: ce}
	case errors.Is(ce, io.ErrUnexpectedEOF), errors.Is(ce, syscall.ECONNRESET):
		return &Error{Message: fmt.Sprintf("the connection to agentd at %s was lost", c.url), Unreachable: true, Err: ce}
	case !connect.IsWireError(ce):
		return &Error{Message: fmt.Sprintf("no agentd answers at %s: %s", c.url, Clean(ce.Message())), Unreachable: true, Err: ce}
	}
	return &Error{Message: Clean(ce.Message()), Err: ce}
}

// Call makes a unary call of a Conn. Its errors are *Error.
func Call[Req, Resp any](ctx context.Context, c *Conn, method func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) (*Resp, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("%s has not answered within %v", c.url, callTimeout))
	defer cancel()
	resp, err := method(ctx, connect.NewRequest(req))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, &Error{Message: cause.Error(), Err: cause}
	}
	if err != nil {
		return nil, c.explain(err)
	}
	return resp.Msg, nil
}

// persist is Call of a turn's daemon, made again while the daemon is not there or
// says that it may do better later, until ctx ends. What it does must be the same
// when it is done twice.
func persist[Req, Resp any](ctx context.Context, t *Turn, method func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) (*Resp, error) {
	told := false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		resp, err := Call(ctx, t.Conn, method, req)
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		e := t.Conn.explain(err)
		if !mayPass(e) {
			return nil, err
		}
		// That the connection is lost is told by whoever follows the turn.
		if e.Code != agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED && !told {
			told = true
			t.Note("%v; trying again", e)
		}
		if !pause(ctx, max(wait, e.RetryAfter)) {
			return nil, err
		}
	}
}

// pause waits; false says that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// mayPass tells whether the same may do better later.
func mayPass(e *Error) bool {
	switch e.Code {
	case agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, agentdv1.ErrorCode_ERROR_CODE_TIMEOUT:
		return true
	case agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED: // too many, which passes, or too large
		return e.Retryable
	case agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED: // of the network, or of what stands between
		ce, ok := errors.AsType[*connect.Error](e.Err)
		return !ok || !connect.IsWireError(ce) || ce.Code() == connect.CodeUnavailable || ce.Code() == connect.CodeDeadlineExceeded || ce.Code() == connect.CodeUnknown
	default:
		return false
	}
}

// unknownOutcome tells whether a request may have been done though it has failed: it
// was sent, and no daemon has said what became of it.
func unknownOutcome(e *Error) bool {
	op, ok := errors.AsType[*net.OpError](e.Err)
	return e.Code == agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED && mayPass(e) && (!ok || op.Op != "dial" && op.Op != "proxyconnect")
}
