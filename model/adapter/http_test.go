package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

func TestFailureKinds(t *testing.T) {
	for _, c := range []struct {
		status        int
		code, message string
		want          model.Kind
	}{
		{400, "invalid_request_error", "bad field", model.KindInvalid},
		{400, "context_length_exceeded", "too big", model.KindContextTooLong},
		{400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", model.KindContextTooLong},
		{400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8).", model.KindContextTooLong},
		{400, "content_filter", "filtered", model.KindBlocked},
		{400, "", "Output blocked by content filtering policy", model.KindBlocked},
		{400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", model.KindAuth},
		{401, "", "context length", model.KindAuth},
		{402, "", "", model.KindAuth},
		{403, "", "", model.KindAuth},
		{404, "", "", model.KindUnavailable},
		{408, "", "", model.KindTimeout},
		{413, "", "", model.KindContextTooLong},
		{422, "", "", model.KindInvalid},
		{429, "", "", model.KindRateLimited},
		{500, "", "", model.KindUnavailable},
		{503, "", "", model.KindUnavailable},
		{504, "", "", model.KindUnavailable},
		{529, "overloaded_error", "", model.KindUnavailable},
		{307, "", "", model.KindUnavailable},
		{0, "", "", model.KindUnavailable},
	} {
		e := adapter.Failure{Provider: "p", Status: c.status, Code: c.code, Message: c.message}.Error()
		if e.Kind != c.want || e.Message == "" || e.Status != c.status {
			t.Errorf("status %d, code %q, message %q: %+v, want %s", c.status, c.code, c.message, e, c.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", now.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		{"Retry-After", now.Add(-time.Minute).Format(http.TimeFormat), 0},
		{"Retry-After", "-3", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "1e300", seam.MaxRetryAfter},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	} {
		if got := adapter.RetryAfter(http.Header{c.name: {c.value}}, now); got != c.want {
			t.Errorf("%s %q: %v, want %v", c.name, c.value, got, c.want)
		}
	}
	// The provider's clock may differ from ours.
	for _, theirs := range []time.Time{now.Add(-time.Hour), now.Add(24 * time.Hour)} {
		h := http.Header{"Date": {theirs.Format(http.TimeFormat)}, "Retry-After": {theirs.Add(20 * time.Second).Format(http.TimeFormat)}}
		if got := adapter.RetryAfter(h, now); got != 20*time.Second {
			t.Errorf("at %v there: %v, want 20s", theirs, got)
		}
	}
	if got := adapter.RetryAfter(nil, now); got != 0 {
		t.Errorf("no header: %v", got)
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"the key topsecret is wrong":                   "the key [redacted] is wrong",
		"Incorrect API key provided: sk-proj-abcd***z": "Incorrect API key provided: [redacted]",
		"key=AIzaSyA1234567890,x":                      "key=[redacted],x",
		"a task-list of risk-averse desk-jobs":         "a task-list of risk-averse desk-jobs",
		"two sk-aaaaaaaaaa,sk-bbbbbbbbbb":              "two [redacted],[redacted]",
		"line\n\r\tends \x1b[31mred":                   "line ends [31mred",
		"":                                             "",
	} {
		if got := wiretap.Redact(in, "topsecret", ""); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
	const odd = `odd"key\+/=&<0>`
	for _, in := range []string{
		odd, fmt.Sprintf("%q", odd), `{"k":"odd\"key\\+/=&<0>"}`, `{"k":"odd\"key\\+/=\u0026\u003c0\u003e"}`,
		"?key=" + url.QueryEscape(odd), "/" + url.PathEscape(odd), fmt.Sprintf("%q", `{"k":"odd\"key\\+/=&<0>"}`),
	} {
		if got := wiretap.Redact(in, odd); strings.Contains(got, "odd") || !strings.Contains(got, "[redacted]") {
			t.Errorf("Redact(%s) = %s", in, got)
		}
	}
	long := wiretap.Redact(strings.Repeat("ü", 5000))
	if len(long) > 1100 || !utf8.ValidString(long) {
		t.Errorf("a long text became %d bytes, valid: %v", len(long), utf8.ValidString(long))
	}
}

// A line of a stream is quoted before it is redacted: no part of a key may be
// left because it was cut.
func TestQuotedLinesAreRedacted(t *testing.T) {
	const key = "canary0123456789"
	for before := range 2 * len(key) {
		in := strings.Repeat("x", 70+before) + " " + key
		for _, err := range adapter.ReadEvents(strings.NewReader(in), 0) {
			if got := wiretap.Redact(fmt.Sprint(err), key); strings.Contains(got, "canary") {
				t.Fatalf("%d bytes before the key: %s", before, got)
			}
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("oh no", "topsecret99")
	f.Add("sk-12345678901234567890", "\xff")
	f.Fuzz(func(t *testing.T, around, secret string) {
		got := wiretap.Redact(around+secret+around, secret)
		if len(got) > 1100 || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
		}
		if len(secret) > len("[redacted]") && strings.Contains(got, secret) {
			t.Fatalf("Redact shows %q: %q", secret, got)
		}
	})
}

func TestLimitLines(t *testing.T) {
	read := func(body string, limit int) (string, error) {
		r := adapter.LimitLines(io.NopCloser(iotest.OneByteReader(strings.NewReader(body))), limit)
		b, err := io.ReadAll(r)
		return string(b), err
	}
	if got, err := read("1234\n\n12345\n123", 5); err != nil || got != "1234\n\n12345\n123" {
		t.Errorf("lines within the limit: %q, %v", got, err)
	}
	if _, err := read("1234\n123456", 5); !errors.Is(err, seam.ErrLineTooLong) {
		t.Errorf("an endless line: %v", err)
	}
	whole := adapter.LimitLines(io.NopCloser(strings.NewReader("ok\n123456\nok\n")), 5)
	if _, err := io.ReadAll(whole); !errors.Is(err, seam.ErrLineTooLong) {
		t.Errorf("a long line within one read: %v", err)
	}
	if n, err := whole.Read(make([]byte, 9)); n != 0 || !errors.Is(err, seam.ErrLineTooLong) {
		t.Errorf("a read after the error: %d, %v", n, err)
	}
}

func TestHTTPClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/here", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("x", seam.MaxLine+1))
	}))
	defer s.Close()
	c := adapter.HTTPClient(nil, 0)
	defer c.CloseIdleConnections()
	resp, err := c.Get(s.URL + "/away")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Errorf("status %d: a redirect was followed", resp.StatusCode)
	}
	resp, err = c.Get(s.URL + "/long")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, seam.ErrLineTooLong) {
		t.Errorf("a long line: %v", err)
	}
}

func TestTransportError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := adapter.TransportError(ctx, "p", fmt.Errorf("dial with topsecret: %w", io.ErrUnexpectedEOF), "topsecret")
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindUnavailable || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("a broken connection: %v", err)
	}
	if e, ok := errors.AsType[*model.Error](adapter.TransportError(ctx, "p", timeoutError{})); !ok || e.Kind != model.KindTimeout {
		t.Errorf("a timeout: %v", e)
	}
	cancel()
	if err := adapter.TransportError(ctx, "p", io.EOF); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

type timeoutError struct{}

func (timeoutError) Error() string { return "timeout" }
func (timeoutError) Timeout() bool { return true }

func TestErrorText(t *testing.T) {
	e := &model.Error{Provider: "p", Status: 429, Message: "slow down", Err: io.EOF}
	if e.Error() != "p: slow down (status 429)" || !errors.Is(e, io.EOF) {
		t.Errorf("%v", e)
	}
}
