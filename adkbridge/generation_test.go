package adkbridge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
)

func generate(s *agentdv1.GenerationSettings) option {
	return func(a *agentdv1.LlmAgent) { a.Generation = s }
}

// TestGeneration: each setting reaches the model, and an unset one does not.
func TestGeneration(t *testing.T) {
	all := &agentdv1.GenerationSettings{
		Temperature: new(0.0), TopP: new(0.5), MaxOutputTokens: 100, StopSequences: []string{"END"}, Seed: new(int32(7)),
		Thinking:   &agentdv1.Thinking{Amount: &agentdv1.Thinking_Effort_{Effort: agentdv1.Thinking_EFFORT_LOW}, IncludeThoughts: true},
		ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"calc"}},
	}
	budget := &agentdv1.GenerationSettings{Thinking: &agentdv1.Thinking{Amount: &agentdv1.Thinking_BudgetTokens{BudgetTokens: 2000}}}
	w := newWorld(t, map[string][]step{"a": {say("A")}, "b": {say("B")}, "c": {say("C")}})
	w.run(seq("s", llm("a", generate(all)), llm("b", generate(budget)), llm("c")), "go").ok(t)
	settings := func(agent string) *genai.GenerateContentConfig {
		c := w.script.seen(agent)[0].raw.Config
		return &genai.GenerateContentConfig{
			Temperature: c.Temperature, TopP: c.TopP, MaxOutputTokens: c.MaxOutputTokens, StopSequences: c.StopSequences,
			Seed: c.Seed, ThinkingConfig: c.ThinkingConfig, ToolConfig: c.ToolConfig,
		}
	}
	want := map[string]*genai.GenerateContentConfig{
		"a": {
			Temperature: new(float32(0)), TopP: new(float32(0.5)), MaxOutputTokens: 100, StopSequences: []string{"END"}, Seed: new(int32(7)),
			ThinkingConfig: &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow, IncludeThoughts: true},
			ToolConfig: &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{
				Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{"calc"},
			}},
		},
		"b": {ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: new(int32(2000))}},
		"c": {},
	}
	for agent, want := range want {
		if diff := cmp.Diff(want, settings(agent)); diff != "" {
			t.Errorf("agent %s (-want +got):\n%s", agent, diff)
		}
	}
}

func TestBadGeneration(t *testing.T) {
	for says, s := range map[string]*agentdv1.GenerationSettings{
		"temperature is 3":         {Temperature: new(3.0)},
		"top_p is 0":               {TopP: new(0.0)},
		"max_output_tokens":        {MaxOutputTokens: -1},
		"stop_sequences":           {StopSequences: []string{""}},
		"budget_tokens is -1":      {Thinking: &agentdv1.Thinking{Amount: &agentdv1.Thinking_BudgetTokens{BudgetTokens: -1}}},
		`names "nothing"`:          {ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"nothing"}}},
		"is for MODE_REQUIRED":     {ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_NONE, ToolNames: []string{"calc"}}},
		"cache.ttl is for MODE_ON": {Cache: &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_OFF, Ttl: durationpb.New(time.Hour)}},
		"the agent has no tool":    {ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED}},
	} {
		opts := []option{generate(s)}
		if strings.Contains(says, "no tool") {
			opts = append(opts, tools())
		}
		w := newWorld(t, nil)
		_, err := w.manager.Start(t.Context(), session.Request{Agent: llm("root", opts...), Tools: w.tools, Prompt: "go"})
		if err == nil || fault.As(err).Code != codeTree || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestPromptCache: the provider is asked to keep prompts where it is to be, under a key
// that all calls of an agent in a session have, and no others.
func TestPromptCache(t *testing.T) {
	on := func(ttl time.Duration) option {
		c := &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_ON}
		if ttl > 0 {
			c.Ttl = durationpb.New(ttl)
		}
		return generate(&agentdv1.GenerationSettings{Cache: c})
	}
	off := generate(&agentdv1.GenerationSettings{Cache: &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_OFF}})
	tree := seq("s", llm("a", on(0)), llm("b", on(time.Hour)), llm("c", off), llm("d"))
	w := newWorld(t, map[string][]step{"a": {use("calc"), say("A"), say("A"), say("A")}, "b": {say("B"), say("B"), say("B")}, "c": {say("C"), say("C"), say("C")}, "d": {say("D"), say("D"), say("D")}})
	w.run(tree, "go").ok(t)
	w.restart()
	w.run(tree, "again").ok(t)
	for agent, ttl := range map[string]time.Duration{"a": 0, "b": time.Hour} {
		seen := w.script.seen(agent)
		for _, r := range seen {
			if c := r.raw.Cache; c == nil || c.TTL != ttl || len(c.Key) != 32 || c.Key != seen[0].raw.Cache.Key {
				t.Errorf("agent %s asks for %+v, before for %+v", agent, c, seen[0].raw.Cache)
			}
		}
	}
	for _, agent := range []string{"c", "d"} {
		if c := w.script.seen(agent)[0].raw.Cache; c != nil {
			t.Errorf("agent %s asks for %+v", agent, c)
		}
	}
	w.session = ""
	w.run(tree, "elsewhere").ok(t)
	a := w.script.seen("a")
	first, other := a[0].raw.Cache.Key, a[len(a)-1].raw.Cache.Key
	if first == other || first == w.script.seen("b")[0].raw.Cache.Key {
		t.Errorf("sessions have the keys %s and %s, another agent %s", first, other, w.script.seen("b")[0].raw.Cache.Key)
	}
}

// TestIncludeHistory: an agent that sees only the current turn sees all of it, and no
// other.
func TestIncludeHistory(t *testing.T) {
	turnOnly := func(a *agentdv1.LlmAgent) { a.IncludeHistory = agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN }
	w := newWorld(t, map[string][]step{"a": {say("A1"), say("A2")}, "b": {use("calc"), say("B1"), use("calc"), say("B2")}})
	tree := seq("s", llm("a"), llm("b", turnOnly))
	w.run(tree, "one").ok(t)
	w.restart() // the prompts are rebuilt from the log too
	w.run(tree, "two").ok(t)
	w.checkAll()
	got := transcript(w.script.seen("b")[3].contents)
	if !strings.HasPrefix(got, "user: two\nuser: For context: [a] said: A2\n") || strings.Contains(got, "B1") || !strings.Contains(got, "result calc") {
		t.Errorf("b is told:\n%s", got)
	}
	if got := transcript(w.script.seen("a")[1].contents); !strings.Contains(got, "user: one") || !strings.Contains(got, "B1") {
		t.Errorf("a is told:\n%s", got)
	}
}

// TestInstructionLayers: the server's text, the agent's, the caller's.
func TestInstructionLayers(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("calc"), say("A")}, "silent": {say("B")}})
	m, err := session.NewManager(session.Config{Store: w.store, Runner: w.runner, Limits: limits.Limits{Instruction: "be kind to {nobody}"}})
	if err != nil {
		t.Fatal(err)
	}
	w.manager = m
	turn, err := m.Start(t.Context(), session.Request{
		Agent: seq("s", llm("root"), llm("silent", instruct(""))), Tools: w.tools, Prompt: "go", Instruction: "be brief",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.follow(turn).ok(t)
	for agent, want := range map[string]string{
		"root":   "be kind to {nobody}\n\nyou are root\n\nbe brief",
		"silent": "be kind to {nobody}\n\nbe brief",
	} {
		for _, r := range w.script.seen(agent) {
			if !strings.Contains(r.system, want) {
				t.Errorf("%s is instructed:\n%s\nwant %q", agent, r.system, want)
			}
		}
	}
	// The caller's text is the turn's, the server's is for all.
	w.session = turn.SessionID()
	w.script.steps["root"] = append(w.script.steps["root"], say("C"))
	w.script.steps["silent"] = append(w.script.steps["silent"], say("D"))
	w.tools = nil // those of the session
	w.run(nil, "again").ok(t)
	seen := w.script.seen("root")
	if system := seen[len(seen)-1].system; !strings.Contains(system, "be kind to {nobody}\n\nyou are root") || strings.Contains(system, "be brief") {
		t.Errorf("the next turn is instructed:\n%s", system)
	}
}
