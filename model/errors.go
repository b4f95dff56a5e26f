package model

import (
	"fmt"
	"log/slog"
	"time"
)

// Kind is what went wrong with a model call, in terms all providers share.
type Kind string

// The kinds of error.
const (
	KindRateLimited    Kind = "rate_limited"     // 429
	KindAuth           Kind = "auth"             // key missing, 401, 403
	KindUnavailable    Kind = "unavailable"      // unknown model, 404, 5xx such as an overloaded server, broken or truncated stream
	KindTimeout        Kind = "timeout"          // no answer in time
	KindInvalid        Kind = "invalid"          // 400: the provider refuses the request
	KindBlocked        Kind = "blocked"          // the provider refuses the content
	KindContextTooLong Kind = "context_too_long" // the prompt does not fit
)

// Error is a failed model call. Its text never holds a key. The provider's own
// words in it are for the caller, since they may repeat what the caller sent; a
// log takes LogValue.
type Error struct {
	// Kind is what went wrong.
	Kind Kind
	// Provider is the provider's name.
	Provider string
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Message is the provider's own words, redacted and cut, or ours.
	Message string
	// RetryAfter is what the provider asked for, 0 if it did not.
	RetryAfter time.Duration
	// Usage is what the failed call took, as when an answer is blocked; nil if the
	// provider did not say.
	Usage *Usage
	// Err is the cause; may be nil.
	Err error

	theirs bool // Message is the provider's
}

// Error names the provider, the status and the message.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s: %s (status %d)", e.Provider, e.Message, e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Provider, e.Message)
}

// LogValue is the error without the provider's own words.
func (e *Error) LogValue() slog.Value {
	if !e.theirs {
		return slog.StringValue(e.Error())
	}
	return slog.StringValue(fmt.Sprintf("%s: %s (status %d); the provider's message is for the caller alone", e.Provider, e.Kind, e.Status))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
