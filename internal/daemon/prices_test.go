package daemon_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/openai"
)

// cachingProvider responds as Anthropic does, with a prompt of 3,100 tokens: 2,000
// read from the cache, 1,000 written to it, 400 of those for an hour.
func cachingProvider(t *testing.T) daemon.Providers {
	t.Helper()
	_, url := fakeprovider.Start(t, fakeprovider.Answer(fakeprovider.Reply{Text: []string{"hi"}, Model: "claude", Usage: providertest.Usage{
		Prompt: 3_100, Cached: 2_000, CacheWrite: 1_000, CacheWriteHour: 400, Completion: 10, Total: 3_110,
	}}))
	return daemon.Providers{AnthropicAPIKey: "secret", AnthropicBaseURL: url}
}

// pricesFile is a file with the text.
func pricesFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A turn costs what the table in force says, and an unknown price is none.
func TestPrices(t *testing.T) {
	const own = `
date: 2026-10-10
providers:
  anthropic:
    claude-sonnet-4-5: {price: {input: 1000, cached: 100, cache_write: 2000, cache_write_hour: 3000, output: 5000}}
    claude-new-9: {price: {input: 1, output: 1}, capabilities: {context_tokens: 77}}
`
	for name, c := range map[string]struct {
		prices, model string
		cost          float64 // US dollars; below 0: not known
	}{
		"built-in":     {"", "claude-sonnet-4-5", (100*3 + 600*3.75 + 400*6 + 2000*0.30 + 10*15) / 1e6},
		"not known":    {"", "claude-new-9", -1},
		"replaced":     {own, "claude-sonnet-4-5", (100*1000 + 600*2000 + 400*3000 + 2000*100 + 10*5000) / 1e6},
		"added":        {own, "claude-new-9", 3110 / 1e6},
		"not replaced": {own, "claude-opus-4-5", (100*5 + 600*6.25 + 400*10 + 2000*0.50 + 10*25) / 1e6},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := daemon.Config{Providers: cachingProvider(t)}
			if c.prices != "" {
				cfg.Prices = pricesFile(t, c.prices)
			}
			client := wires(t, start(t, cfg))["gRPC"]
			turn := call(t, client.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", c.model)}}).GetTurn()
			sum := until(t, client, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED).GetUsage()
			if u := sum; u.GetPromptTokens() != 3100 || u.GetCachedTokens() != 2000 || u.GetCacheWriteTokens() != 1000 || u.GetCompletionTokens() != 10 {
				t.Errorf("usage %v", u)
			}
			if c.cost < 0 {
				if sum.GetUnpricedCalls() != 1 || sum.CostUsd != nil {
					t.Errorf("%v, want one call without a price", sum)
				}
			} else if math.Abs(sum.GetCostUsd()-c.cost) > 1e-9 || sum.GetUnpricedCalls() != 0 {
				t.Errorf("%v, want a cost of %v", sum, c.cost)
			}
			var listed *agentdv1.Model
			for _, m := range call(t, client.ListModels, &agentdv1.ListModelsRequest{}).GetModels() {
				if m.GetName() == c.model {
					listed = m
				}
			}
			if (listed.GetPrice() == nil) != (c.cost < 0) {
				t.Errorf("listed as %v", listed)
			}
			if name == "added" && (listed.GetPrice().GetDate() != "2026-10-10" || listed.GetCapabilities().GetContextTokens() != 77) {
				t.Errorf("listed as %v", listed)
			}
		})
	}
}

// Budgets in money are those of the table in force.
func TestPricesBoundBudgets(t *testing.T) {
	tree := sequence("root", llm("a", "claude-sonnet-4-5"), llm("b", "claude-sonnet-4-5"))
	for name, c := range map[string]struct {
		prices string
		ends   agentdv1.TurnStatus
	}{
		"cheap": {"", agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED},
		"dear":  {"date: 2026-10-10\nproviders: {anthropic: {claude-sonnet-4-5: {price: {input: 1000, output: 1000}}}}", agentdv1.TurnStatus_TURN_STATUS_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := daemon.Config{Providers: cachingProvider(t)}
			if c.prices != "" {
				cfg.Prices = pricesFile(t, c.prices)
			}
			client := wires(t, start(t, cfg))["gRPC"]
			turn := call(t, client.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
				UserPrompt: "hi", Agent: tree, Budget: &agentdv1.Budget{CostUsd: 1},
			}}).GetTurn()
			until(t, client, turn, c.ends)
		})
	}
}

// The models of a provider that the daemon does not know can be priced by a file.
func TestPricesOfStrangers(t *testing.T) {
	d := start(t, daemon.Config{
		Prices:         pricesFile(t, "date: 2026-10-10\nproviders: {acme: {acme-1: {price: {input: 2, output: 3}}}}"),
		ExtraProviders: []model.Provider{openai.New(openai.Config{Name: "acme", APIKey: "k", API: openai.Chat, BaseURL: "http://127.0.0.1:1/v1"})},
	})
	for _, m := range call(t, wires(t, d)["gRPC"].ListModels, &agentdv1.ListModelsRequest{}).GetModels() {
		if m.GetName() == "acme/acme-1" {
			want := &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{Input: 2, Cached: 2, Output: 3}}, Date: "2026-10-10"}
			if !proto.Equal(m.GetPrice(), want) || !m.GetAvailable() {
				t.Errorf("%v", m)
			}
			return
		}
	}
	t.Error("acme/acme-1 is not listed")
}

// With a bad file of prices there is no daemon.
func TestBadPrices(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":       {"[", "prices.yaml:1:1"},
		"a slip":        {"date: 2026-10-10\nproviders:\n  openai:\n    gpt-5: {price: {input: 1, outputs: 2}}\n", `prices.yaml:4:31: unknown key "outputs"`},
		"negative":      {"date: 2026-10-10\nproviders:\n  openai:\n    gpt-5: {price: {input: 1, output: -2}}\n", "prices.yaml:4:39: -2 is no price"},
		"nobody's":      {"date: 2026-10-10\nproviders: {opnai: {gpt-5: {price: {input: 1, output: 2}}}}", `provider "opnai", which this server does not have; it has: anthropic, echo`},
		"far too large": {strings.Repeat("#\n", 1<<20), "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := daemon.New(daemon.Config{Prices: pricesFile(t, c.text)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	if _, err := daemon.New(daemon.Config{Prices: filepath.Join(t.TempDir(), "none.yaml")}); err == nil || !strings.Contains(err.Error(), "prices") {
		t.Errorf("no file: %v", err)
	}
}
