package daemon_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// A turn that asks for its prompts to be cached says so to the provider, and tells
// what came out of the cache and what went in. More than the provider can do ends
// the turn with an error that says what it can.
func TestPromptCache(t *testing.T) {
	var mu sync.Mutex
	var bodies [][]byte // protected by mu
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		bodies = append(bodies, body)
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"claude-x","content":[],"usage":{"input_tokens":7,"cache_read_input_tokens":2000,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":30},"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`,
			`{"type":"message_stop"}`,
		} {
			kind, _, _ := strings.Cut(strings.TrimPrefix(event, `{"type":"`), `"`)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, event)
		}
	}))
	defer provider.Close()
	d := start(t, daemon.Config{Getenv: func(name string) string {
		return map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": provider.URL}[name]
	}})
	c := wires(t, d)["gRPC"]
	run := func(cache *agentdv1.PromptCache, want agentdv1.TurnStatus) *agentdv1.Turn {
		agent := llm("root", "claude-x")
		agent.GetLlm().Instruction, agent.GetLlm().Generation = "Be brief.", &agentdv1.GenerationSettings{Cache: cache}
		return until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: agent}}).GetTurn(), want)
	}
	const on, off = agentdv1.PromptCache_MODE_ON, agentdv1.PromptCache_MODE_OFF
	turn := run(&agentdv1.PromptCache{Mode: on, Ttl: durationpb.New(10 * time.Minute)}, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if u := turn.GetUsage(); u.GetCachedTokens() != 2000 || u.GetCacheWriteTokens() != 30 {
		t.Errorf("usage %v", u)
	}
	run(&agentdv1.PromptCache{Mode: off}, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	failed := run(&agentdv1.PromptCache{Mode: on, Ttl: durationpb.New(2 * time.Hour)}, agentdv1.TurnStatus_TURN_STATUS_FAILED)
	if !strings.Contains(failed.GetStatusMessage(), "cache.ttl is 2h0m0s") || !strings.Contains(failed.GetStatusMessage(), "1h0m0s at most") {
		t.Errorf("the turn has failed with %q", failed.GetStatusMessage())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) != 2 {
		t.Fatalf("%d requests, want 2", len(bodies))
	}
	const mark = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	if bytes.Count(bodies[0], []byte(mark)) != 2 || bytes.Contains(bodies[1], []byte("cache_control")) {
		t.Errorf("sent %s, and switched off %s", bodies[0], bodies[1])
	}
}
