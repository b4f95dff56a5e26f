package model

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

const (
	// MaxRaw bounds the body of one Raw, in bytes, and maxRaws those of one try.
	MaxRaw  = 1 << 20
	maxRaws = 4 << 20
	// maxAnswers bounds how many answers of one try are kept.
	maxAnswers = 64
	// rawSlack is how much more is read of a body, in bytes, so that a key across
	// its end is still seen whole.
	rawSlack = 8 << 10
	// maxContentType bounds what is kept of a content type, in bytes.
	maxContentType = 256
	// minSecret is the length, in bytes, below which a header's value is not looked
	// for: it would be found in any text.
	minSecret = 6
)

// Raw is a provider's HTTP answer as it came, but for the keys of the request,
// which some providers repeat.
type Raw struct {
	// Attempt is the number of the try, from 1. A try may have several answers, in
	// order, such as those of a model that pauses.
	Attempt int
	// Provider has answered, with Status and ContentType.
	Provider    string
	Status      int
	ContentType string
	// Body is what was read of it, at most MaxRaw bytes; Truncated tells that there
	// was more.
	Body      []byte
	Truncated bool
}

// tap keeps what the HTTP answers of one try hold.
type tap struct {
	mu      sync.Mutex // protects the fields below
	answers []*tapped
	held    int // bytes of all bodies
	closed  bool
}

// tapped is one answer; its fields are its tap's.
type tapped struct {
	raw     Raw
	secrets []string
	size    int64 // of the body, as its header says; -1 if it does not
	read    int64
}

// tapKey is the context key of *tap, and heardKey that of heard.
type (
	tapKey   struct{}
	heardKey struct{}
)

// heard holds a value once something was read of an answer. It has room for one.
type heard chan struct{}

// listen returns a context of whose HTTP answers heard is told, as withTap does of
// their bytes.
func (h heard) listen(ctx context.Context) context.Context {
	return context.WithValue(ctx, heardKey{}, h)
}

// heardBody is owned by its reader.
type heardBody struct {
	io.ReadCloser
	heard heard
}

// Read implements io.Reader.
func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		select {
		case b.heard <- struct{}{}:
		default: // it is told of already
		}
	}
	return n, err
}

// withTap returns a context whose HTTP answers are kept, as far as they come over
// a client of HTTPClient or a transport that calls Tapped.
func withTap(ctx context.Context) (context.Context, *tap) {
	t := &tap{}
	return context.WithValue(ctx, tapKey{}, t), t
}

// Tapped returns the body of resp, the answer to req, so that a guard knows that the
// provider is not silent while it is read, see Limits.Idle, and whoever asked for
// raw payloads gets what is read of it, see Request.OnRaw. HTTPClient does so by
// itself: it is for adapters with transports of their own.
func Tapped(req *http.Request, resp *http.Response) io.ReadCloser {
	body := resp.Body
	if body == nil {
		return nil
	}
	if h, ok := req.Context().Value(heardKey{}).(heard); ok {
		body = &heardBody{body, h}
	}
	t, _ := req.Context().Value(tapKey{}).(*tap)
	if t == nil {
		return body
	}
	a := &tapped{
		raw:     Raw{Status: resp.StatusCode},
		secrets: secretsOf(req), size: resp.ContentLength,
	}
	kind := strings.ToValidUTF8(resp.Header.Get("Content-Type"), "\uFFFD")
	for _, s := range a.secrets {
		kind = hide(kind, s)
	}
	a.raw.ContentType = strings.ToValidUTF8(kind[:min(len(kind), maxContentType)], "")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.held >= maxRaws || len(t.answers) >= maxAnswers {
		return body
	}
	t.answers = append(t.answers, a)
	return &tappedBody{body, t, a}
}

// tappedBody is owned by its reader.
type tappedBody struct {
	io.ReadCloser
	tap *tap
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

func (t *tap) keep(a *tapped, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	a.read += int64(len(data))
	room := min(MaxRaw-len(a.raw.Body), maxRaws-t.held) + rawSlack
	if room < len(data) {
		a.raw.Truncated = true
		data = data[:max(room, 0)]
	}
	a.raw.Body = append(a.raw.Body, data...)
	t.held += len(data)
}

// close ends the tap, and returns what came of it. What is read afterwards, by an
// adapter that was left behind, is not kept.
func (t *tap) close(provider string, attempt int) []Raw {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var out []Raw
	left := maxRaws
	for _, a := range t.answers {
		r := a.raw
		r.Provider, r.Attempt = provider, max(attempt, 1)
		text := string(r.Body)
		for _, s := range a.secrets {
			text = hideEnd(hide(text, s), s)
		}
		if r.Status >= http.StatusBadRequest {
			text = keyLike.ReplaceAllStringFunc(text, redactKeys) // Some repeat a part of a key.
		}
		r.Truncated = r.Truncated || a.size > a.read
		if limit := min(MaxRaw, left); len(text) > limit {
			text, r.Truncated = text[:limit], true
		}
		r.Body, left = []byte(text), left-len(text)
		out = append(out, r)
	}
	return out
}

// keyLike are the texts that may be keys, or hold one.
var keyLike = regexp.MustCompile(`[A-Za-z0-9_.*-]{10,}`)

// hide replaces a secret, escaped or not.
func hide(text, secret string) string {
	for _, form := range forms(secret) {
		text = strings.ReplaceAll(text, form, "[redacted]")
	}
	return text
}

// hideEnd replaces the beginning of a secret at the end of a text that may have been
// cut there.
func hideEnd(text, secret string) string {
	for _, form := range forms(secret) {
		for n := len(form) - 1; n >= minSecret; n-- {
			if head, ok := strings.CutSuffix(text, form[:n]); ok {
				return head + "[redacted]"
			}
		}
	}
	return text
}

// secretsOf are the values of the request's headers and of its query that may be
// keys, by their names.
func secretsOf(req *http.Request) []string {
	var out []string
	note := func(name string, values []string) {
		if !containsAny(strings.ToLower(name), "key", "auth", "token", "secret", "cookie", "signature") {
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
