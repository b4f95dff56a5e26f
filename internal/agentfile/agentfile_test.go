package agentfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/daemon"
)

const whole = `# A desk.
agent:
  name: desk
  description: writes
  sequential:
    agents:
      - name: writer
        llm:
          model: scripted/demo
          instruction: |
            Write about {topic?}.
            Two lines.
          tool_names: &tools [look, "send"]
          output_key: text
          output_schema: {type: object, required: [a], properties: {a: {type: number, minimum: 1.50, const: 1e3}}}
      - name: again
        loop:
          max_iterations: 3
          agents:
            - {name: editor, llm: {model: echo, tool_names: *tools, builtin_tools: [exit_loop]}}
tools:
  - name: look
    description: Looks
    command: [./look.sh, -v]
    timeout: 1m30s
    needs_approval: true
    input_schema:
      type: object
      properties: {z: {type: string}, a: {enum: [1, yes, true, null]}}
  - {name: send, description: Sends, command: [cat], input_schema: '{"type":"object"}'}
`

func TestParse(t *testing.T) {
	f, err := agentfile.Parse("desk.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	llm := func(l *agentdv1.LlmAgent) *agentdv1.Agent_Llm { return &agentdv1.Agent_Llm{Llm: l} }
	want := &agentdv1.Agent{Name: "desk", Description: "writes", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{
		{Name: "writer", AgentType: llm(&agentdv1.LlmAgent{
			Model: "scripted/demo", Instruction: "Write about {topic?}.\nTwo lines.\n", ToolNames: []string{"look", "send"}, OutputKey: "text",
			OutputSchema: new(`{"type":"object","required":["a"],"properties":{"a":{"type":"number","minimum":1.50,"const":1e3}}}`),
		})},
		{Name: "again", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{MaxIterations: 3, Agents: []*agentdv1.Agent{
			{Name: "editor", AgentType: llm(&agentdv1.LlmAgent{Model: "echo", ToolNames: []string{"look", "send"}, BuiltinTools: []string{"exit_loop"}})},
		}}}},
	}}}}
	if diff := cmp.Diff(want, f.Agent, protocmp.Transform()); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
	tools := []*agentdv1.Tool{
		{Name: "look", Description: "Looks", Timeout: durationpb.New(90 * time.Second), NeedsApproval: true,
			InputSchema: new(`{"type":"object","properties":{"z":{"type":"string"},"a":{"enum":[1,"yes",true,null]}}}`)},
		{Name: "send", Description: "Sends", InputSchema: new(`{"type":"object"}`)},
	}
	if diff := cmp.Diff(tools, f.Declarations(), protocmp.Transform()); diff != "" {
		t.Errorf("the tools (-want +got):\n%s", diff)
	}
	if got := f.Tools[0].Command; !slices.Equal(got, []string{"./look.sh", "-v"}) {
		t.Errorf("the command is %q", got)
	}
}

// A file may be the agent alone, and JSON with tabs and escapes.
func TestAgentAloneAsJSON(t *testing.T) {
	f, err := agentfile.Parse("a.json", []byte("{\n\t\"name\": \"a\\u00e9\\ud83d\\ude00\\/\",\n\t\"llm\": {\"model\": \"echo\"}\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Agent.GetName() != "aé😀/" || f.Agent.GetLlm().GetModel() != "echo" || len(f.Tools) != 0 {
		t.Errorf("got %v", f.Agent)
	}
}

func TestParseProblems(t *testing.T) {
	const agent = "agent: {name: a, llm: {model: echo}}\n"
	for name, tc := range map[string]struct {
		text string
		want []string // all of them, without the file's name
	}{
		"nothing":     {"# only a comment\n", []string{"1:1: the file is empty"}},
		"list":        {"- a\n", []string{"1:1: a file holds a mapping with agent and tools, got a list"}},
		"no agent":    {"tools: []\n", []string{"1:1: agent is missing"}},
		"two":         {agent + "---\n" + agent, []string{"3:1: a second document begins"}},
		"syntax":      {"agent: [1, 2\n", []string{"1:8: sequence end token ']' not found"}},
		"not UTF-8":   {"agent:\n  name: \xff\n", []string{"2:1: the line is not UTF-8"}},
		"tag":         {"agent: !!str x\n", []string{"1:8: the tag !!str is not understood"}},
		"merge":       {"agent: &a {name: a, llm: {model: echo}}\ntools:\n  - <<: *a\n    name: t\n    description: d\n    command: [x]\n", []string{"3:5: << is not understood"}},
		"own alias":   {"agent: &a {name: a, llm: {sub_agents: [*a]}}\n", []string{"1:40: the alias *a stands for nothing"}},
		"twice":       {"agent:\n  name: a\n  llm: {model: echo}\n  name: b\n", []string{`4:3: "name" is there twice, first in line 2`}},
		"unknown top": {agent + "tool: []\n", []string{`2:1: unknown field "tool"; did you mean tools?`}},
		"unknown": {"agent:\n  name: a\n  llm:\n    modell: echo\n    toolNames: [x]\n    zzzzzz: 1\n", []string{
			`4:5: a: unknown field "modell"; did you mean model?`, `5:5: a: unknown field "toolNames"; did you mean tool_names?`,
			`6:5: a: unknown field "zzzzzz"; there are agent_tools, background_agents, builtin_tools, compaction, fallback_models, generation, include_history, instruction, mcp_attachments, model, output_key, output_schema, sub_agents, tool_names`,
		}},
		"wrong types": {"agent:\n  name: 4\n  description: yes please\n  loop: {max_iterations: -1, agents: {name: x}}\n", []string{
			`2:9: ?: name: want text, got the number 4; write it as "4"`, `4:26: ?: max_iterations: want a whole number from 0 to 4294967295, got the number -1`,
			`4:38: ?: agents: want a list, got a mapping`,
		}},
		"two kinds": {"agent:\n  name: a\n  llm: {model: echo}\n  sequential: {agents: []}\n", []string{"4:3: a: llm and sequential: only one of llm, sequential, parallel, loop, remote may be there"}},
		"deep path": {"agent:\n  name: a\n  parallel:\n    agents:\n      - name: b\n        llm: {model: true}\n", []string{`6:22: a/b: model: want text, got true; write it as "true"`}},
		"empty":     {"agent:\n  name:\n  llm: {model: echo}\n", []string{"2:8: ?: name: want text, got nothing"}},
		"mcp":       {"agent: {name: a, llm: {model: echo, mcp_attachments: [{name: x}]}}\n", []string{`1:56: a: unknown field "name"`}},
		"tools": {agent + "tools:\n  - {name: x, description: d}\n  - name: y\n    description: d\n    command: ls -l\n    timeout: 5\n    needs_approval: maybe\n  - {name: z, description: d, command: [], timeout: -1s}\n  - w\n", []string{
			"3:5: tool x: no command: name the program", "6:14: tool y: command: want a list of the program", "7:14: tool y: timeout: want a duration such as 30s or 1m30s, got the number 5",
			`8:21: tool y: needs_approval: want true or false, got the text "maybe"`, "9:40: tool z: command: want a list", "9:53: tool z: timeout: -1s is not above 0", "10:5: tools[3]: want a mapping of fields, got text",
		}},
		"number of a schema": {agent + "tools:\n  - {name: x, description: d, command: [a], input_schema: {a: 0x1F}}\n", []string{"3:59: tool x: input_schema: 0x1F is no number that JSON has"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agentfile.Parse("f.yaml", []byte(tc.text))
			got, ok := errors.AsType[agentfile.Problems](err)
			if !ok {
				t.Fatalf("got %v, want problems", err)
			}
			compare(t, got, tc.want)
		})
	}
}

// compare compares problems with the beginnings of their texts.
func compare(t *testing.T, got agentfile.Problems, want []string) {
	t.Helper()
	for i, p := range got {
		if i >= len(want) || !strings.HasPrefix(p.String(), "f.yaml:"+want[i]) {
			t.Errorf("problem %d is %s", i, p)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d: %q", len(got), len(want), want)
	}
}

// Files that would take memory or stack without end are refused.
func TestBounds(t *testing.T) {
	bomb := "agent: {name: a, llm: {model: echo}}\ntools:\n  - {name: x, description: d, command: [a], input_schema: {a: &a [1,1,1,1,1,1,1,1,1,1]"
	for c := 'b'; c < 'l'; c++ {
		p := string(c - 1)
		bomb += ", " + string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 9) + "*" + p + "]"
	}
	bomb += "}}\n"
	long := strings.Repeat("long ", 20_000)
	for name, tc := range map[string]struct{ text, want string }{
		"bytes":         {strings.Repeat("# a comment\n", 100_000), "more than 1048576 bytes"},
		"tokens":        {"a: [" + strings.Repeat("1,", 150_000) + "]", "more than 200000 tokens"},
		"values":        {"agent: {name: a, llm: {model: echo, tool_names: [" + strings.Repeat("a,", 30_000) + "]}}", "more than 20000 values"},
		"brackets":      {strings.Repeat("[", 100_000), "more than 64 levels"},
		"entries":       {strings.Repeat("- ", 90_000), "more than 64 levels"},
		"indentation":   {strings.Repeat(" ", 2000) + "a: 1", "more than 1024 columns"},
		"blocks":        {blocks(200), "more than 64 levels"},
		"anchors":       {"a: [" + strings.Repeat("&a 1,", 200) + "]", "more than 100 anchors"},
		"aliases":       {bomb, "more than"},
		"alias of text": {"agent: {name: a, description: &a \"" + long + "\", parallel: {agents: [" + strings.Repeat("{name: b, description: *a, llm: {model: echo}},", 60) + "]}}", "can be sent"},
		"problems":      {"agent:\n" + strings.Repeat("  - a\n", 3) + "tools:\n" + strings.Repeat("  - a\n", 500), "and 451 more problems"},
		"keys":          {"? a\n: b\n", "not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agentfile.Parse("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %.300v, want %q", err, tc.want)
			}
			if got, _ := errors.AsType[agentfile.Problems](err); len(got) > 51 {
				t.Errorf("%d problems", len(got))
			}
		})
	}
}

func blocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.yaml")
	if _, err := agentfile.Read(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	if _, err := agentfile.Read(dir); err == nil || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("got %v, want an error that names the folder once", err)
	}
	if err := os.WriteFile(name, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := agentfile.Read(name); err != nil || f.Agent.GetName() != "desk" || f.Name != name {
		t.Errorf("got %v, %v", f, err)
	}
}

func rules(t testing.TB) agentfile.Rules {
	r, err := daemon.TreeRules()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Everything that the server's rules have against a file is told at its place.
func TestCheck(t *testing.T) {
	r := rules(t)
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"all is well":            {whole, nil},
		"no names are no models": {"name: a\nllm: {model: gpt-5, sub_agents: [{name: b, llm: {model: some/thing}}, {name: c, llm: {model: scripted/of-the-server}}]}\n", nil},
		"many at once": {`agent:
  name: root
  sequential:
    agents:
      - name: a b
        llm: {model: echo}
      - name: one
        llm:
          instruction: Speak.
          output_key: 4x
          model: "b@d name"
      - name: one
        description: again
        llm:
          model: echo
          tool_names: [look, lok, look, bad tool, other]
          builtin_tools: [exit_loop, google_search, fly]
      - name: none
        parallel: {agents: []}
      - name: kind
      - name: turns
        loop:
          max_iterations: 5000
          agents:
            - {name: user, llm: {model: gemini-2.5-pro, builtin_tools: [google_search, exit_loop]}}
tools:
  - {name: look, description: Looks, command: [x]}
  - {name: look, description: Again, command: [x]}
  - {name: bad tool, description: x, command: [x]}
  - {name: other, description: "", command: [x], input_schema: {type: array}}
`, []string{
			`5:15: root/a b: name "a b": only letters`,
			`10:23: root/one: output_key "4x"`,
			`11:18: root/one: model "b@d name": `,
			`12:15: root/one: the name is taken by root/one`,
			`16:30: root/one: unknown tool "lok"`,
			`16:35: root/one: tool "look" is listed twice`,
			`17:27: root/one: builtin tool "exit_loop": no loop agent is above`,
			`17:38: root/one: builtin tool "google_search": not available for model "echo"`,
			`17:53: root/one: builtin tool "fly"`,
			`18:9: root/none: the parallel agent has no agents`,
			`20:9: root/kind: agent_type is missing`,
			`23:27: root/turns: max_iterations is 5000`,
			`25:22: root/turns/user: the name "user" is reserved`,
			`28:12: tool look: tool "look" is offered twice`,
			`29:12: tool bad tool: name "bad tool"`,
			`30:32: tool other: the description is empty`,
			`30:64: tool other: input_schema: "type" is "array"`,
		}},
		"agent tools": {`name: a
llm:
  model: echo
  agent_tools:
    - agent: {name: b, description: helps, llm: {model: echo, tool_names: [none]}}
      tool_name: 4x
    - agent: {name: c, llm: {model: echo}}
      branch: x.y
      max_depth: 99
      history: HISTORY_FORK
    - tool_name: d
    - agent: {name: a, description: helps, llm: {model: echo}}
    - agent: {name: exit_loop, description: helps, llm: {model: echo}}
    - agent: {name: f, description: helps, sequential: {agents: [{name: g, llm: {model: echo, output_key: 5x}}]}}
`, []string{
			`5:76: a/b: unknown tool "none"`,
			`6:18: a/b: tool name "4x": must be a letter`,
			`7:7: a/c: "c" has no description`,
			`8:15: a/c: branch "x.y": only letters`,
			`9:18: a/c: max_depth is 99, at most 16`,
			`11:7: a: agent is missing`,
			`12:21: a/a: the name is taken by a`,
			`13:7: a/exit_loop: tool name "exit_loop" is reserved`,
			`14:107: a/f/g: output_key "5x"`,
		}},
		"output schema": {"name: a\nllm:\n  model: echo\n  output_schema: {type: object, properties: {a: {$ref: '#/nowhere'}}}\n  output_key: ok\n", []string{"4:18: a: output_schema: "}},
		"compaction":    {"name: a\nllm:\n  model: echo\n  compaction: {at_share: 80}\n  output_key: ok\n", []string{"4:15: a: compaction: at_share is 80, must be from 0 to 1"}},
		"long timeout":  {"agent: {name: a, llm: {model: echo}}\ntools: [{name: x, description: d, command: [a], timeout: 48h}]\n", []string{"2:58: tool x: timeout: must be greater than 0s and less than or equal to 86400s"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := agentfile.Parse("f.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			before := proto.CloneOf(f.Agent)
			compare(t, f.Check(r), tc.want)
			if !proto.Equal(before, f.Agent) {
				t.Error("the check has changed the tree")
			}
		})
	}
}

// Rules that refuse for a reason nobody has a place for are not lost.
func TestCheckElsewhere(t *testing.T) {
	f, err := agentfile.Parse("f.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	got := f.Check(func(a *agentdv1.Agent, _ []*agentdv1.Tool) error {
		if a == f.Agent {
			return errors.New("not today")
		}
		return nil
	})
	compare(t, got, []string{"3:3: not today"})
}

// What a parser takes means the same as its JSON form, and no text brings it down.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add(`{"name": "a", "llm": {"model": "echo"}}`)
	f.Add("agent: &a {name: a, llm: {model: echo, sub_agents: [*a]}}\n")
	f.Add("tools: [{name: x, input_schema: {a: 1e3, b: .inf, c: 0o7, d: ~}, command: [a]}]\nagent:\n")
	f.Add("a: |\n  x\n b: >-\n - c\n")
	f.Add("? a\n: - - - b\n")
	for _, name := range []string{"../../examples/agents"} {
		files, _ := filepath.Glob(name + "/*.yaml")
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil {
				f.Add(string(data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := agentfile.Parse("f.yaml", []byte(text))
		if err != nil {
			ps, ok := errors.AsType[agentfile.Problems](err)
			if !ok || len(ps) == 0 {
				t.Fatalf("an error that is no problem: %v", err)
			}
			for _, p := range ps {
				if p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Fatalf("a problem without its place: %+v", p)
				}
			}
			return
		}
		if file.Agent == nil {
			t.Fatal("no agent and no problem")
		}
		if _, err := protojson.Marshal(file.Agent); err != nil {
			t.Fatalf("a tree that cannot be sent: %v", err)
		}
		for _, tool := range file.Tools {
			if len(tool.Command) == 0 || tool.Command[0] == "" {
				t.Fatalf("a tool without a command: %v", tool)
			}
			if s := tool.InputSchema; s != nil && !strings.Contains(text, "input_schema") {
				t.Fatalf("a schema from nowhere: %s", *s)
			}
		}
	})
}

func TestParseCompaction(t *testing.T) {
	f, err := agentfile.Parse("f.yaml", []byte("name: a\nllm:\n  model: echo\n  compaction: {at_share: 0.8, context_tokens: 100000, model: echo, instruction: keep the numbers}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &agentdv1.Compaction{AtShare: 0.8, ContextTokens: 100_000, Model: "echo", Instruction: "keep the numbers"}
	if got := f.Agent.GetLlm().GetCompaction(); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if p := f.Check(rules(t)); len(p) > 0 {
		t.Errorf("problems: %v", p)
	}
}

// Settings with names for values: those of the protocol, or the short ones.
func TestParseGeneration(t *testing.T) {
	const text = `name: a
llm:
  model: echo
  include_history: turn
  generation:
    temperature: 0.5
    max_output_tokens: 100
    stop_sequences: [END]
    seed: 7
    thinking: {effort: low, include_thoughts: true}
    tool_choice: {mode: MODE_REQUIRED, tool_names: [x]}
    cache: {mode: on, ttl: 1h}
`
	f, err := agentfile.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &agentdv1.LlmAgent{Model: "echo", IncludeHistory: agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN, Generation: &agentdv1.GenerationSettings{
		Temperature: new(0.5), MaxOutputTokens: 100, StopSequences: []string{"END"}, Seed: new(int32(7)),
		Thinking:   &agentdv1.Thinking{Amount: &agentdv1.Thinking_Effort_{Effort: agentdv1.Thinking_EFFORT_LOW}, IncludeThoughts: true},
		ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"x"}},
		Cache:      &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_ON, Ttl: durationpb.New(time.Hour)},
	}}
	if !proto.Equal(f.Agent.GetLlm(), want) {
		t.Errorf("got %v, want %v", f.Agent.GetLlm(), want)
	}
	_, err = agentfile.Parse("f.yaml", []byte(strings.Replace(text, "effort: low", "effort: some", 1)))
	if err == nil || !strings.Contains(err.Error(), "f.yaml:10:24: a: effort: want one of minimal, low, medium, high") {
		t.Errorf("a value that there is not: %v", err)
	}
}
