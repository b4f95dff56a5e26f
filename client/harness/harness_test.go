package harness_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/harness"
	"github.com/apzuk3/agentd/client/permit"
)

// asMCP makes the test binary an MCP server.
const asMCP = "HARNESS_TEST_MCP"

func TestMain(m *testing.M) {
	if os.Getenv(asMCP) != "" {
		s := sdk.NewServer(&sdk.Implementation{Name: "clock", Version: "1"}, nil)
		sdk.AddTool(s, &sdk.Tool{Name: "now"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "noon"}}}, nil, nil
		})
		_ = s.Run(context.Background(), &sdk.StdioTransport{})
		return
	}
	goleak.VerifyTestMain(m)
}

// project is a folder with settings, a skill, an instruction and two MCP servers, one of which does not start.
func project(t *testing.T) string {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		".agents/config.json":         `{"version": 1, "permissions": {"allow": ["mcp:clock_*"]}, "agent": {"max_steps": 9}}`,
		".agents/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Fills forms.\n---\nFill them.\n",
		"AGENTS.md":                   "Write like Hemingway.",
		".agents/mcp.json":            fmt.Sprintf(`{"version": 1, "servers": {"clock": {"transport": "stdio", "command": %q, "env": {%q: "1", "GORACE": "atexit_sleep_ms=0"}}, "gone": {"transport": "stdio", "command": "no-such-program"}}}`, self, asMCP),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asks says yes, and notes what it was asked.
type asks struct{ asked []string }

func (a *asks) AskApproval(_ context.Context, r permit.PromptRequest) (permit.Decision, error) {
	a.asked = append(a.asked, r.ToolName+" "+filepath.Base(r.Detail))
	return permit.Once, nil
}

// TestHarness: an agent has the project's tools, skills and MCP servers, behind one gate, and is told what is written down.
func TestHarness(t *testing.T) {
	dir := project(t)
	var person asks
	var notices []string
	h, err := harness.New(t.Context(), harness.Config{
		Dir: dir, Prompter: &person, Notice: func(text string) { notices = append(notices, text) }, DisableTools: []string{"bash"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if said := strings.Join(notices, "\n"); !strings.Contains(said, "the MCP server gone has failed") {
		t.Errorf("notices are %q", said)
	}
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"helper": `answers:
  - {when: {step: 1, system: "Hemingway[\\s\\S]*pdf: Fills forms"}, calls: [{name: clock_now}, {name: load_skill, args: {name: pdf}}, {name: write_file, args: {path: note.txt, content: noted}}, {name: mine}]}
  - {when: {step: 2}, text: '{{tool_result "clock_now"}}, {{tool_result "mine"}}'}`}})
	clnt := d.Client(h.ClientOptions()...)
	if err := client.AddTool(clnt, "mine", "Is the program's own", func(context.Context, struct{}) (string, error) { return "my own", nil }); err != nil {
		t.Fatal(err)
	}
	agent := client.LLM("helper", "scripted/helper", h.AgentOptions("mine")...)
	for _, name := range agent.GetLlm().GetToolNames() {
		if name == "bash" {
			t.Error("the agent has bash")
		}
	}
	result, err := clnt.Do(t.Context(), agent, "go", h.Tools())
	if err != nil || result.Text != "noon, my own" {
		t.Errorf("got %q, %v", result.Text, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "note.txt")); err != nil || string(got) != "noted" {
		t.Errorf("note.txt is %q, %v", got, err)
	}
	if got := strings.Join(person.asked, "; "); got != "write_file note.txt" {
		t.Errorf("the person was asked %q", got)
	}
}

// TestParts: each part can be left out, and wrong settings are errors.
func TestParts(t *testing.T) {
	dir := project(t)
	h, err := harness.New(t.Context(), harness.Config{Dir: dir, NoTools: true, NoMCP: true, NoSkills: true, NoMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	if names := h.Registry.Names(); len(names)+len(h.Servers)+len(h.Skills.All())+len(h.Layers) != 0 {
		t.Errorf("there are %v, %v, %v, %v", names, h.Servers, h.Skills.All(), h.Layers)
	}
	if n := len(h.ClientOptions()); n != 1 { // the budget
		t.Errorf("%d options", n)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := harness.New(t.Context(), harness.Config{Dir: dir, DisableTools: []string{"bsh"}}); err == nil || !strings.Contains(err.Error(), `unknown tool "bsh"`) {
		t.Errorf("got %v", err)
	}
	for _, wrong := range [][2]string{{"mcp.json", "{"}, {"config.json", `{"version": 1, "modes": 1}`}} {
		name, text := wrong[0], wrong[1]
		if err := os.WriteFile(filepath.Join(dir, ".agents", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := harness.New(t.Context(), harness.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
