package agentfile_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
)

// Other models, caching and tools that a model looks for stand in files as in the
// protocol.
func TestParseModels(t *testing.T) {
	const text = `
agent:
  name: a
  llm:
    model: claude-sonnet-4-5
    fallback_models: [gpt-5, anthropic/claude-opus-4-5]
    generation: {cache: {mode: on, ttl: 1h}}
    builtin_tools: [tool_search]
    tool_names: [rare]
tools:
  - {name: rare, description: Rare, deferred: true, command: [x]}
`
	f, err := agentfile.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &agentdv1.LlmAgent{
		Model: "claude-sonnet-4-5", FallbackModels: []string{"gpt-5", "anthropic/claude-opus-4-5"}, BuiltinTools: []string{"tool_search"}, ToolNames: []string{"rare"},
		Generation: &agentdv1.GenerationSettings{Cache: &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_ON, Ttl: durationpb.New(time.Hour)}},
	}
	if diff := cmp.Diff(want, f.Agent.GetLlm(), protocmp.Transform()); diff != "" {
		t.Errorf("the agent (-want +got):\n%s", diff)
	}
	if !f.Declarations()[0].GetDeferred() {
		t.Error("the tool is not deferred")
	}
	compare(t, f.Check(rules(t)), nil)
}

// A tool that a model has to look for needs that with which it looks, or a tool that
// may find it, and a search needs what it finds.
func TestCheckDeferred(t *testing.T) {
	f, err := agentfile.Parse("f.yaml", []byte(`
agent:
  name: root
  sequential:
    agents:
      - {name: a, llm: {model: claude-sonnet-4-5, tool_names: [rare, common], builtin_tools: [web_search, tool_search]}}
      - {name: b, llm: {model: claude-sonnet-4-5, tool_names: [rare]}}
      - {name: c, llm: {model: claude-sonnet-4-5, tool_names: [common], builtin_tools: [web_search, tool_search]}}
      - {name: d, llm: {model: echo, tool_names: [rare], builtin_tools: [tool_search]}}
      - {name: e, llm: {model: echo, tool_names: [rare, common]}}
tools:
  - {name: common, description: Common, command: [x]}
  - {name: rare, description: Rare, deferred: true, command: [x]}
`))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, f.Check(rules(t)), []string{
		`7:64: root/b: tool "rare" is deferred`,
		`8:101: root/c: builtin tool "tool_search": none of the agent's tools is deferred`,
		`9:74: root/d: builtin tool "tool_search": not available`,
	})
}

// What is wrong with them is told at its place, of an agent deep in the tree too.
func TestCheckModels(t *testing.T) {
	f, err := agentfile.Parse("f.yaml", []byte(`
agent:
  name: root
  sequential:
    agents:
      - name: a
        llm:
          model: echo
          fallback_models: [gpt-5, "b@d name", ""]
          generation: {temperature: 0.5, cache: {ttl: 1h}}
          output_key: ok
`))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, f.Check(rules(t)), []string{
		`9:36: root/a: `,
		`9:48: root/a: `,
		`10:23: root/a: `,
	})
}
