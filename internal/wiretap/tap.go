// Package wiretap observes the HTTP responses of one model call: that bytes arrived, which is a
// sign of life, and, if somebody asks for it, which bytes, without the secrets of the request. The
// caller puts a [Heard] or a [Tap] into the call's context, and the transport of the provider's
// client passes each body through [Body].
//
// It knows HTTP and what keys look like; neither models nor providers.
package wiretap

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxBody bounds the body of one response, in bytes, and maxBodies those of one tap.
	MaxBody   = 1 << 20
	maxBodies = 4 << 20
	// maxResponses bounds how many responses of one try are kept.
	maxResponses = 64
	// bodySlack is how much more is read of a body, in bytes, so that a key across
	// its end is still seen whole.
	bodySlack = 8 << 10
	// maxContentType bounds what is kept of a content type, in bytes.
	maxContentType = 256
	// minSecret is the length, in bytes, below which a header's value is not searched for: any text
	// may contain it.
	minSecret = 6
)

// Response is an HTTP response as it came, without the keys of the request, which some providers
// repeat.
type Response struct {
	Status      int
	ContentType string
	// Body is what was read of it, at most MaxBody bytes; Truncated is true when there was more.
	Body      []byte
	Truncated bool
}

// Tap keeps the HTTP responses of one call; safe for concurrent use.
type Tap struct {
	mu        sync.Mutex // protects the fields below
	responses []*tapped
	held      int // bytes of all bodies
	closed    bool
}

// tapped is one response; its tap's lock protects its fields.
type tapped struct {
	response Response
	secrets  []string
	size     int64 // of the body, as its header says; -1 if it does not
	read     int64
}

// tapKey is the context key of *Tap, and heardKey that of *Heard.
type (
	tapKey   struct{}
	heardKey struct{}
)

// Heard notes when bytes of a response were last read; safe for concurrent use.
type Heard struct {
	began time.Time
	last  atomic.Int64 // in nanoseconds after began
}

// Listen returns a context whose HTTP responses are noted, as far as they pass Body. Their silence begins now.
func Listen(ctx context.Context) (context.Context, *Heard) {
	h := &Heard{began: time.Now()}
	return context.WithValue(ctx, heardKey{}, h), h
}

// Note notes a sign of life.
func (h *Heard) Note() { h.last.Store(int64(time.Since(h.began))) }

// Silence returns how long there was no sign of life.
func (h *Heard) Silence() time.Duration { return time.Since(h.began) - time.Duration(h.last.Load()) }

// heardBody belongs to its reader.
type heardBody struct {
	io.ReadCloser
	heard *Heard
}

// Read implements io.Reader.
func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.heard.Note()
	}
	return n, err
}

// New returns a context whose HTTP responses the tap keeps, as far as they pass Body.
func New(ctx context.Context) (context.Context, *Tap) {
	t := &Tap{}
	return context.WithValue(ctx, tapKey{}, t), t
}

// Body returns the body of resp, the response to req, wrapped for the Heard and the Tap in the
// context of req; nil if resp has no body.
func Body(req *http.Request, resp *http.Response) io.ReadCloser {
	body := resp.Body
	if body == nil {
		return nil
	}
	if h, ok := req.Context().Value(heardKey{}).(*Heard); ok {
		body = &heardBody{body, h}
	}
	t, _ := req.Context().Value(tapKey{}).(*Tap)
	if t == nil {
		return body
	}
	a := &tapped{
		response: Response{Status: resp.StatusCode},
		secrets:  secretsOf(req), size: resp.ContentLength,
	}
	kind := strings.ToValidUTF8(resp.Header.Get("Content-Type"), "\uFFFD")
	for _, s := range a.secrets {
		kind = hide(kind, s)
	}
	a.response.ContentType = strings.ToValidUTF8(kind[:min(len(kind), maxContentType)], "")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.held >= maxBodies || len(t.responses) >= maxResponses {
		return body
	}
	t.responses = append(t.responses, a)
	return &tappedBody{body, t, a}
}

// tappedBody belongs to its reader.
type tappedBody struct {
	io.ReadCloser
	tap *Tap
	to  *tapped
}

// Read implements io.Reader.
func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.tap.keep(b.to, p[:n])
	}
	return n, err
}

func (t *Tap) keep(a *tapped, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	a.read += int64(len(data))
	room := min(MaxBody-len(a.response.Body), maxBodies-t.held) + bodySlack
	if room < len(data) {
		a.response.Truncated = true
		data = data[:max(room, 0)]
	}
	a.response.Body = append(a.response.Body, data...)
	t.held += len(data)
}

// Close ends the tap, and returns its responses. It does not keep what an abandoned adapter reads
// later.
func (t *Tap) Close() []Response {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var out []Response
	left := maxBodies
	for _, a := range t.responses {
		r := a.response
		text := string(r.Body)
		for _, s := range a.secrets {
			text = hideEnd(hide(text, s), s)
		}
		if r.Status >= http.StatusBadRequest {
			text = keyLike.ReplaceAllStringFunc(text, Keys) // Some repeat a part of a key.
		}
		r.Truncated = r.Truncated || a.size > a.read
		if limit := min(MaxBody, left); len(text) > limit {
			text, r.Truncated = text[:limit], true
		}
		r.Body, left = []byte(text), left-len(text)
		out = append(out, r)
	}
	return out
}

// keyLike matches texts that may be keys, or hold one.
var keyLike = regexp.MustCompile(`[A-Za-z0-9_.*-]{10,}`)

// hide replaces a secret, escaped or not.
func hide(text, secret string) string {
	for _, form := range Forms(secret) {
		text = strings.ReplaceAll(text, form, "[redacted]")
	}
	return text
}

// hideEnd replaces the beginning of a secret at the end of a text that may be cut there.
func hideEnd(text, secret string) string {
	for _, form := range Forms(secret) {
		for n := len(form) - 1; n >= minSecret; n-- {
			if head, ok := strings.CutSuffix(text, form[:n]); ok {
				return head + "[redacted]"
			}
		}
	}
	return text
}

// keyName are the names of headers and parameters that may hold keys.
var keyName = regexp.MustCompile(`(?i)key|auth|token|secret|cookie|signature`)

// secretsOf returns the values of the request's headers and of its query that may be keys, by their
// names.
func secretsOf(req *http.Request) []string {
	var out []string
	note := func(name string, values []string) {
		if !keyName.MatchString(name) {
			return
		}
		for _, v := range values {
			// A scheme such as Bearer is no secret.
			if _, after, ok := strings.Cut(v, " "); ok && len(after) >= minSecret {
				out = append(out, after)
			}
			if len(v) >= minSecret {
				out = append(out, v)
			}
		}
	}
	for name, values := range req.Header {
		note(name, values)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err == nil {
		for name, values := range query {
			note(name, values)
		}
	}
	return out
}
