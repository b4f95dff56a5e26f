package client_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// What the builders make is what a program would write by hand.
func TestBuilders(t *testing.T) {
	got := client.Sequential("desk",
		client.LLM("writer", "claude-x",
			client.Description("Writes."), client.Instruction("Write about {topic}."),
			client.Tools("search"), client.Tools("fetch"), client.BuiltinTools("exit_loop"),
			client.AttachedTools("files", "read"), client.AttachedTools("mail"),
			client.SubAgents(client.LLM("poet", "echo")),
			client.OutputKey("draft"), client.OutputSchemaOf[person](),
			client.FallbackModels("gpt-x", "echo"), client.ThisTurnOnly(),
			client.Compact(client.Compaction{AtShare: 0.5, ContextTokens: 1000, Model: "echo", Instruction: "names"}),
			client.Generate(client.Generation{
				Temperature: new(0.0), TopP: new(0.5), MaxOutputTokens: 10, StopSequences: []string{"END"}, Seed: new(int32(7)),
				Thinking: client.EffortLow, IncludeThoughts: true,
				ToolChoice: client.ToolChoiceRequired, ToolChoiceNames: []string{"search"},
				Cache: client.CacheOn, CacheTTL: time.Hour,
			})),
		client.Parallel("both", client.LLM("a", "echo"), client.LLM("b", "echo")),
		client.Loop("again", 3, client.LLM("c", "echo")))
	leaf := func(name string) *agentdv1.Agent {
		return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo"}}}
	}
	want := &agentdv1.Agent{Name: "desk", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{
		{Name: "writer", Description: "Writes.", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
			Model: "claude-x", Instruction: "Write about {topic}.", ToolNames: []string{"search", "fetch"}, BuiltinTools: []string{"exit_loop"},
			McpAttachments: []*agentdv1.McpAttachment{{McpName: "files", IncludeToolNames: []string{"read"}}, {McpName: "mail"}},
			SubAgents:      []*agentdv1.Agent{leaf("poet")}, OutputKey: "draft", OutputSchema: new(client.SchemaOf[person]()),
			FallbackModels: []string{"gpt-x", "echo"}, IncludeHistory: agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN,
			Compaction: &agentdv1.Compaction{AtShare: 0.5, ContextTokens: 1000, Model: "echo", Instruction: "names"},
			Generation: &agentdv1.GenerationSettings{
				Temperature: new(0.0), TopP: new(0.5), MaxOutputTokens: 10, StopSequences: []string{"END"}, Seed: new(int32(7)),
				Thinking:   &agentdv1.Thinking{Amount: &agentdv1.Thinking_Effort_{Effort: agentdv1.Thinking_EFFORT_LOW}, IncludeThoughts: true},
				ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"search"}},
				Cache:      &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_ON, Ttl: durationpb.New(time.Hour)},
			},
		}}},
		{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: []*agentdv1.Agent{leaf("a"), leaf("b")}}}},
		{Name: "again", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: []*agentdv1.Agent{leaf("c")}, MaxIterations: 3}}},
	}}}}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Each field of an agent with a model can be set without the protocol's package.
func TestBuildersCoverTheProtocol(t *testing.T) {
	all := client.LLM("a", "m",
		client.Instruction("i"), client.Tools("t"), client.BuiltinTools("b"), client.AttachedTools("x"), client.SubAgents(client.LLM("s", "m")), client.AgentTool(client.LLM("t", "m"), client.AgentCall{Fork: true}), client.BackgroundAgents(client.Background{}),
		client.OutputKey("k"), client.OutputSchema("{}"), client.FallbackModels("f"), client.ThisTurnOnly(),
		client.Compact(client.Compaction{AtShare: 1, ContextTokens: 1, Model: "m", Instruction: "i"}),
		client.Generate(client.Generation{
			Temperature: new(1.0), TopP: new(1.0), MaxOutputTokens: 1, StopSequences: []string{"s"}, Seed: new(int32(1)),
			ThinkingTokens: new(int32(0)), IncludeThoughts: true, ToolChoice: client.ToolChoiceNone, ToolChoiceNames: []string{"t"},
			Cache: client.CacheOff, CacheTTL: time.Second,
		})).GetLlm()
	for _, m := range []proto.Message{all, all.GetCompaction(), all.GetGeneration(), all.GetGeneration().GetToolChoice(), all.GetGeneration().GetCache()} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !m.ProtoReflect().Has(fields.Get(i)) {
				t.Errorf("no option sets %s", fields.Get(i).FullName())
			}
		}
	}
	if th := all.GetGeneration().GetThinking(); th.GetAmount() == nil || th.GetEffort() != 0 || !th.GetIncludeThoughts() {
		t.Errorf("thinking %v", th)
	}
}

// A daemon takes what the builders make, and options that are shared share nothing.
func TestBuiltTreeRuns(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{"s": "answers: [{when: {}, text: done}]"},
	})
	shared := []client.AgentOption{client.Instruction("Be brief."), client.BuiltinTools("exit_loop")}
	tree := client.Loop("again", 2, client.LLM("a", "scripted/s", shared...), client.LLM("b", "scripted/s", shared...))
	tree.GetLoop().GetAgents()[0].GetLlm().BuiltinTools[0] = "ask_user"
	if got := tree.GetLoop().GetAgents()[1].GetLlm().GetBuiltinTools()[0]; got != "exit_loop" {
		t.Fatalf("agent b has %q", got)
	}
	result, err := d.Client().Do(t.Context(), tree, "go")
	if err != nil || result.Text != "donedone\n\ndonedone" {
		t.Errorf("%q, %v", result.Text, err)
	}
}
