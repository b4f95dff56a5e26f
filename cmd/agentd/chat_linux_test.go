package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/ttytest"
)

// talks is a model that says what it heard, slowly if it is asked to, and fails if it is asked to.
const talks = `answers:
  - {when: {user: slowly}, delay: 1h, text: "never"}
  - {when: {user: fail}, error: {kind: invalid, message: "no such luck"}}
  - {when: {step: 1, user: edit}, calls: [{name: edit_file, args: {path: sum.go, old_string: "total -= x", new_string: "total += x"}}]}
  - {when: {}, text: "Heard {{last_user}} in call {{call}}."}
`

// TestChatPiped: each line of an input is a turn of one session. What models say is alone on standard output; the last line
// of the rest says what was used; the project keeps what was said.
func TestChatPiped(t *testing.T) {
	t.Parallel()
	c := newCoder(t, talks, `{"version": 1, "model": "scripted/coder"}`)
	if err := os.MkdirAll(filepath.Join(c.dir, ".agents", "commands"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, ".agents", "commands", "greet.md"), []byte("Greet $ARGUMENTS, twice: $ARGUMENTS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := c.command("chat")
	cmd.Stdin = strings.NewReader("/compact\none\n\nfail\n/greet Al Bo\n/nope\n/help\n/session\n/mode\n/mode fast\n/compact names\n/quit\nnot read\n")
	var out, info bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &info
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &info)
	}
	if want := "Heard one in call 1.Heard Greet Al Bo, twice: Al Bo in call "; !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "not read") {
		t.Fatalf("said %q, want %q: %s", &out, want, &info)
	}
	contains(t, info.String(), "there is no session yet", "summarized before the next model call", "no such luck", "there is no command /nope", "/greet\n", "mode ask\n", "mode must be one of", c.session())
	lines := strings.Split(strings.TrimSpace(info.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "3 turn(s) · ↑") || !strings.HasSuffix(last, "(scripted/coder)") {
		t.Errorf("the last line is %q", last)
	}
	files, err := filepath.Glob(filepath.Join(c.dir, ".agents", "sessions", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("transcripts: %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version            int
		Model              string
		StartedAt, EndedAt time.Time
		Messages           []struct{ Role, Text string }
		Usage              struct{ Turns int }
	}
	if err := json.Unmarshal(data, &got); err != nil || got.Version != 1 || got.Model != "scripted/coder" || got.Usage.Turns != 3 || len(got.Messages) != 5 ||
		got.Messages[0].Text != "one" || got.Messages[1].Role != "assistant" || got.Messages[1].Text != "Heard one in call 1." {
		t.Errorf("%v: %s", err, data)
	}
}

// session is the id of the one session that there is.
func (c *coder) session() string {
	c.t.Helper()
	id, _ := c.lines("sessions", "list")[0]["id"].(string)
	return id
}

// TestChatOnce: -p runs one turn; its exit code says whether that has completed, or that the command line is wrong.
func TestChatOnce(t *testing.T) {
	t.Parallel()
	c := newCoder(t, talks, `{"version": 1}`)
	for _, row := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"chat", "coder.yaml", "-p", "hello"}, exitOK, "Heard hello in call 1."},
		{[]string{"chat", "coder.yaml", "-p", "fail"}, exitError, ""},
		{[]string{"chat", "-p", "hello"}, exitUsage, ""},
		{[]string{"chat", "gone.yaml", "-p", "hello"}, exitUsage, ""},
		{[]string{"chat", "coder.yaml", "--model", "echo"}, exitUsage, ""},
		{[]string{"chat", "--local", "-m", "echo", "-p", "hello"}, exitOK, "hello"},
	} {
		cmd := c.command(row.args...)
		var out, info bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &info
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != row.code || out.String() != row.out {
			t.Errorf("%q: %v, said %q: %s", row.args, err, &out, &info)
		}
	}
	session := c.session()
	cmd := c.command("chat", "--session", session, "-p", "and on")
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "Heard and on in call ") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestChatOnTerminal: a person sees calls and is asked about them, cancels a turn and goes on, and leaves by two interrupts.
func TestChatOnTerminal(t *testing.T) {
	t.Parallel()
	c := newCoder(t, talks, `{"version": 1}`)
	term := ttytest.Open(t)
	cmd := c.command("chat", "--plain", "coder.yaml")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	mark := 0
	says := func(line string, want ...string) {
		t.Helper()
		mark = term.Mark()
		term.Type(line)
		for _, w := range want {
			term.Await(mark, w)
		}
	}
	term.Await(0, "> ")
	says("one\n", "Heard one in call 1.", "> ")
	says("please edit\n", `→ edit_file(new_string="total += x"`, "edit_file asks: write ", "this [a]lways: ")
	says("y\n", `← edit_file(replacements=1, status="edited")`, "Heard please edit", "> ")
	if !strings.Contains(c.text("sum.go"), "+=") {
		t.Error("the file is not edited")
	}
	mark = term.Mark()
	term.Type("slowly\n")
	for range 200 { // until the turn runs
		if turns := c.lines("turns", "list"); len(turns) > 0 && turns[0]["status"] == "TURN_STATUS_RUNNING" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	term.Press(ctrlC)
	term.Await(mark, "press Ctrl+C again within 1s to exit")
	term.Await(mark, "stopped: ")
	term.Await(mark, "> ")
	says("still here\n", "Heard still here", "> ")
	mark = term.Mark()
	term.Type("first\nsecond\n") // typed ahead, it is the next turn
	term.Await(mark, "Heard first")
	term.Await(mark, "Heard second")
	says("/mode yolo\n", "mode yolo", "> ")
	time.Sleep(1100 * time.Millisecond) // the interrupt before was another one
	mark = term.Mark()
	term.Press(ctrlC)
	term.Await(mark, "press Ctrl+C again within 1s to exit")
	term.Press(ctrlC)
	term.Await(mark, "turn(s) · ")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestChatEnds: the end of the input leaves.
func TestChatEnds(t *testing.T) {
	t.Parallel()
	c := newCoder(t, talks, `{"version": 1}`)
	term := ttytest.Open(t)
	cmd := c.command("chat", "--plain", "coder.yaml")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	term.Await(0, "> ")
	term.Press("\x04")
	term.Await(0, "0 turn(s) · ↑0 ↓0 tokens · $— (scripted/coder)")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
