//go:build unix

package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/tools"
)

func TestBash(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "canary")
	t.Setenv("SOME_API_KEY", "canary")
	t.Setenv("PLAIN", "kept")
	b := newBench(t)
	b.want("bash", `{"command": "pwd; echo $PLAIN >&2; exit 3"}`, fmt.Sprintf(
		`{"exit_code": 3, "stdout": "%s\n", "stderr": "kept\n", "timed_out": false}`, b.dir))
	b.want("bash", `{"command": "env | grep -c canary; cat"}`, `{"exit_code": 0, "stdout": "0\n", "stderr": "", "timed_out": false}`)
	b.want("bash", `{"command": "kill -9 $$"}`, `{"exit_code": -1, "stdout": "", "stderr": "", "timed_out": false}`)
	b.want("bash", `{"command": "echo x; sleep 60", "timeout_seconds": 1}`, `{"exit_code": -1, "stdout": "x\n", "stderr": "", "timed_out": true}`)
	b.refused("bash", `{"command": ""}`, "the command is empty")
	b.refused("bash", `{"command": "ls", "timeout_seconds": 3601}`, "1 to 3600")
	b.refused("bash", `{"command": "rm -rf /"}`, "no mode and no rule permits it")
	if got := b.call("bash", `{"command": "yes | head -c 10000000"}`); len(got) > 70<<10 || !strings.Contains(got, "[cut: 10000000 bytes, 5000000 lines in all]") {
		t.Errorf("got %d bytes", len(got))
	}
	if got := b.call("bash", `{"command": "printf '\\377\\0x'"}`); !strings.Contains(got, "\ufffd\\u0000x") {
		t.Errorf("got %q", got)
	}
}

// pidIn reads a process id that a command has written to a file.
func (b *bench) pidIn(name string) int {
	b.t.Helper()
	for range 500 {
		if n, err := strconv.Atoi(strings.TrimSpace(b.text(name))); err == nil {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("%s holds no process id", name)
	return 0
}

// gone waits until a process has ended.
func (b *bench) gone(pid int) {
	b.t.Helper()
	for range 500 {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Errorf("process %d still runs", pid)
}

// TestBashLeavesNothing: what a command has started ends with it: when it has ended, when its time is over, when the call
// is canceled.
func TestBashLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.call("bash", `{"command": "sleep 600 & echo $! > one"}`)
	b.gone(b.pidIn("one"))
	b.call("bash", `{"command": "(sh -c 'sleep 600 & echo $! > two; wait'); wait", "timeout_seconds": 1}`)
	b.gone(b.pidIn("two"))
	clnt := daemon().Client()
	defer clnt.CloseIdleConnections()
	command := `{"command": "sh -c 'sleep 600 & echo $! > three; wait'"}`
	for event, err := range clnt.Run(t.Context(), client.LLM("a", "scripted/bash", client.Tools("bash")), command, client.WithTools(b.reg.Set)) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := event.Data.(*client.ToolCall); ok {
			b.pidIn("three")
			break // ends the run
		}
	}
	b.gone(b.pidIn("three"))
}

// TestBackground: a command in the background says what it says while it runs, and ends by bash_kill, or with the run.
func TestBackground(t *testing.T) {
	b := newBench(t)
	lines := [][2]string{
		{"bash", `{"command": "echo $$ > pid; echo one; while ! [ -e go ]; do sleep 0.01; done; echo two; sleep 600", "background": true}`},
		{"bash", `{"command": "while ! [ -s pid ]; do sleep 0.01; done; touch go; sleep 0.2"}`},
		{"bash_output", `{"id": "bg-1"}`},
		{"bash_output", `{"id": "bg-1", "offset": 4}`},
		{"bash_output", `{"id": "bg-1", "offset": 99}`},
		{"bash_kill", `{"id": "bg-1"}`},
		{"bash_kill", `{"id": "bg-1"}`},
		{"bash_output", `{"id": "bg-1", "offset": 8}`},
		{"bash_output", `{"id": "bg-2"}`},
		{"bash", `{"command": "echo $$ > left; sleep 600", "background": true}`},
		{"bash", `{"command": "while ! [ -s left ]; do sleep 0.01; done"}`},
	}
	got := b.turn(lines)
	want := []string{
		`"id":"bg-1"`, `"exit_code":0`, `{"output":"one\ntwo\n","next_offset":8,"running":true,"exit_code":0}`, `{"output":"two\n","next_offset":8,"running":true,"exit_code":0}`,
		"offset must be 0 to 8", `{"status":"killed"}`, `{"status":"it had ended"}`, `{"output":"","next_offset":8,"running":false,"exit_code":-1}`,
		`there is no command "bg-2"`, `"id":"bg-2"`, `"exit_code":0`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%v: got %s, want %s", lines[i], got[i], want[i])
		}
	}
	b.gone(b.pidIn("pid"))
	b.gone(b.pidIn("left")) // the run is over
	if other := b.call("bash_output", `{"id": "bg-2"}`); !strings.Contains(other, "there is no command") {
		t.Errorf("another session sees it: %s", other)
	}
}

// turn runs a turn whose model makes calls one after the other, and returns their results.
func (b *bench) turn(calls [][2]string) (results []string) {
	b.t.Helper()
	var answers strings.Builder
	answers.WriteString("answers:\n")
	for _, c := range calls {
		fmt.Fprintf(&answers, "  - calls: [{name: %s, args_text: %q}]\n", c[0], c[1])
	}
	answers.WriteString("  - text: done\n")
	d := agentdtest.Start(b.t, agentdtest.Config{Scripts: map[string]string{"many": answers.String()}})
	clnt := d.Client()
	defer clnt.CloseIdleConnections()
	agent := client.LLM("a", "scripted/many", client.Tools("bash", "bash_output", "bash_kill"))
	for event, err := range clnt.Run(b.t.Context(), agent, "go", client.WithTools(b.reg.Set)) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e, ok := event.Data.(*client.ToolCallAnswered); ok {
			results = append(results, e.Output+e.Error)
		}
	}
	return results
}

// TestCloseEndsAll: when the tools are closed, no command is left, also of a run that goes on.
func TestCloseEndsAll(t *testing.T) {
	b := newBench(t)
	if got := b.call("bash", `{"command": "echo $$ > pid; sleep 600", "background": true}`); !strings.Contains(got, `"id":"bg-1"`) {
		t.Fatal(got)
	}
	if err := b.reg.Close(); err != nil {
		t.Fatal(err)
	}
	if path := filepath.Join(b.dir, "pid"); b.text("pid") != "" {
		pid := b.pidIn("pid")
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d of %s still runs", pid, path)
		}
	}
	b.refused("bash", `{"command": "ls", "background": true}`, "the tools are closed")
}

// TestBuild: what is missing, and a name that no tool has, is refused.
func TestBuild(t *testing.T) {
	c, err := conf.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g, err := permit.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(want string, c *conf.Config, g *permit.Gate, b tools.Builtins) {
		t.Helper()
		if _, err := tools.Build(c, g, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	fails("the configuration is missing", nil, g, tools.Default())
	fails("the gate is missing", c, nil, tools.Default())
	c.Tools.Disable = []string{"bsh"}
	fails(`tools.disable: unknown tool "bsh"; known are: bash, bash_kill, bash_output, delete_file, `, c, g, tools.Default())
	c.Tools.Disable = nil
	c.URLScope.Allow = []string{"ftp://x"}
	fails("url_scope.allow: want a host", c, g, tools.Default())
	c.URLScope.Allow = nil
	b := tools.Default()
	if err := b.Disable("bash"); err != nil || b.Bash || !b.ReadFile {
		t.Errorf("%v, %+v", err, b)
	}
	if err := b.Disable("Bash"); err == nil {
		t.Error("a typo is taken")
	}
	if _, err := tools.Build(c, g, tools.Builtins{}); err != nil {
		t.Error(err)
	}
}
