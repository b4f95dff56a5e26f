package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// What becomes of model calls is seen on the command line: the fallback from one
// provider to another, what that one has run and cites, what it cost, and the
// answers of both as they came.
func TestRunShowsModelCalls(t *testing.T) {
	stream := citing(t)
	uses, sources := providertest.HearTools(providertest.Anthropic, stream)
	if len(sources) == 0 {
		t.Fatal("no stream cites a source")
	}
	const busy = `{"error":{"message":"busy","type":"server_error"}}`
	_, url := fakeprovider.Start(t, func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		if c.Wire != providertest.Anthropic {
			return fakeprovider.Reply{Status: http.StatusServiceUnavailable, Body: busy}
		}
		return fakeprovider.Reply{Events: []string{stream}}
	})
	d := inProcess(t, map[string]string{
		"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:", "AGENTD_MODEL_TRIES": "1",
		"OPENAI_API_KEY": "sk-one", "OPENAI_BASE_URL": url + "/v1", "ANTHROPIC_API_KEY": "sk-two", "ANTHROPIC_BASE_URL": url,
	})
	s := shell{t: t, url: d.url}
	agent := file(t, "{name: a, llm: {model: openai-responses/gpt-5, fallback_models: [anthropic/claude-sonnet-4-5], builtin_tools: [web_search]}}")
	kept := filepath.Join(t.TempDir(), "raw")
	s.tty = true
	if code := s.run("run", agent, "Search.", "--raw", kept); code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.stderr)
	}
	out := s.stdout.String()
	contains(t, out, "↻ a: openai-responses/gpt-5 failed (MODEL_UNAVAILABLE), going on with anthropic/claude-sonnet-4-5\n", "→ "+uses[0].Name, "(by the provider)\n", "\n[1] ", sources[0].URI)
	if !strings.HasPrefix(out, "↻") {
		t.Errorf("the fallback does not come first: %s", out)
	}
	contains(t, s.stderr.String(), "completed; 1 model call, ", " tokens, $")
	data, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for l := range strings.Lines(string(data)) {
		var p struct {
			Status int
			Body   []byte
		}
		if err := json.Unmarshal([]byte(l), &p); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		bodies = append(bodies, string(p.Body))
	}
	if len(bodies) != 2 || bodies[0] != busy || bodies[1] != stream {
		t.Errorf("kept %q", bodies)
	}
	session := s.lines("sessions", "list")[0]["id"].(string)
	contains(t, s.says(true, "sessions", "events", session), "model_call_fell_back ", "provider_tools_used ", "raw_payload_received ", "model_call_ended ", "anthropic/claude-sonnet-4-5, 1 model call, ")
	// Who attaches keeps the same.
	second := filepath.Join(t.TempDir(), "again")
	s.says(true, "run", "--attach", session, "--raw", second)
	if twice, err := os.ReadFile(second); err != nil || !bytes.Equal(twice, data) {
		t.Errorf("attached, kept %q, %v", twice, err)
	}
}

// citing is what Anthropic has answered that ran a tool and cites sources.
func citing(t *testing.T) string {
	t.Helper()
	streams := providertest.Streams(t, providertest.Anthropic)
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		if uses, sources := providertest.HearTools(providertest.Anthropic, streams[name]); len(uses) > 0 && len(sources) > 0 {
			return streams[name]
		}
	}
	t.Fatal("no stream cites a source")
	return ""
}

// run --local has the flags about models that serve has, and their variables, and
// takes them from nobody else.
func TestRunLocalTakesModelFlags(t *testing.T) {
	stream := citing(t)
	down := false
	provider, url := fakeprovider.Start(t, fakeprovider.Answer(fakeprovider.Reply{Events: []string{stream}}))
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(prices, []byte("date: 2026-10-10\nproviders: {anthropic: {claude-new-9: {price: {input: 1000000, output: 1000000}}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := shell{t: t, url: "http://127.0.0.1:1", env: map[string]string{"ANTHROPIC_API_KEY": "sk", "ANTHROPIC_BASE_URL": url}}
	agent := file(t, "{name: a, llm: {model: anthropic/claude-new-9, builtin_tools: [web_search]}}")
	local := func(flags ...string) string {
		s := s
		if code := s.run(append([]string{"run", "--local", agent, "Search."}, flags...)...); code != exitOK && !down {
			t.Fatalf("exit code %d: %s", code, s.stderr)
		}
		return s.stderr.String()
	}
	contains(t, local(), " tokens, price unknown, ")
	contains(t, local("--prices", prices), " tokens, $")
	s.env["AGENTD_PRICES"] = prices
	contains(t, local(), " tokens, $")
	down = true
	provider.Use(fakeprovider.Answer(fakeprovider.Reply{Status: http.StatusServiceUnavailable}))
	contains(t, local("--model-tries=1"), "MODEL_UNAVAILABLE")
	if n := provider.Count(); n != 1 {
		t.Errorf("%d tries", n)
	}
	contains(t, s.fails(exitUsage, "run", "--local", agent, "go", "--model-tries=0"), "--model-tries is 0, must be at least 1")
	contains(t, s.fails(exitUsage, "run", agent, "go", "--prices", prices), "--prices goes only with --local", "agentd serve")
	// A variable may be there for agentd serve, whatever it says.
	s.env["AGENTD_MODEL_TRIES"] = "0"
	contains(t, s.fails(exitError, "run", agent, "go"), "no agentd responds")
}
