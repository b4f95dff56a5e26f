package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	// maxRequest is the longest request body that is read, in bytes.
	maxRequest = 16 << 20
	// maxReceived is the number of requests that are kept.
	maxReceived = 10_000
)

// Received is a request that a [Server] got.
type Received struct {
	// Wire is the wire of the model call, "" if the path is none's.
	Wire Wire
	// Method, Path and Query are the request line's.
	Method, Path, Query string
	// Header holds the headers, keys included.
	Header http.Header
	// Body is the body.
	Body []byte
	// Call is the number of the recording's model call that answered it, from 0;
	// -1 if none did.
	Call int
}

// Server answers the model calls of a recording in order, over HTTP/1.1 on
// loopback. Recorded JSON is streamed to clients that stream, in the provider's
// form; recorded streams are sent byte for byte, to clients that stream only.
// Errors are sent as they are. A request too many, one on another wire or
// another path, and one that is no JSON get a 500 or 400 that says so.
type Server struct {
	// URL is the server's address, without a slash at the end.
	URL string

	rec     *Recording
	calls   []*Exchange
	http    *httptest.Server
	closing chan struct{}
	once    sync.Once

	mu sync.Mutex
	// The fields below are protected by mu.
	next     int           // the call that answers the next request
	requests int           // the number of requests so far
	faults   map[int]Fault // by number of the request
	received []Received
}

// NewServer starts a server, which ends with the test. faults break the answers
// to requests by their number, from 0; a request that is tried again is a new
// one.
func NewServer(tb testing.TB, rec *Recording, faults map[int]Fault) *Server {
	tb.Helper()
	s := &Server{rec: rec, calls: rec.Calls(), faults: maps.Clone(faults), closing: make(chan struct{})}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	tb.Cleanup(s.Close)
	return s
}

// Close ends stalls and the server. It may be called more than once.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.closing)
		s.http.Close()
	})
}

// BaseURL is the address that a provider's SDK takes as its base URL.
func (s *Server) BaseURL(wire Wire) string {
	switch wire {
	case OpenAIChat, OpenAIResponses:
		return s.URL + "/v1/"
	default:
		return s.URL + "/"
	}
}

// Received returns the requests so far.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// Left returns how many of the recording's model calls were not asked for.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) - s.next
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("reading the request: %v", err))
		return
	}
	exchange, fault, err := s.take(r, body)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	status, header, parts, err := s.answer(exchange, r.URL, body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a := &answerWriter{w: w, r: r, fault: fault, closing: s.closing}
	// An answer that ends early, by its fault or by its client, is over.
	_ = a.send(status, header, parts)
}

// take records a request and picks the exchange and the fault that answer it.
func (s *Server) take(r *http.Request, body []byte) (*Exchange, Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := Received{
		Wire: WireOf(r.URL.Path), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: body, Call: -1,
	}
	fault := s.faults[s.requests]
	s.requests++
	exchange, err := s.pick(got)
	if err == nil {
		got.Call = s.next
		if !fault.Again {
			s.next++
		}
	}
	if len(s.received) < maxReceived {
		s.received = append(s.received, got)
	}
	return exchange, fault, err
}

// pick returns the exchange whose turn it is, if the request may have it. s.mu
// is held.
func (s *Server) pick(got Received) (*Exchange, error) {
	if got.Wire == "" || got.Method != http.MethodPost {
		return nil, fmt.Errorf("%s %s is no model call", got.Method, got.Path)
	}
	if s.next >= len(s.calls) {
		return nil, fmt.Errorf("recording %s has %d model calls, and all have been answered", s.rec.Name, len(s.calls))
	}
	e := s.calls[s.next]
	if e.Wire != got.Wire {
		return nil, fmt.Errorf("recording %s, call %d: it is on wire %s, the request on %s",
			s.rec.Name, s.next, e.Wire, got.Wire)
	}
	return e, nil
}

// answer renders an exchange for a request, in pieces that are sent one by one.
func (s *Server) answer(e *Exchange, u *url.URL, body []byte) (int, http.Header, [][]byte, error) {
	var request object
	if err := json.Unmarshal(body, &request); err != nil {
		return 0, nil, nil, fmt.Errorf("the request is no JSON object: %w", err)
	}
	header := e.Header.Clone()
	streaming := string(request["stream"]) == "true" || strings.HasSuffix(u.Path, ":streamGenerateContent")
	switch {
	case e.Status >= http.StatusBadRequest || !streaming && !e.Stream():
		return e.Status, header, [][]byte{append([]byte(e.Text), e.JSON...)}, nil
	case !streaming:
		return 0, nil, nil, fmt.Errorf("recording %s holds a stream, and the client does not stream", s.rec.Name)
	case e.Wire == Gemini && u.Query().Get("alt") != "sse":
		return s.geminiArray(e, request, header)
	case e.Stream():
		return e.Status, header, splitEvents([]byte(e.Text)), nil
	}
	events, err := stream(e.Wire, request, e.JSON)
	if err != nil {
		return 0, nil, nil, err
	}
	header.Set("Content-Type", "text/event-stream")
	return e.Status, header, splitEvents(encodeEvents(e.Wire, events)), nil
}

// geminiArray renders a stream as one JSON array, which is what Gemini sends
// when it is not asked for server-sent events.
func (s *Server) geminiArray(e *Exchange, request object, header http.Header) (int, http.Header, [][]byte, error) {
	events := parseEvents(e.Text)
	if !e.Stream() {
		var err error
		if events, err = stream(e.Wire, request, e.JSON); err != nil {
			return 0, nil, nil, err
		}
	}
	var parts [][]byte
	sep := "["
	for _, ev := range events {
		parts = append(parts, []byte(sep+ev.data))
		sep = ",\r\n"
	}
	header.Set("Content-Type", "application/json; charset=UTF-8")
	return e.Status, header, append(parts, []byte("]")), nil
}

// refuse answers with an error in the form that all providers share.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := encode(object{"error": encode(object{
		"type": encode("providertest"), "message": encode("providertest: " + message),
	})})
	// A client that is gone needs no answer.
	_, _ = io.Copy(w, bytes.NewReader(body))
}
