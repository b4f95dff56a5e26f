package adapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
)

// Failure is what an adapter knows of a call that the provider refused.
type Failure struct {
	// Provider is the provider's name.
	Provider string
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Header is the response's header; may be nil.
	Header http.Header
	// Code is the provider's own error code or type, "" if there was none.
	Code string
	// Message is the provider's text, not yet redacted.
	Message string
	// Secrets are the keys that must not show in the message.
	Secrets []string
	// Err is the cause; it must not hold a key. May be nil.
	Err error
}

// Error returns f as an error. It derives the kind from status, code and message, redacts and cuts
// the message, and is final if the header "X-Should-Retry" says so.
func (f Failure) Error() *model.Error {
	msg := wiretap.Redact(f.Message, f.Secrets...)
	theirs := msg != "" || f.Code != ""
	if msg == "" {
		msg = http.StatusText(f.Status)
	}
	if msg == "" {
		msg = "the provider refused the request without saying why"
	}
	if f.Code != "" && !strings.Contains(msg, f.Code) {
		msg = wiretap.Redact(f.Code, f.Secrets...) + ": " + msg
	}
	e := &model.Error{
		Kind: f.kind(), Provider: f.Provider, Status: f.Status, Message: msg,
		RetryAfter: retryAfter(f.Header, time.Now()), Final: f.Header.Get("X-Should-Retry") == "false",
		Err: f.Err,
	}
	if theirs {
		return e.ForCaller()
	}
	return e
}

// kind maps status, code and message to a kind.
func (f Failure) kind() model.Kind {
	text := strings.ToLower(f.Code + " " + f.Message)
	kind := kindOfStatus(f.Status)
	// Some servers say so with a status of their own failure, or in a stream.
	if kind == model.KindInvalid || kind == model.KindUnavailable && f.Status != http.StatusNotFound {
		if containsAny(text, tooLong...) {
			return model.KindContextTooLong
		}
	}
	if kind != model.KindInvalid {
		return kind
	}
	switch {
	case containsAny(text, "content_filter", "content_policy", "content policy", "responsibleaipolicy",
		"moderation_blocked", "safety system", "content filtering policy"):
		return model.KindBlocked
	case containsAny(text, "api key not valid", "api_key_invalid", "invalid_api_key", "api key expired",
		"api key not found"):
		return model.KindAuth
	default:
		return model.KindInvalid
	}
}

// tooLong is how providers and servers say that a prompt does not fit.
var tooLong = []string{
	"context_length_exceeded", "exceed_context_size", "context length", "context window", "context size",
	"context limit", "maximum context",
	"prompt is too long", "prompt exceeds max length", "maximum prompt length", "input is too long",
	"range of input length",
	"exceeds the maximum number of tokens", "exceeded model token limit", "too many input tokens",
	"only supports up to",
	"`inputs` tokens", "request payload size exceeds",
}

func containsAny(s string, subs ...string) bool {
	for _, sub := range subs {
		if strings.Contains(s, sub) {
			return true
		}
	}
	return false
}

// kindOfStatus maps an HTTP status to a kind. A status that is no error (0, 2xx, 3xx) is
// model.KindUnavailable.
func kindOfStatus(status int) model.Kind {
	switch {
	case status == http.StatusTooManyRequests:
		return model.KindRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return model.KindAuth
	case status == http.StatusNotFound, isBusy(status):
		return model.KindUnavailable
	case status == http.StatusRequestTimeout:
		return model.KindTimeout
	case status == http.StatusRequestEntityTooLarge:
		return model.KindContextTooLong
	case status >= 400 && status < 500:
		return model.KindInvalid
	default:
		return model.KindUnavailable
	}
}

// isBusy reports whether a status below 500 means that the same request may soon succeed. The
// providers' own SDKs retry after a conflict, too.
func isBusy(status int) bool { return status == http.StatusConflict || status == http.StatusTooEarly }

// retryAfter returns how long the header asks to wait, in seconds, in milliseconds
// ("Retry-After-Ms") or until a date, at most seam.MaxRetryAfter; 0 if it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	d := time.Duration(0)
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		d = seconds(ms / 1000)
	} else if s := h.Get("Retry-After"); s != "" {
		if sec, err := strconv.ParseFloat(s, 64); err == nil {
			d = seconds(sec)
		} else if at, err := http.ParseTime(s); err == nil {
			if sent, err := http.ParseTime(h.Get("Date")); err == nil {
				now = sent // by the clock that has named the date
			}
			d = at.Sub(now)
		}
	}
	return min(max(d, 0), seam.MaxRetryAfter)
}

// seconds returns s as a duration, at most seam.MaxRetryAfter; 0 for NaN.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, seam.MaxRetryAfter.Seconds()) * float64(time.Second))
}

// TransportError returns the error of a call that failed without a response, or whose stream broke.
// A response that is too long is a final error. If ctx has ended, it returns the context's error
// instead.
func TransportError(ctx context.Context, provider string, err error, secrets ...string) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	kind := model.KindUnavailable
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		kind = model.KindTimeout
	}
	return &model.Error{
		Kind: kind, Provider: provider, Message: wiretap.Redact(fmt.Sprintf("the call failed: %v", err), secrets...),
		Final: errors.Is(err, seam.ErrLineTooLong) || errors.Is(err, seam.ErrResponseTooLong),
	}
}

// Truncated returns the error of a stream that ended before the response was complete.
func Truncated(provider string) *model.Error {
	return &model.Error{Kind: model.KindUnavailable, Provider: provider,
		Message: "the stream ended before the response was complete"}
}

// Blocked returns the error of content that a provider or its model refuses: what says what
// happened, in the adapter's words, and why is the provider's reason, "" for none.
func Blocked(provider, what, why string, secrets ...string) *model.Error {
	e := &model.Error{Kind: model.KindBlocked, Provider: provider, Message: what}
	if why = wiretap.Redact(why, secrets...); why != "" {
		e.Message = what + ": " + why
		return e.ForCaller()
	}
	return e
}
