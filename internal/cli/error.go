package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/apzuk3/agentd/client"
)

// Error is why a request or a turn failed, in words for people.
type Error struct {
	// Code is the protocol's; 0 when the daemon was not reached.
	Code client.Code
	// Message is for people.
	Message string
	// Unreachable is true when no daemon responded.
	Unreachable bool
	// Retryable is true when the daemon says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long the daemon asks to wait, 0 if it does not.
	RetryAfter time.Duration
	// Err is the cause.
	Err error
}

// Error returns the message, and the code for those who look it up.
func (e *Error) Error() string {
	if e.Code == 0 {
		return e.Message
	}
	return e.Message + " (" + e.Code.Error() + ")"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// explain says in words for people why package client failed.
func (c *Conn) explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return &Error{Message: err.Error(), Err: err}
	}
	// A run that stops reconnecting wraps the failure of its last attempt.
	if last, ok := errors.AsType[*client.Error](e.Err); ok && e.Code == client.ErrUnavailable {
		return c.lost(last)
	}
	out := &Error{Code: e.Code, Message: Clean(e.Message), Retryable: e.Retryable, RetryAfter: e.RetryAfter, Err: err}
	if e.Err == nil || e.Code != client.ErrUnavailable && e.Code != client.ErrTimeout {
		return out
	}
	out.Code, out.Unreachable = 0, true
	out.Message = fmt.Sprintf("no agentd responds at %s: %s", c.url, reason(e))
	if errors.Is(e, io.ErrUnexpectedEOF) || errors.Is(e, syscall.ECONNRESET) {
		out.Message = c.wasLost()
	}
	return out
}

// lost says why a stream ended before its turn. Unless the daemon says so itself, or could
// not be reached, all that matters is that the connection was lost.
func (c *Conn) lost(e *client.Error) *Error {
	out := c.explain(e)
	if e.Err != nil && !isDial(e) {
		out.Code, out.Unreachable, out.Message = 0, true, c.wasLost()
	}
	return out
}

func (c *Conn) wasLost() string { return fmt.Sprintf("the connection to agentd at %s was lost", c.url) }

// isDial reports whether a connection could not be set up.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect")
}

// reason is what the network says about an error.
func reason(e *client.Error) string {
	if op, ok := errors.AsType[*net.OpError](e.Err); ok {
		return Clean(op.Error())
	}
	text := Clean(e.Message)
	for _, prefix := range []string{"the request failed: ", "the stream failed: ", "unavailable: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// mayPass reports whether the same request may succeed later.
func (e *Error) mayPass() bool {
	switch e.Code {
	case client.ErrUnavailable, client.ErrTimeout:
		return true
	case client.ErrLimitExceeded: // too many, which passes, or too large
		return e.Retryable
	default:
		return e.Unreachable
	}
}

// unknownOutcome reports whether the daemon may have done a request that failed: it was
// sent, and no reply came.
func (e *Error) unknownOutcome() bool {
	return e.Unreachable && !isDial(e.Err)
}
