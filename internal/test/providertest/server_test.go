package providertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it costs
	goleak.VerifyTestMain(m)
}

// transport keeps no connection, so that none outlives its test.
var transport = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post asks for the next answer of a recording.
func post(t *testing.T, ctx context.Context, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return transport.Do(req)
}

// read asks and reads the answer to its end.
func read(t *testing.T, url, body string) (status int, got string, err error) {
	t.Helper()
	resp, err := post(t, t.Context(), url, body)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

const asking = `{"model": "m", "stream": true}`

func TestServerRefuses(t *testing.T) {
	srv := NewServer(t, synthesized(t, "chat_stream"), nil)
	tests := []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/models", `{}`, 500, "is no model call"},
		{"/v1/messages", asking, 500, "on wire openai_chat, the request on anthropic"},
		{"/v1/chat/completions", `{"stream": true}`, 200, "data: "},
		{"/v1/chat/completions", asking, 500, "has 1 model calls, and all have been answered"},
	}
	for _, tt := range tests {
		status, got, err := read(t, srv.URL+tt.path, tt.body)
		if err != nil || status != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d %q %v, want %d %q", tt.path, status, got, err, tt.status, tt.want)
		}
	}
	got := srv.Received()
	if len(got) != 4 || got[2].Call != 0 || got[3].Call != -1 || string(got[3].Body) != asking || got[1].Wire != Anthropic {
		t.Errorf("received %+v", got)
	}
	for _, body := range []string{`no JSON`, `{"stream": false}`} {
		srv := NewServer(t, synthesized(t, "chat_stream"), nil)
		if status, got, err := read(t, srv.URL+"/v1/chat/completions", body); err != nil || status != 400 {
			t.Errorf("%s: %d %q %v, want 400", body, status, got, err)
		}
	}
}

// TestServerVerbatim checks that what was recorded as a stream, as an error or
// for a client that does not stream is sent byte for byte.
func TestServerVerbatim(t *testing.T) {
	for _, rec := range All(t) {
		srv := NewServer(t, rec, nil)
		for i, e := range rec.Calls() {
			path, body, want := "/v1/chat/completions", `{"stream": false}`, string(e.JSON)
			switch e.Wire {
			case OpenAIChat:
			case OpenAIResponses:
				path = "/v1/responses"
			case Anthropic:
				path = "/v1/messages"
			case Gemini:
				path = "/v1beta/models/m:generateContent"
			}
			if e.Stream() {
				body, want = asking, e.Text
				path = strings.Replace(path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
			}
			status, got, err := read(t, srv.URL+path, body)
			if err != nil || status != e.Status || got != want {
				t.Errorf("%s, call %d: %d, %v, %q, want %d %q", rec.Name, i, status, err, got, e.Status, want)
			}
		}
	}
}

func TestServerGeminiArray(t *testing.T) {
	for _, name := range []string{"gemini_text", "gemini_stream"} {
		srv := NewServer(t, synthesized(t, name), nil)
		_, got, err := read(t, srv.URL+"/v1beta/models/m:streamGenerateContent", `{}`)
		var chunks []object
		if err != nil || json.Unmarshal([]byte(got), &chunks) != nil || len(chunks) < 2 {
			t.Errorf("%s: %v, no array of chunks: %q", name, err, got)
		}
	}
}

func TestServerHeaders(t *testing.T) {
	srv := NewServer(t, synthesized(t, "chat_error"), nil)
	resp, err := post(t, t.Context(), srv.URL+"/v1/chat/completions", asking)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "2" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

func TestFaults(t *testing.T) {
	rec := synthesized(t, "anthropic_stream")
	whole := rec.Calls()[0].Text
	events := splitEvents([]byte(whole))
	two := string(bytes.Join(events[:2], nil))
	tests := map[string]struct {
		fault Fault
		want  string
		err   error // io.EOF stands for a clean end
	}{
		"none":                {Fault{}, whole, nil},
		"cut before anything": {Fault{Action: Cut}, "", nil},
		"cut behind events":   {Fault{Action: Cut, AfterEvents: 2}, two, nil},
		"cut behind the end":  {Fault{Action: Cut, AfterEvents: 1000}, whole, nil},
		"cut behind bytes":    {Fault{Action: Cut, AfterBytes: 100}, whole[:100], nil},
		"cut in event three":  {Fault{Action: Cut, AfterBytes: len(two) + 5}, whole[:len(two)+5], nil},
		"abort":               {Fault{Action: Abort, AfterEvents: 2}, two, io.ErrUnexpectedEOF},
		"reset":               {Fault{Action: Reset, AfterEvents: 2}, "", syscall.ECONNRESET},
		"insert":              {Fault{Action: Insert, AfterEvents: 2, Bytes: []byte("data: {no\n\n")}, two + "data: {no\n\n" + whole[len(two):], nil},
		"delay":               {Fault{Delay: time.Microsecond}, whole, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := NewServer(t, rec, map[int]Fault{0: tt.fault})
			status, got, err := read(t, srv.URL+"/v1/messages", asking)
			if !errors.Is(err, tt.err) || status != 200 && err == nil {
				t.Errorf("status %d, error %v, want %v", status, err, tt.err)
			}
			// A reset may overtake what was sent before it.
			if got != tt.want && !errors.Is(tt.err, syscall.ECONNRESET) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFaultAgain(t *testing.T) {
	srv := NewServer(t, synthesized(t, "anthropic_stream"), map[int]Fault{
		0: {Action: Refuse, Status: 503, Header: http.Header{"Retry-After": {"1"}}, Bytes: []byte(`{"error":{}}`), Again: true},
	})
	status, got, err := read(t, srv.URL+"/v1/messages", asking)
	if status != 503 || got != `{"error":{}}` || err != nil {
		t.Errorf("first: %d %q %v", status, got, err)
	}
	if left := srv.Left(); left != 1 {
		t.Errorf("%d calls left, want 1", left)
	}
	if status, _, err := read(t, srv.URL+"/v1/messages", asking); status != 200 || err != nil {
		t.Errorf("second: %d %v", status, err)
	}
	if got := srv.Received(); len(got) != 2 || got[0].Call != 0 || got[1].Call != 0 {
		t.Errorf("received %+v", got)
	}
}

func TestFaultStall(t *testing.T) {
	stall := func(t *testing.T, ctx context.Context, f Fault) (*Server, *bufio.Reader, io.Closer) {
		t.Helper()
		f.Action, f.AfterEvents = Stall, 1
		srv := NewServer(t, synthesized(t, "anthropic_stream"), map[int]Fault{0: f})
		resp, err := post(t, ctx, srv.URL+"/v1/messages", asking)
		if err != nil {
			t.Fatal(err)
		}
		body := bufio.NewReader(resp.Body)
		if line, err := body.ReadString('\n'); err != nil || line != "event: message_start\n" {
			t.Fatalf("before the stall: %q %v", line, err)
		}
		return srv, body, resp.Body
	}
	t.Run("released", func(t *testing.T) {
		reached, release := make(chan struct{}), make(chan struct{})
		_, body, closer := stall(t, t.Context(), Fault{Reached: reached, Release: release})
		defer closer.Close()
		<-reached
		close(release)
		if rest, err := io.ReadAll(body); err != nil || !strings.Contains(string(rest), "message_stop") {
			t.Errorf("after the stall: %q %v", rest, err)
		}
	})
	t.Run("left", func(t *testing.T) {
		gone := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		_, _, closer := stall(t, ctx, Fault{Gone: gone})
		defer closer.Close()
		cancel()
		<-gone
	})
	t.Run("closed", func(t *testing.T) {
		srv, body, closer := stall(t, t.Context(), Fault{})
		defer closer.Close()
		srv.Close()
		if rest, err := io.ReadAll(body); strings.Contains(string(rest), "message_stop") {
			t.Errorf("a closed server went on: %q %v", rest, err)
		}
	})
}
