package peer_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/script"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// talk has a conversation of three turns: text, rounds of tools, and text at a pace.
func talk(t *testing.T, server peer.Server) {
	t.Helper()
	c := server.Begin()
	for _, s := range []script.Script{
		{Chunks: 3, Turn: 1},
		{Chunks: 200, Rounds: 3, Calls: 2, Wait: time.Millisecond, Turn: 2},
		{Chunks: 1, Rounds: 2, Calls: 1, Turn: 3, Past: 6},
		{Chunks: 5, Every: time.Millisecond, Turn: 4, Past: 8},
	} {
		turn := peer.Turn{Script: s, Heartbeat: time.Millisecond}
		heard, err := c.Turn(t.Context(), turn)
		if err != nil {
			t.Fatalf("%s %v", s.Prompt(), err)
		}
		if _, err := turn.Check(heard); err != nil {
			t.Errorf("%s %v", s.Prompt(), err)
		}
	}
}

func startModel(t *testing.T) string {
	t.Helper()
	model := httptest.NewServer(&fake.Model{})
	t.Cleanup(model.Close)
	return model.URL
}

// agentd's own adapters read each wire of the model, and send what it wants.
func TestAgentd(t *testing.T) {
	env := peer.Environment(startModel(t))
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0", Getenv: func(name string) string { return env[name] }})
	for _, wire := range providertest.Wires {
		t.Run(fmt.Sprint(wire, "/Run"), func(t *testing.T) { talk(t, peer.NewAgentd(d.URL, peer.Models[wire], nil)) })
		t.Run(fmt.Sprint(wire, "/SessionService"), func(t *testing.T) { talk(t, peer.NewSessions(d.URL, peer.Models[wire], nil)) })
	}
}

func TestFloor(t *testing.T) {
	to, err := url.Parse(startModel(t))
	if err != nil {
		t.Fatal(err)
	}
	floor := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes the body of the request when the response begins, which the proxy may still read.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		floor.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	talk(t, peer.NewFloor(proxy.URL))
}

// A piece that has its time says how long it was under way.
func TestStamps(t *testing.T) {
	turn := peer.Turn{Script: script.Script{Chunks: 20, Every: time.Millisecond, Stamped: true, Turn: 1}}
	heard, err := peer.NewFloor(startModel(t)).Begin().Turn(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	late, err := turn.Check(heard)
	if err != nil || len(late) != turn.Chunks {
		t.Fatalf("%v, %v", late, err)
	}
	for _, d := range late {
		if d <= 0 || d > time.Minute {
			t.Errorf("a piece was under way for %s", d)
		}
	}
}

// A turn whose client leaves while it waits for its tool ends at once.
func TestWaiting(t *testing.T) {
	env := peer.Environment(startModel(t))
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0", Getenv: func(name string) string { return env[name] }})
	for _, server := range []peer.Server{
		peer.NewAgentd(d.URL, script.GeminiModel, nil), peer.NewSessions(d.URL, script.GeminiModel, nil),
	} {
		ctx, cancel := context.WithCancel(t.Context())
		turn := peer.Turn{Script: script.Script{Chunks: 1, Rounds: 1, Calls: 1, Turn: 1}, Waiting: cancel}
		began := time.Now()
		if _, err := server.Begin().Turn(ctx, turn); err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("%T: %v after %s", server, err, time.Since(began))
		}
	}
}

// What is wrong with an answer is found.
func TestCheck(t *testing.T) {
	turn := peer.Turn{Script: script.Script{Chunks: 3, Rounds: 2, Calls: 2, Turn: 1}}
	other := "000000 000001 000003 "
	right := peer.Heard{
		Text: "000000 000001 000002 ", ToolCalls: 4, ModelCalls: 3,
		Usage: script.Usage{Prompt: 10 + 12 + 14, Completion: 2 + 2 + 3},
	}
	if _, err := turn.Check(right); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*peer.Heard){
		"the text is wrong: 14 bytes":             func(h *peer.Heard) { h.Text = h.Text[:14] },
		"from byte 21 on \"000002 \"":             func(h *peer.Heard) { h.Text += "000002 " },
		"from byte 19 on \"3 \", not \"2 \"":      func(h *peer.Heard) { h.Text = other },
		"the whole text is not its pieces":        func(h *peer.Heard) { h.Whole = &other },
		"there were 3 tool calls, not 4":          func(h *peer.Heard) { h.ToolCalls-- },
		"there were 4 model calls, not 3":         func(h *peer.Heard) { h.ModelCalls++ },
		"usage is {Prompt:35 Completion:7}, not ": func(h *peer.Heard) { h.Usage.Prompt-- },
		"usage is {Prompt:36 Completion:8}, not ": func(h *peer.Heard) { h.Usage.Completion++ },
	} {
		heard := right
		spoil(&heard)
		if _, err := turn.Check(heard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	turn.Stamped = true
	if _, err := turn.Check(right); err == nil {
		t.Error("a text without times passes as one with times")
	}
}
