package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/internal/test/ttytest"
)

// coder is a project whose agent mends a sum, and the daemon that its model is on.
type coder struct {
	shell
	dir string // the project's folder
}

const (
	sumGo   = "package sum\n\nfunc Sum(xs []int) (total int) {\n\tfor _, x := range xs {\n\t\ttotal -= x\n\t}\n\treturn total\n}\n"
	sumTest = "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum([]int{1, 2}) != 3 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n"
	coderIs = "agent:\n  name: coder\n  llm: {model: scripted/coder, tool_names: [bash, grep, read_file, edit_file, todo]}\n"
	mends   = `answers:
  - calls: [{name: todo, args: {action: add, text: mend Sum}}, {name: bash, args: {command: "go test ./..."}}]
  - calls: [{name: grep, args: {pattern: "total -="}}, {name: read_file, args: {path: sum.go}}]
  - calls: [{name: edit_file, args: {path: sum.go, old_string: "total -= x", new_string: "total += x"}}]
  - calls: [{name: bash, args: {command: "go test ./..."}}]
  - text: "The tests pass."
`
)

func newCoder(t *testing.T, script, config string) *coder {
	t.Helper()
	c := &coder{shell: startShell(t, map[string]string{"coder": script}), dir: t.TempDir()}
	for name, text := range map[string]string{
		"go.mod": "module example.com/sum\n\ngo 1.26\n", "sum.go": sumGo, "sum_test.go": sumTest, "coder.yaml": coderIs, ".agents/config.json": config,
	} {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// command is agentd in a process of its own, in the project's folder.
func (c *coder) command(args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), os.Args[0], args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0", "AGENTD_URL="+c.url, "NO_COLOR=1", "TERM=xterm",
		"XDG_DATA_HOME="+filepath.Join(c.dir, ".data"), "GOWORK=off")
	return cmd
}

func (c *coder) text(name string) string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// TestCodingTask: an agent runs tests, searches, reads and edits. In mode ask, with a rule for the tests, a person is asked
// once, for the edit, and sees what is to be done.
func TestCodingTask(t *testing.T) {
	t.Parallel()
	c := newCoder(t, mends, `{"version": 1, "permissions": {"allow": ["bash:go test*"]}}`)
	term := ttytest.Open(t)
	cmd := c.command("run", "coder.yaml", "Mend it")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	term.Await(0, "edit_file asks: write "+filepath.Join(c.dir, "sum.go"))
	term.Await(0, "this [a]lways: ")
	mark := term.Mark()
	term.Type("x\n") // no answer
	term.Await(mark, "Please answer y, n, s, t, a: ")
	mark = term.Mark()
	term.Type("y\n")
	term.Await(mark, "The tests pass.")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(term.Screen(), "Allow?"); n != 1 {
		t.Errorf("asked %d times:\n%s", n, term.Screen())
	}
	if got := c.text("sum.go"); got != strings.Replace(sumGo, "-=", "+=", 1) {
		t.Errorf("sum.go is\n%s", got)
	}
}

// TestPermissionFlags: without a person, what would be asked is not run, and the model reads why; a mode of the command line
// counts; plan asks the daemon to keep effects from being dispatched at all.
func TestPermissionFlags(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"":      "nobody is there to be asked",
		"allow": "the mode allow lets only reads pass",
		"plan":  "plan mode: edit_file (WRITE) was not run",
		"yolo":  `"status":"edited"`,
	} {
		c := newCoder(t, "answers:\n  - calls: [{name: edit_file, args: {path: sum.go, old_string: \"total -= x\", new_string: \"total += x\"}}]\n"+
			"  - text: 'Told: {{tool_result \"edit_file\"}}'\n", `{"version": 1}`)
		args := []string{"run", "coder.yaml", "Mend it", "-o", "text"}
		if mode != "" {
			args = append(args, "--permissions", mode)
		}
		out, err := c.command(args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("mode %q: %v: %s", mode, err, out)
		}
		if edited := strings.Contains(c.text("sum.go"), "+="); edited != (mode == "yolo") {
			t.Errorf("mode %q: edited is %v", mode, edited)
		}
	}
	c := newCoder(t, mends, `{"version": 2}`)
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "coder.yaml", "x"}, "config.json: version must be 1, it is 2"},
		{[]string{"run", "coder.yaml", "x", "--disable-tools", "bsh"}, `unknown tool "bsh"; known are: bash, `},
		{[]string{"run", "coder.yaml", "x", "--no-builtin-tools", "--no-memory"}, `names the tool "bash", which is not registered`},
		{[]string{"run", "coder.yaml", "x", "--permissions", "all"}, "--permissions must be one of"},
	} {
		out, err := c.command(row.args...).CombinedOutput()
		if err == nil || c.command(row.args...).Run().(*exec.ExitError).ExitCode() != exitUsage || !strings.Contains(string(out), row.want) { //nolint:errorlint // it is that
			t.Errorf("%q: %v: %s", row.args, err, out)
		}
	}
}

// TestInstruction: a model reads the daemon's text, the agent's own, the default, what the user and the project have written
// down, and the skills; agentd instruction shows the same, but of the daemon's text only its size and hash.
func TestInstruction(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - text: '[{{system}}]'\n", `{"version": 1}`)
	config := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(c.dir, "CLAUDE.md"):                          "Project {rules}.\n",
		filepath.Join(config, "agentd", "AGENTS.md"):               "User rules.\n",
		filepath.Join(c.dir, ".agents", "skills", "x", "SKILL.md"): "---\nname: x\ndescription: A skill.\n---\nDo x.\n",
		filepath.Join(c.dir, ".agents", "skills", "y", "SKILL.md"): "no skill\n",
		filepath.Join(c.dir, "coder.yaml"):                         "agent:\n  name: both\n  sequential:\n    agents:\n    - {name: a, llm: {model: scripted/coder, instruction: Be a., tool_names: [load_skill]}}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := c.command(args...)
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+config, "HOME="+config)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	told := run("run", "coder.yaml", "x", "-o", "text")
	layers := []string{"Be a.", memory.Default, "User rules.", "Project {rules}.", "- x: A skill."}
	for i, want := range layers {
		_, rest, ok := strings.Cut(told, want)
		if !ok {
			t.Fatalf("layer %d, %q, is not in its place:\n%s", i, want, told)
		}
		told = rest
	}
	shown := run("instruction", "coder.yaml")
	contains(t, shown, `"agent":"both/a"`, `"source":"agent","bytes":5,"text":"Be a."`, `"source":"default"`, `AGENTS.md","bytes":12,"text":"User rules.\n"`, `CLAUDE.md","bytes":17`,
		"y/SKILL.md: it is no skill: it has no frontmatter")
	if bare := run("run", "coder.yaml", "x", "-o", "text", "--no-memory"); strings.Contains(bare, "rules") || strings.Contains(bare, memory.Default) {
		t.Errorf("without memory: %s", bare)
	}
	if alone := run("run", "-m", "scripted/coder", "x", "-o", "text"); !strings.Contains(alone, "Project {rules}.") || strings.Contains(alone, "A skill") {
		t.Errorf("a model alone: %s", alone)
	}
}

// TestAttachedServers: agents of a file get the tools of the project's MCP servers that they attach, behind the gate; one that
// does not start hurts none.
func TestAttachedServers(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - when: {step: 1}\n    calls: [{name: words_shout, args: {text: hello}}, {name: words_whisper, args: {text: HELLO}}]\n"+
		"  - when: {}\n    text: 'Told: {{tool_result \"words_shout\"}}, {{tool_result \"words_whisper\"}}'\n",
		`{"version": 1, "permissions": {"allow": ["mcp:words_*"], "deny": ["mcp:*_whisper"]}}`)
	for name, text := range map[string]string{
		".agents/mcp.json": fmt.Sprintf(`{"version": 1, "servers": {"words": {"transport": "stdio", "command": %q, "env": {"AGENTD_TEST_AS_MCP": "1"}},
			"gone": {"transport": "stdio", "command": "no-such-program"}}}`, os.Args[0]),
		"coder.yaml": "agent:\n  name: coder\n  llm: {model: scripted/coder, mcp_attachments: [{mcp_name: words}]}\n",
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.command("validate", "coder.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := c.command("run", "coder.yaml", "go", "-o", "text").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, string(out), "Told: HELLO", `the rule "mcp:*_whisper" of permissions.deny forbids it`, "the MCP server gone has failed")
	session := sessionOf(t, string(out))
	out, err = c.command("run", "--session", session, "again", "-o", "text", "--no-builtin-tools").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, string(out), "Told: HELLO")

	// The daemon keeps what the servers declare.
	for _, step := range [][2]string{
		{"apply coder.yaml", `"created":true`}, {"show coder", `"name":"words_shout"`}, {"diff coder coder.yaml", ""},
	} {
		out, err := c.command(append([]string{"agents"}, strings.Fields(step[0])...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", step[0], err, out)
		}
		contains(t, string(out), step[1])
	}
}

// TestProjectSettings: max_steps bounds the model calls of a turn, unless the command line does, and plan_mode has models told.
func TestProjectSettings(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - {when: {call: 3}, text: '[{{system}}]'}\n  - {when: {}, calls: [{name: todo, args: {action: list}}]}\n",
		`{"version": 1, "agent": {"max_steps": 2}, "plan_mode": "advisory"}`)
	if err := os.WriteFile(filepath.Join(c.dir, "coder.yaml"), []byte(strings.Replace(coderIs, "todo]", "todo, record_plan]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.command("run", "coder.yaml", "x", "-o", "text").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "2 model calls") {
		t.Errorf("within 2 steps: %v: %s", err, out)
	}
	if out, err = c.command("run", "coder.yaml", "x", "-o", "text", "--budget-calls", "3").CombinedOutput(); err != nil || !strings.Contains(string(out), planFirst) {
		t.Errorf("within 3 steps: %v: %s", err, out)
	}
}

// TestKilledInACommand: a client that is killed while a command runs does not run it again when it comes back: the command
// ran once, and the model is told that it may have happened.
func TestKilledInACommand(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - calls: [{name: bash, args: {command: \"echo ran $$ >> ran; sleep 60\", timeout_seconds: 100}}]\n"+
		"  - text: 'Told: {{tool_result \"bash\"}}'\n", `{"version": 1, "permissions": {"mode": "yolo"}}`)
	first := c.command("run", "coder.yaml", "go", "-o", "events")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() })
	var pid int
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(filepath.Join(c.dir, "ran")); err == nil {
			_, _ = fmt.Sscanf(string(data), "ran %d\n", &pid)
		}
		if time.Now().After(deadline) {
			t.Fatal("the command does not run")
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	session, _ := c.lines("sessions", "list")[0]["id"].(string)
	out, err := c.command("run", "--attach", session, "coder.yaml", "-o", "text").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, string(out), "bash was started before this program stopped: it may have happened; look before you repeat it")
	if got := c.text("ran"); strings.Count(got, "ran") != 1 {
		t.Errorf("it ran %q", got)
	}
}

// TestAnsweredElsewhere: what the gate asks at one terminal is answered from another one, and holds as far as that says;
// the question is one of the session, with its own line in the list.
func TestAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	c := newCoder(t, "answers:\n  - calls: [{name: bash, args: {command: echo one}}]\n  - calls: [{name: bash, args: {command: echo two}}]\n"+
		"  - text: \"Both ran.\"\n", `{"version": 1}`)
	term := ttytest.Open(t)
	cmd := c.command("run", "coder.yaml", "Go")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	term.Await(0, "bash asks: run echo one")
	list := strings.Fields(lastLine(c.says(true, "interactions", "list")))
	if len(list) < 7 || !strings.Contains(strings.Join(list, " "), "run echo one") {
		t.Fatalf("listed %q", list)
	}
	out := c.says(true, "interactions", "resolve", list[1], list[0], "approve", "--scope", "session_verb")
	if !strings.Contains(out, "was approved for: session_verb") {
		t.Errorf("resolving says %q", out)
	}
	term.Await(0, "Both ran.")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(term.Screen(), "Allow?"); n != 1 || !strings.Contains(term.Screen(), "answered elsewhere") {
		t.Errorf("asked %d times:\n%s", n, term.Screen())
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
