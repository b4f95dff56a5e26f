package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/encoded"
)

// TestPost: a request goes to a path below the base, with the header of the endpoint and its
// own, and any status is a response.
func TestPost(t *testing.T) {
	var got *http.Request
	var text []byte
	client := &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		got = req
		text, _ = io.ReadAll(req.Body)
		return &http.Response{StatusCode: http.StatusTeapot, Body: io.NopCloser(strings.NewReader("refused"))}, req.Context().Err()
	})}
	e := &Endpoint{Client: client, URL: "https://user:pw@host/v1", Header: http.Header{"Accept": {"text/event-stream"}, "X-Api-Key": {"k"}}}
	body := new(encoded.Body)
	body.Add([]byte("{"), []byte("}"))
	resp, err := e.Post(t.Context(), "chat/completions", body, http.Header{"Beta": {"b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTeapot || string(body) != "refused" || err != nil {
		t.Errorf("the response is %d %q, error %v", resp.StatusCode, body, err)
	}
	if got.Method != http.MethodPost || got.URL.String() != "https://user:pw@host/v1/chat/completions" || string(text) != "{}" || got.ContentLength != 2 {
		t.Errorf("the request is %s %s %q", got.Method, got.URL, text)
	}
	for name, want := range map[string]string{
		"Accept": "text/event-stream", "Content-Type": "application/json", "User-Agent": "agentd", "X-Api-Key": "k", "Beta": "b",
	} {
		if have := got.Header.Get(name); have != want {
			t.Errorf("%s is %q, want %q", name, have, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Post(ctx, "x", body, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a canceled request is %v", err)
	}
	if len(e.Header) != 2 {
		t.Errorf("the header of the endpoint is %v: a request changed it", e.Header)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
