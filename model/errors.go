package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Kind is what went wrong with a model call, in terms all providers share.
type Kind string

// The kinds of error.
const (
	// KindRateLimited is 429.
	KindRateLimited Kind = "rate_limited"
	// KindAuth is a missing key, 401 and 403.
	KindAuth Kind = "auth"
	// KindUnavailable is an unknown model, 404, 409, 425, 5xx such as an overloaded server, and a
	// stream that is broken or cut short.
	KindUnavailable Kind = "unavailable"
	// KindTimeout is a response that does not come in time.
	KindTimeout Kind = "timeout"
	// KindInvalid is 400: the provider refuses the request.
	KindInvalid Kind = "invalid"
	// KindBlocked is content that the provider refuses.
	KindBlocked Kind = "blocked"
	// KindContextTooLong is a prompt that does not fit.
	KindContextTooLong Kind = "context_too_long"
)

// Error is a failed model call. Its text never holds a key. The provider's own words in it are for
// the caller, since they may repeat what the caller sent; logs take LogValue.
type Error struct {
	// Kind is what went wrong.
	Kind Kind
	// Provider is the provider's name.
	Provider string
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Message is the provider's message, redacted and cut, or the adapter's.
	Message string
	// RetryAfter is how long the provider asks to wait, 0 if it does not.
	RetryAfter time.Duration
	// Usage is what the failed call took, as far as the provider reported it before the response
	// broke off; nil if it reported nothing.
	Usage *Usage
	// Final is true when the same call would fail again, whatever the kind.
	Final bool
	// Suspended is true when the call was not made because the model keeps failing. Adapters do not
	// set it.
	Suspended bool
	// Tries is how often the call was made, 0 or 1 for once. Failed is what the tries before the
	// last one took, as far as the provider reported it; it is not part of Usage. Adapters set
	// neither, except for one that replays a recorded call.
	Tries  int
	Failed []Usage
	// Err is the cause; may be nil.
	Err error

	theirs bool // Message is the provider's, or repeats what was said
}

// Error names the provider, the message, the status and the number of tries.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s%s", e.Provider, e.Message, e.details())
}

// details are the status and the number of tries, as far as there are any.
func (e *Error) details() string {
	var out string
	if e.Status != 0 {
		out = fmt.Sprintf(" (status %d)", e.Status)
	}
	if e.Tries > 1 {
		out += fmt.Sprintf(" after %d tries", e.Tries)
	}
	return out
}

// Temporary reports whether the same call may succeed later: the provider asks to slow down, is
// overloaded or broken, cannot be reached, was silent for too long, or cut its response short. A
// refusal of the request, the key, the model or the content is final.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case KindRateLimited, KindTimeout:
		return !e.Final
	case KindUnavailable:
		// Without a status it is a connection or a response that broke.
		return !e.Final && (e.Status == 0 || e.Status == http.StatusConflict || e.Status == http.StatusTooEarly ||
			e.Status >= http.StatusInternalServerError && e.Status != http.StatusNotImplemented)
	default:
		return false
	}
}

// LogValue returns the error without the provider's own words.
func (e *Error) LogValue() slog.Value {
	if !e.theirs {
		return slog.StringValue(e.Error())
	}
	return slog.StringValue(fmt.Sprintf("%s: %s%s; the message is for the caller alone", e.Provider, e.Kind,
		e.details()))
}

// ForCaller returns a copy of e whose Message is for the caller alone, because it is the provider's
// or repeats what the caller sent. LogValue leaves it out.
func (e *Error) ForCaller() *Error {
	out := *e
	out.theirs = true
	return &out
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Spent returns err, an *Error or a context's error, with what the failed call took, u.Normal(). It
// returns err itself if u is zero, if err already has a usage, or if err is of another type.
func (u Usage) Spent(err error) error {
	if u = u.Normal(); spent(err) || u == (Usage{}) {
		return err
	}
	if e, ok := errors.AsType[*Error](err); ok {
		out := *e
		out.Usage = &u
		return &out
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &aborted{err, u}
	}
	return err
}

// spent reports whether err has a usage.
func spent(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Usage != nil
	}
	_, ok := errors.AsType[*aborted](err)
	return ok
}

// aborted is a context's error, with the usage that the provider reported before the context ended.
type aborted struct {
	error
	usage Usage
}

// Unwrap returns the context's own error.
func (a *aborted) Unwrap() error { return a.error }

// Took returns the usage. Package modelcall reads it.
func (a *aborted) Took() Usage { return a.usage }
