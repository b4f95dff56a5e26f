package daemon_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/session/limits"
)

// A daemon says what it is, on each wire, and what it says holds.
func TestGetCapabilities(t *testing.T) {
	d := start(t, daemon.Config{
		Version: "v1.2.3", MaxMessageBytes: 1 << 20, Turns: limits.Limits{Retention: time.Hour, MaxPromptBytes: 1000, Instruction: "Be kind."},
		Providers: daemon.Providers{AnthropicAPIKey: "secret"},
	})
	want := &agentdv1.GetCapabilitiesResponse{
		Version: "v1.2.3", BuiltinTools: []string{"ask_user", "exit_loop", "mark_task_done"}, MaxPromptBytes: 1000, MaxMessageBytes: 1 << 20,
		InstructionBytes: 8, InstructionSha256: "5499befb38dbf3fcc08107141cb2a9e7f42a6aae403361dc3601b8296d7967ea",
	}
	for name, c := range wires(t, d) {
		got := call(t, c.GetCapabilities, &agentdv1.GetCapabilitiesRequest{})
		keys := map[string]bool{}
		for _, p := range got.GetProviders() {
			keys[p.GetName()] = p.GetHasKey()
			if has := slices.Contains(p.GetBuiltinTools(), "web_search"); has != slices.Contains([]string{"anthropic", "gemini", "openai", "openai-responses"}, p.GetName()) {
				t.Errorf("%s: provider %s runs %q", name, p.GetName(), p.GetBuiltinTools())
			}
		}
		for provider, has := range map[string]bool{"anthropic": true, "echo": true, "gemini": false, "openai": false, "openai-chat": false, "openai-responses": false, "scripted": true} {
			if is, listed := keys[provider]; !listed || is != has {
				t.Errorf("%s: provider %s is listed %v and has a key %v", name, provider, listed, is)
			}
		}
		if !slices.Contains(got.GetBuiltinTools(), "exit_loop") || got.GetRetention().AsDuration() != time.Hour {
			t.Errorf("%s: %v", name, got)
		}
		if !slices.IsSorted(got.GetFeatures()) || !slices.Contains(got.GetFeatures(), "RunRequest.ExecuteRequest.on_busy") {
			t.Errorf("%s: features %q", name, got.GetFeatures())
		}
		got.Providers, got.Retention, got.Features = nil, nil, nil
		if !proto.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	c := wires(t, d)["gRPC"]
	prompt := func(n int) *agentdv1.CreateTurnRequest {
		return &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: strings.Repeat("x", n), Agent: llm("root", "echo")}}
	}
	until(t, c, call(t, c.CreateTurn, prompt(1000)).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if err := try(t, c.CreateTurn, prompt(1001)); err == nil {
		t.Error("a prompt larger than the largest is taken")
	}
}

// A prompt has the protocol's own bound, whatever the daemon would allow.
func TestCapabilitiesOfTheProtocol(t *testing.T) {
	d := start(t, daemon.Config{Turns: limits.Limits{MaxPromptBytes: 2 << 20}})
	c := wires(t, d)["Connect, binary, HTTP/1.1"]
	got := call(t, c.GetCapabilities, &agentdv1.GetCapabilitiesRequest{})
	if got.GetMaxMessageBytes() != 4<<20 || got.GetRetention().AsDuration() != 24*time.Hour || got.GetVersion() != "dev" {
		t.Errorf("got %v", got)
	}
	largest := int(got.GetMaxPromptBytes())
	for size, ok := range map[int]bool{largest: true, largest + 1: false} {
		err := try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: strings.Repeat("x", size), Agent: llm("root", "scripted/demo")}})
		if (err == nil) != ok {
			t.Errorf("a prompt of %d bytes: %v", size, err)
		}
	}
}

// The models that are known by name can be named, and are priced as turns are.
func TestListModels(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`answers: [{text: hi}]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one.yaml")
	d := start(t, daemon.Config{ScriptsDir: dir, Scripts: map[string]string{"two": `answers: [{text: hi}]`}, Providers: daemon.Providers{GeminiAPIKey: "secret"}})
	for name, c := range wires(t, d) {
		got := call(t, c.ListModels, &agentdv1.ListModelsRequest{})
		if got.GetPricesDate() != catalog.Builtin().Date {
			t.Errorf("%s: prices of %q", name, got.GetPricesDate())
		}
		models := map[string]*agentdv1.Model{}
		last := ""
		for _, m := range got.GetModels() {
			if key := m.GetProvider() + " " + m.GetName(); key <= last {
				t.Errorf("%s: %s comes after %s", name, key, last)
			} else {
				last = key
			}
			models[m.GetName()] = m
		}
		runs := map[string][]string{}
		for _, p := range call(t, c.GetCapabilities, &agentdv1.GetCapabilitiesRequest{}).GetProviders() {
			runs[p.GetName()] = p.GetBuiltinTools()
		}
		for _, want := range []*agentdv1.Model{
			{Name: "gemini-2.5-flash", Provider: "gemini", Available: true, Retires: "2026-12-01", Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{Input: 0.30, Cached: 0.03, Output: 2.50}}, Date: "2026-07-24"},
				Capabilities: &agentdv1.ModelCapabilities{
					ContextTokens: 1_048_576, OutputTokens: 65_536, Inputs: []string{"image", "audio", "video", "document"},
					Thinking: true, Tools: true, StructuredOutput: true,
				}},
			{Name: "claude-sonnet-4-5", Provider: "anthropic", Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{
				Input: 3, Cached: 0.30, Output: 15, CacheWrites: []*agentdv1.CacheWritePrice{{Price: 3.75}, {Ttl: durationpb.New(time.Hour), Price: 6}},
			}}},
				Capabilities: &agentdv1.ModelCapabilities{
					ContextTokens: 200_000, OutputTokens: 64_000, Inputs: []string{"image", "document"}, Thinking: true, Tools: true, StructuredOutput: true,
				}},
			{Name: "gpt-5.4", Provider: "openai", Price: &agentdv1.ModelPrice{Date: "2026-07-24", Tiers: []*agentdv1.PriceTier{
				{Input: 2.50, Cached: 0.25, Output: 15}, {AbovePromptTokens: 272_000, Input: 5, Cached: 0.50, Output: 22.50},
			}},
				Capabilities: &agentdv1.ModelCapabilities{
					ContextTokens: 1_050_000, OutputTokens: 128_000, Inputs: []string{"image", "document"}, Thinking: true, Tools: true, StructuredOutput: true,
				}},
			{Name: "echo", Provider: "echo", Available: true, Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{}}}},
			{Name: "scripted/demo", Provider: "scripted", Available: true, Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{}}}},
			{Name: "scripted/one", Provider: "scripted", Available: true, Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{}}}},
			{Name: "scripted/two", Provider: "scripted", Available: true, Price: &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{}}}},
		} {
			want.BuiltinTools = runs[want.GetProvider()]
			want.Source = catalog.Builtin().Find(want.GetProvider(), want.GetName()).Source
			if m := models[want.GetName()]; !proto.Equal(m, want) {
				t.Errorf("%s: got %v, want %v", name, m, want)
			}
		}
	}
	// What is available can be run, and what is not says so before it begins; the
	// providers that need a network are left out.
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	write("three.yaml")
	names := map[string]bool{}
	for _, m := range call(t, c.ListModels, &agentdv1.ListModelsRequest{}).GetModels() {
		names[m.GetName()] = true
		if m.GetProvider() == "gemini" {
			continue
		}
		err := try(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", m.GetName())}})
		if (err == nil) != m.GetAvailable() {
			t.Errorf("%v: %v", m, err)
		}
	}
	if !names["scripted/three"] {
		t.Errorf("a script that came later is not listed: %v", names)
	}
}

// Both are free of side effects: Connect serves them by GET.
func TestCapabilitiesByGet(t *testing.T) {
	d := start(t, daemon.Config{Version: "v1.2.3"})
	for procedure, reply := range map[string]proto.Message{
		agentdv1connect.SessionServiceGetCapabilitiesProcedure: &agentdv1.GetCapabilitiesResponse{},
		agentdv1connect.SessionServiceListModelsProcedure:      &agentdv1.ListModelsResponse{},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL()+procedure+"?"+url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {"{}"}}.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %d %s, %v", procedure, resp.StatusCode, body, err)
		}
		if err := protojson.Unmarshal(body, reply); err != nil || proto.Size(reply) == 0 {
			t.Errorf("GET %s: %s, %v", procedure, body, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
