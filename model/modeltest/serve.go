package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// serverKey and callerKey must show up in the provider's request only.
const (
	serverKey = "canary-server-0123456789abcdef"
	callerKey = "canary-caller-fedcba9876543210"
)

// seen is one request as it reached the server.
type seen struct {
	url    string
	header http.Header
	body   string
}

// server serves one handler and records what it was asked.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen // guarded by mu
}

// serve starts a server that handles all requests with handler.
func serve(t testing.TB, handler http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		s.mu.Lock()
		s.requests = append(s.requests, seen{url: r.URL.String(), header: r.Header.Clone(), body: string(body)})
		s.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections() // a handler may wait for a client that has failed the test
		s.Close()
	})
	return s
}

// patience is how long await waits before it takes the adapter for stuck.
const patience = 20 * time.Second

// await receives from ch, and fails the test when nothing comes.
func await[T any](t testing.TB, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
	return v
}

// all returns the requests so far.
func (s *server) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.requests...)
}

// handler responds with w, frame by frame.
func (w Wire) handler() http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		w.head(rw)
		for _, f := range w.Frames {
			_, _ = io.WriteString(rw, f)
			rw.(http.Flusher).Flush()
		}
	}
}

// head writes status and header.
func (w Wire) head(rw http.ResponseWriter) {
	status := w.Status
	if status == 0 {
		status = http.StatusOK
	}
	if status == http.StatusOK {
		rw.Header().Set("Content-Type", "text/event-stream")
	} else {
		rw.Header().Set("Content-Type", "application/json")
	}
	for k, v := range w.Header {
		rw.Header()[http.CanonicalHeaderKey(k)] = v
	}
	rw.WriteHeader(status)
}

// needed is Needed with its default.
func (w Wire) needed() int {
	if w.Needed == 0 {
		return len(w.Frames)
	}
	return w.Needed
}

// result is what a call brought.
type result struct {
	resp   *model.Response
	err    error
	deltas []model.Delta
}

// text joins the deltas of one kind.
func (r result) text(thought bool) string {
	var b strings.Builder
	for _, d := range r.deltas {
		if d.Thought == thought {
			b.WriteString(d.Text)
		}
	}
	return b.String()
}

// open opens the model against the server with the server's key. It is not
// guarded: the adapter itself has to keep the contract.
func (h Harness) open(t testing.TB, url string) model.LLM {
	t.Helper()
	llm, err := h.Open(t, url, serverKey).Open(h.Model, "")
	if err != nil {
		t.Fatalf("Open(%q): %v", h.Model, err)
	}
	return llm
}

// call makes one call.
func call(ctx context.Context, llm model.LLM, req *model.Request) result {
	var r result
	r.resp, r.err = llm.Generate(ctx, req, func(d model.Delta) { r.deltas = append(r.deltas, d) })
	return r
}

// ask serves w and makes one call against it.
func (h Harness) ask(t testing.TB, w Wire) result {
	t.Helper()
	s := serve(t, w.handler())
	r := call(t.Context(), h.open(t, s.URL), prompt("hello"))
	if n := len(s.all()); n != 1 {
		t.Errorf("the adapter made %d requests, want 1: adapters own no retries", n)
	}
	checkSecrets(t, r.err)
	return r
}

// prompt is a request that says text, with a system instruction and a tool.
func prompt(text string) *model.Request {
	return &model.Request{
		Contents: []*genai.Content{genai.NewContentFromText(text, genai.RoleUser)},
		Config: &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser),
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
				Name: "greet", Description: "greets",
				ParametersJsonSchema: map[string]any{
					"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
					"required": []any{"name"},
				},
			}}}},
		},
	}
}

// asError checks that err is an *Error of this kind, and returns it.
func asError(t testing.TB, err error, kind model.Kind) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("error %v (%T), want a *model.Error of kind %s", err, err, kind)
	}
	if e.Kind != kind {
		t.Fatalf("error %v has kind %s, want %s", e, e.Kind, kind)
	}
	if e.Provider == "" || e.Message == "" {
		t.Errorf("error %+v: want a provider and a message", e)
	}
	return e
}

// wantError checks that err is an *Error of this kind.
func wantError(t testing.TB, err error, kind model.Kind) {
	t.Helper()
	_ = asError(t, err, kind)
}

// checkSecrets checks that no key shows in err, however it is printed, and that
// its text is bounded.
func checkSecrets(t testing.TB, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		text := fmt.Sprintf("%v %+v %#v", e, e, e)
		if data, jsonErr := json.Marshal(e); jsonErr == nil {
			text += string(data)
		}
		if strings.Contains(text, "canary-") {
			t.Errorf("an error shows a key: %.300s", text)
		}
	}
	if e, ok := errors.AsType[*model.Error](err); ok && len(e.Message) > 2048 {
		t.Errorf("an error message has %d bytes", len(e.Message))
	}
}

// watchLeaks returns a check that no goroutine started since is left.
func watchLeaks(t *testing.T) func() {
	t.Helper()
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		goleak.VerifyNone(t, before)
	}
}
