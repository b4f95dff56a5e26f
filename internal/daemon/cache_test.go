package daemon_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// A turn that asks for its prompts to be cached says so to the provider, and reports
// what came out of the cache and what went in. More than the provider can do ends
// the turn with an error that says what it can.
func TestPromptCache(t *testing.T) {
	provider, url := fakeprovider.Start(t, fakeprovider.Answer(fakeprovider.Reply{
		Text: []string{"Hello."}, Model: "claude-x",
		Usage: providertest.Usage{Prompt: 2037, Completion: 3, Cached: 2000, CacheWrite: 30, CacheWriteHour: 30, Total: 2040},
	}))
	d := start(t, daemon.Config{Getenv: func(name string) string {
		return map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}[name]
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
	calls := provider.Calls()
	if len(calls) != 2 {
		t.Fatalf("%d requests, want 2", len(calls))
	}
	const mark = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	if bytes.Count(calls[0].Body, []byte(mark)) != 2 || bytes.Contains(calls[1].Body, []byte("cache_control")) {
		t.Errorf("sent %s, and switched off %s", calls[0].Body, calls[1].Body)
	}
}
