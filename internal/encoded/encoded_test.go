package encoded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"google.golang.org/genai"
)

// coder encodes contents, and counts how often.
type coder struct{ calls int }

func (c *coder) encode(content *genai.Content) ([]Piece, error) {
	c.calls++
	if content == nil {
		return nil, nil
	}
	return []Piece{{Kind: 1, JSON: []byte(content.Role)}}, nil
}

func conversation(n int) []*genai.Content {
	var out []*genai.Content
	for i := range n {
		out = append(out, &genai.Content{Role: fmt.Sprint("content ", i)})
	}
	return out
}

// check compares the pieces with what the contents are.
func check(t *testing.T, pieces [][]Piece, contents []*genai.Content) {
	t.Helper()
	if len(pieces) != len(contents) {
		t.Fatalf("%d pieces of %d contents", len(pieces), len(contents))
	}
	for i, p := range pieces {
		if c := contents[i]; c == nil && len(p) > 0 || c != nil && (len(p) != 1 || string(p[0].JSON) != c.Role) {
			t.Errorf("the pieces of content %d are %v", i, p)
		}
	}
}

// TestOnce: a content is encoded once, whatever is added, removed and put between others behind it.
func TestOnce(t *testing.T) {
	room := NewRoom(1 << 20)
	c := room.Conversation()
	all := conversation(10)
	for _, step := range []struct {
		name     string
		wire     string
		contents []*genai.Content
		calls    int
	}{
		{"first", "a", all[:3], 3},
		{"same", "a", all[:3], 0},
		{"longer", "a", all[:5], 2},
		{"another end", "a", append(append([]*genai.Content{}, all[:5]...), all[9]), 1},
		{"the end goes on", "a", all[:7], 2},
		{"shorter", "a", all[:2], 0},
		{"longer again", "a", all[:4], 2},
		{"a summary", "a", all[3:6], 3},
		{"nil", "a", []*genai.Content{nil, all[4]}, 1},
		{"another wire", "b", all[:2], 2},
		{"back", "a", all[:2], 2},
	} {
		var coder coder
		pieces, err := c.Pieces(step.wire, step.contents, coder.encode)
		if err != nil {
			t.Fatal(err)
		}
		check(t, pieces, step.contents)
		if coder.calls != step.calls {
			t.Errorf("%s: %d contents were encoded, want %d", step.name, coder.calls, step.calls)
		}
	}
	if c.Forget(); room.Bytes() != 0 {
		t.Errorf("a conversation that is forgotten takes %d bytes", room.Bytes())
	}
}

// TestRoom: what conversations keep together is bounded, is given back, and is right in any order of calls.
func TestRoom(t *testing.T) {
	const most = 40 * (pieceBytes + 10)
	room := NewRoom(most)
	conversations := []*Conversation{room.Conversation(), room.Conversation(), nil}
	all := conversation(100)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		c := conversations[rng.IntN(3)]
		from := rng.IntN(3)
		contents := all[from : from+rng.IntN(90)]
		var coder coder
		pieces, err := c.Pieces(fmt.Sprint(rng.IntN(2)), contents, coder.encode)
		if err != nil {
			t.Fatal(err)
		}
		check(t, pieces, contents)
		cfg := &genai.GenerateContentConfig{ResponseMIMEType: fmt.Sprint(rng.IntN(3))}
		if json, known := c.Settings("w", cfg); known && string(json) != cfg.ResponseMIMEType {
			t.Errorf("the settings are %s, want %s", json, cfg.ResponseMIMEType)
		}
		c.KeepSettings("w", cfg, []byte(cfg.ResponseMIMEType))
		if n := room.Bytes(); n < 0 || n > most {
			t.Fatalf("%d bytes are kept, at most %d", n, most)
		}
	}
	for _, c := range conversations {
		c.Forget()
	}
	if room.Bytes() != 0 {
		t.Errorf("%d bytes are kept of nothing", room.Bytes())
	}
}

// TestSettings: settings are known only if all of them are the same.
func TestSettings(t *testing.T) {
	c := NewRoom(100).Conversation()
	tools := func(name string) *genai.GenerateContentConfig {
		schema := map[string]any{"type": "object", "title": name}
		return &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser),
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
				{Name: "f", ParametersJsonSchema: schema}}}},
		}
	}
	c.KeepSettings("w", tools("a"), []byte("a"))
	if json, known := c.Settings("w", tools("a")); !known || string(json) != "a" {
		t.Errorf("the same settings: %s, %v", json, known)
	}
	if _, known := c.Settings("w", tools("b")); known {
		t.Error("settings with another schema are known")
	}
	if _, known := c.Settings("v", tools("a")); known {
		t.Error("settings of another wire are known")
	}
	c.KeepSettings("w", tools("b"), make([]byte, 101))
	if _, known := c.Settings("w", tools("b")); known {
		t.Error("settings without room are known")
	}
}

// TestFailure: what cannot be encoded is an error, now and later.
func TestFailure(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []*Conversation{NewRoom(100).Conversation(), nil} {
		for range 2 {
			_, err := c.Pieces("w", conversation(1), func(*genai.Content) ([]Piece, error) { return nil, failure })
			if !errors.Is(err, failure) {
				t.Errorf("got %v", err)
			}
		}
	}
}

// TestBody reads a body as any reader must be read, and again.
func TestBody(t *testing.T) {
	var b Body
	b.Add([]byte("one"), nil, []byte(", "), []byte("two"))
	b.Add()
	b.Add([]byte("!"))
	for range 2 {
		if err := iotest.TestReader(b.Reader(), []byte("one, two!")); err != nil {
			t.Error(err)
		}
	}
	if b.Len() != 9 {
		t.Errorf("the length is %d", b.Len())
	}
	large := bytes.Repeat([]byte("0123456789"), small/10)
	if err := iotest.TestReader(NewBody(large, []byte("0123456789")).Reader(), append(large, "0123456789"...)); err != nil {
		t.Error(err)
	}
	empty, err := io.ReadAll(new(Body).Reader())
	if err != nil || len(empty) > 0 {
		t.Errorf("an empty body is %q, %v", empty, err)
	}
}

// TestPut: what is left is for one taker, and takes room until then.
func TestPut(t *testing.T) {
	room := NewRoom(10)
	c := room.Conversation()
	c.Put("a", 6)
	c.Put("b", 7)
	if got := room.Bytes(); got != 7 {
		t.Errorf("%d bytes are taken, want 7", got)
	}
	if got := c.Take(); got != "b" || room.Bytes() != 0 {
		t.Errorf("%v is left, and %d bytes are taken", got, room.Bytes())
	}
	if got := c.Take(); got != nil {
		t.Errorf("%v is left twice", got)
	}
	c.Put("too much", 11)
	if got := c.Take(); got != nil || room.Bytes() != 0 {
		t.Errorf("without room %v is left, and %d bytes are taken", got, room.Bytes())
	}
	c.Put("c", 5)
	if c.Forget(); c.Take() != nil || room.Bytes() != 0 {
		t.Errorf("something is left, %d bytes", room.Bytes())
	}
	var none *Conversation
	if none.Put("a", 1); none.Take() != nil {
		t.Error("nothing keeps something")
	}
}

// TestSmallBodyIsOneWrite: net/http sends a small body together with the headers.
func TestSmallBodyIsOneWrite(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer srv.Close()
	var writes atomic.Int32
	hc := &http.Client{Transport: &http.Transport{
		WriteBufferSize: 2 * small,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return writeCounter{c, &writes}, err
		},
	}}
	defer hc.CloseIdleConnections()
	for _, n := range []int{0, 100, small} {
		body := NewBody(make([]byte, n/2), make([]byte, n-n/2))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, body.Reader())
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = body.Len()
		writes.Store(0)
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := writes.Load(); got != 1 {
			t.Errorf("a request of %d bytes takes %d writes", n, got)
		}
	}
}

type writeCounter struct {
	net.Conn
	n *atomic.Int32
}

func (c writeCounter) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}
