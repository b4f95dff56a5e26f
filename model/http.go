package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/wiretap"
)

const (
	// MaxLine bounds a line of a provider's stream, in bytes.
	MaxLine = 1 << 20
	// maxErrorBody bounds what is kept of a provider's error text, in bytes.
	maxErrorBody = 1 << 10
	// MaxRetryAfter bounds what a provider may ask to wait.
	MaxRetryAfter = 24 * time.Hour
)

// ErrLineTooLong is the error of reading a stream line longer than the limit, and
// ErrAnswerTooLong that of reading more of an answer than any honest one has. The same
// answer would be as long another time.
var (
	ErrLineTooLong   = errors.New("a line of the stream is too long")
	ErrAnswerTooLong = errors.New("the answer is too long")
)

// HTTPClient returns a client for provider calls: it follows no redirect, since
// the key would travel along in a header of the provider's own, bounds lines of
// the answer to MaxLine, and sets no timeout, since the server does. base may be nil
// for a transport of its own with the default settings.
func HTTPClient(base http.RoundTripper) *http.Client { return LongHTTPClient(base, MaxLine) }

// LongHTTPClient is HTTPClient for providers whose lines may have up to maxLine bytes,
// see ReadLongEvents.
func LongHTTPClient(base http.RoundTripper, maxLine int) *http.Client {
	if base == nil {
		base = http.DefaultTransport.(*http.Transport).Clone()
	}
	return &http.Client{
		Transport:     lineLimitTransport{base, maxLine},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// lineLimitTransport bounds the lines of each answer.
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
	resp.Body = LimitLines(Tapped(req, resp), t.maxLine)
	return resp, nil
}

// LimitLines returns body with ErrLineTooLong in place of a line longer than
// limit bytes.
func LimitLines(body io.ReadCloser, limit int) io.ReadCloser {
	return &lineLimiter{body: body, limit: limit}
}

// lineLimiter counts the bytes since the last line end. Owned by its reader.
type lineLimiter struct {
	body  io.ReadCloser
	limit int
	n     int
}

// Read implements io.Reader.
func (l *lineLimiter) Read(p []byte) (int, error) {
	if l.n > l.limit {
		return 0, ErrLineTooLong
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
			return 0, ErrLineTooLong
		}
		l.n, rest = 0, rest[i+1:]
	}
	if l.n > l.limit {
		return 0, ErrLineTooLong
	}
	return n, err
}

// Close implements io.Closer.
func (l *lineLimiter) Close() error { return l.body.Close() }

// Failure is what an adapter knows of a refused call.
type Failure struct {
	// Provider is the provider's name.
	Provider string
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Header is the answer's header; may be nil.
	Header http.Header
	// Code is the provider's own error code or type, "" if there was none.
	Code string
	// Message is the provider's text, not yet redacted.
	Message string
	// Secrets are the keys that must not show.
	Secrets []string
	// Err is the cause; it must not hold a key. May be nil.
	Err error
}

// Error makes an *Error of f: its kind from status, code and message, its
// message redacted and cut. It is final when the provider says so in the header
// "X-Should-Retry".
func (f Failure) Error() *Error {
	msg := Redact(f.Message, f.Secrets...)
	theirs := msg != "" || f.Code != ""
	if msg == "" {
		msg = http.StatusText(f.Status)
	}
	if msg == "" {
		msg = "the provider refused the request without saying why"
	}
	if f.Code != "" && !strings.Contains(msg, f.Code) {
		msg = Redact(f.Code, f.Secrets...) + ": " + msg
	}
	return &Error{
		Kind: f.kind(), Provider: f.Provider, Status: f.Status, Message: msg,
		RetryAfter: RetryAfter(f.Header, time.Now()), Final: f.Header.Get("X-Should-Retry") == "false",
		Err: f.Err, theirs: theirs,
	}
}

// kind maps status, code and message to a kind.
func (f Failure) kind() Kind {
	text := strings.ToLower(f.Code + " " + f.Message)
	kind := KindOfStatus(f.Status)
	// Some servers say so with a status of their own failure, or in a stream.
	if kind == KindInvalid || kind == KindUnavailable && f.Status != http.StatusNotFound {
		if containsAny(text, tooLong...) {
			return KindContextTooLong
		}
	}
	if kind != KindInvalid {
		return kind
	}
	switch {
	case containsAny(text, "content_filter", "content_policy", "content policy", "responsibleaipolicy", "moderation_blocked", "safety system", "content filtering policy"):
		return KindBlocked
	case containsAny(text, "api key not valid", "api_key_invalid", "invalid_api_key", "api key expired", "api key not found"):
		return KindAuth
	default:
		return KindInvalid
	}
}

// tooLong is how providers and servers say that a prompt does not fit.
var tooLong = []string{
	"context_length_exceeded", "exceed_context_size", "context length", "context window", "context size", "context limit", "maximum context",
	"prompt is too long", "prompt exceeds max length", "maximum prompt length", "input is too long", "range of input length",
	"exceeds the maximum number of tokens", "exceeded model token limit", "too many input tokens", "only supports up to",
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

// KindOfStatus maps an HTTP status to a kind. A status that is none (0, 2xx,
// 3xx) is KindUnavailable.
func KindOfStatus(status int) Kind {
	switch {
	case status == http.StatusTooManyRequests:
		return KindRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return KindAuth
	case status == http.StatusNotFound, isBusy(status):
		return KindUnavailable
	case status == http.StatusRequestTimeout:
		return KindTimeout
	case status == http.StatusRequestEntityTooLarge:
		return KindContextTooLong
	case status >= 400 && status < 500:
		return KindInvalid
	default:
		return KindUnavailable
	}
}

// isBusy tells whether a status below 500 says that the same request may go well in a
// moment. The providers' own SDKs ask again after a conflict, too.
func isBusy(status int) bool { return status == http.StatusConflict || status == http.StatusTooEarly }

// RetryAfter returns what the header asks to wait, in seconds, in milliseconds
// ("Retry-After-Ms") or until a date, at most MaxRetryAfter; 0 if it does not say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
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
	return min(max(d, 0), MaxRetryAfter)
}

// seconds is s as a duration, at most MaxRetryAfter; what is no number is 0.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, MaxRetryAfter.Seconds()) * float64(time.Second))
}

// TransportError makes an *Error of a call that failed without an answer, or
// whose stream broke; a final one of an answer that is too long. When ctx has ended it
// is the context's error instead.
func TransportError(ctx context.Context, provider string, err error, secrets ...string) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	kind := KindUnavailable
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		kind = KindTimeout
	}
	return &Error{
		Kind: kind, Provider: provider, Message: Redact(fmt.Sprintf("the call failed: %v", err), secrets...),
		Final: errors.Is(err, ErrLineTooLong) || errors.Is(err, ErrAnswerTooLong),
	}
}

// Truncated is the error of a stream that ended before the answer was complete.
func Truncated(provider string) *Error {
	return &Error{Kind: KindUnavailable, Provider: provider, Message: "the stream ended before the answer was complete"}
}

// MissingKey is the error of Open when there is no key: env and header would
// hold it.
func MissingKey(provider, env, header string) *Error {
	return &Error{
		Kind: KindAuth, Provider: provider,
		Message: fmt.Sprintf("no API key: set %s on the server or send the header %s", env, header),
	}
}

// Redact returns text fit for an error message: the secrets, escaped or not, and
// everything that looks like a provider's key replaced, control characters and line ends
// turned into spaces, cut to 1 KiB.
func Redact(text string, secrets ...string) string {
	for _, s := range secrets {
		for _, form := range wiretap.Forms(s) {
			text = strings.ReplaceAll(text, form, "[redacted]")
		}
	}
	fields := strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
	for i, f := range fields {
		fields[i] = wiretap.Keys(f)
	}
	text = strings.Join(fields, " ")
	if len(text) > maxErrorBody {
		cut := maxErrorBody
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}
