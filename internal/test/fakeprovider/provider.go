package fakeprovider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/providertest"
)

const (
	// maxRequest is the longest request body that is read, in bytes.
	maxRequest = 64 << 20
	// maxCalls is the number of calls that are kept.
	maxCalls = 10_000
)

// Call is a request for a model call.
type Call struct {
	// Number counts the provider's calls, from 1.
	Number int
	// Wire is that of the request's path; "" is none's.
	Wire providertest.Wire
	// Path and Header are the request's; the header holds the keys.
	Path   string
	Header http.Header
	// Body is the request's body.
	Body []byte
	// At is when the call came.
	At time.Time

	sent atomic.Int64
}

// Sent returns how many bytes of the answer's body were sent so far.
func (c *Call) Sent() int { return int(c.sent.Load()) }

// Key returns the key that the call bears.
func (c *Call) Key() string {
	if key, ok := strings.CutPrefix(c.Header.Get("Authorization"), "Bearer "); ok {
		return key
	}
	return c.Header.Get("X-Api-Key") + c.Header.Get("X-Goog-Api-Key")
}

// Request reads the body in the form that all wires share.
func (c *Call) Request() (*providertest.Request, error) {
	return providertest.ParseRequest(c.Path, c.Body)
}

// Script answers a call. Calls that are made at the same time are answered at the
// same time, each by a goroutine of its own. ctx ends with the request.
type Script func(ctx context.Context, c *Call) Reply

// Say answers each call with a text, in pieces.
func Say(text ...string) Script {
	return Answer(Reply{Text: text, Usage: providertest.Usage{Prompt: 1, Completion: 2, Total: 3}})
}

// Answer answers call after call with a reply each, and all that follow with the last.
func Answer(replies ...Reply) Script {
	return func(_ context.Context, c *Call) Reply { return replies[min(c.Number, len(replies))-1] }
}

// Through has a handler answer each call, such as a providertest.Server.
func Through(h http.Handler) Script { return Answer(Reply{Handler: h}) }

// Hang never answers a call: the headers do not come.
func Hang() Script {
	return func(ctx context.Context, _ *Call) Reply {
		<-ctx.Done()
		return Reply{Drop: true}
	}
}

// Provider answers model calls by a script.
type Provider struct {
	mu     sync.Mutex // protects the fields below
	script Script
	number int
	calls  []*Call
}

// New returns a provider that answers by the script.
func New(script Script) *Provider { return &Provider{script: script} }

// Start returns a provider that answers on loopback, and its address without a slash
// at the end. It ends with the test.
func Start(tb testing.TB, script Script) (p *Provider, url string) {
	tb.Helper()
	p = New(script)
	server := httptest.NewServer(p)
	tb.Cleanup(server.Close)
	return p, server.URL
}

// Use has the script answer the calls that follow; they count from 1 again, and
// Calls forgets those before.
func (p *Provider) Use(script Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.number, p.calls = script, 0, nil
}

// Calls returns the calls so far, the first 10,000 of them.
func (p *Provider) Calls() []*Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Last returns the newest call; there must be one.
func (p *Provider) Last() *Call {
	calls := p.Calls()
	return calls[len(calls)-1]
}

// Count returns how many calls there were.
func (p *Provider) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}

func (p *Provider) take(r *http.Request, body []byte) (*Call, Script) {
	c := &Call{
		Wire:   providertest.WireOf(r.URL.Path),
		Path:   r.URL.Path,
		Header: r.Header.Clone(),
		Body:   body,
		At:     time.Now(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	c.Number = p.number
	if len(p.calls) < maxCalls {
		p.calls = append(p.calls, c)
	}
	return c, p.script
}

// ServeHTTP answers a model call.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the client is gone
	}
	call, script := p.take(r, body)
	reply := script(r.Context(), call)
	w = &countingWriter{ResponseWriter: w, sent: &call.sent}
	if reply.Handler != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		reply.Handler.ServeHTTP(w, r)
		return
	}
	err = reply.send(w, r, call.Wire)
	if reply.Done != nil {
		reply.Done(err)
	}
	if errors.Is(err, errDropped) {
		drop(w, reply.Reset)
	}
}

// countingWriter counts the bytes of an answer.
type countingWriter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.sent.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// drop closes the connection without the end of the answer; the peer gets a reset if
// reset is set.
func drop(w http.ResponseWriter, reset bool) {
	if !reset {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// The close reports what is wrong with the connection.
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// RoundTrip answers a model call without a network.
func (p *Provider) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	resp := &http.Response{Request: r, Body: body, ProtoMajor: 1, ProtoMinor: 1}
	pipe := &pipeWriter{body: w, resp: resp, header: http.Header{}, begun: make(chan struct{})}
	go func() { // ends with the answer, or with the request
		defer func() {
			err := r.Context().Err()
			if caught := recover(); caught != nil && err == nil {
				err = io.ErrUnexpectedEOF // the only panic is that of drop
			}
			pipe.err = err
			pipe.WriteHeader(http.StatusOK)
			_ = w.CloseWithError(err)
		}()
		p.ServeHTTP(pipe, r)
	}()
	select {
	case <-pipe.begun:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if !pipe.wrote && pipe.err != nil {
		return nil, pipe.err
	}
	return resp, nil
}

// pipeWriter writes an answer into a pipe.
type pipeWriter struct {
	body   *io.PipeWriter
	resp   *http.Response
	header http.Header
	begun  chan struct{} // closed when the fields below and resp are set
	once   sync.Once
	wrote  bool  // the handler has begun the answer
	err    error // why it has not
}

func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader lets RoundTrip return.
func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.wrote = w.err == nil
		w.resp.StatusCode, w.resp.Header = status, maps.Clone(w.header)
		close(w.begun)
	})
}

// Write writes a part of the body; it waits until the client has read it.
func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush is for http.ResponseController: nothing is held back.
func (w *pipeWriter) Flush() {}
