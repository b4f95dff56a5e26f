package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apzuk3/agentd/internal/test/ttytest"
)

const ctrlC = "\x03"

// onTerminal runs a command in a process of its own whose terminal the test holds.
func onTerminal(t *testing.T, term *ttytest.Terminal, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0", "AGENTD_URL="+url, "NO_COLOR=1", "TERM=xterm")
	term.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// fifo is a pipe by name: what has it open for writing says that it is up, and its end
// that it is gone.
func fifo(t *testing.T) (name string, up, gone func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	var r *bufio.Reader
	up = func() {
		in, err := os.Open(name) // returns when the tool has it open, too
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() })
		r = bufio.NewReader(in)
		if got, err := r.ReadString('\n'); got != "up\n" {
			t.Fatal(got, err)
		}
	}
	gone = func() {
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end", err)
		}
	}
	return name, up, gone
}

// A line that was typed for a question that somebody else has answered approves
// nothing: the next call waits for its own.
func TestTypedAheadOnTerminal(t *testing.T) {
	s := startShell(t, map[string]string{"twice": `answers:
  - {when: {step: 1}, calls: [{name: pay, args: {amount: 1}}]}
  - {when: {step: 2}, calls: [{name: pay, args: {amount: 1000}}]}
  - {when: {}, text: 'At last: {{tool_result "pay"}}.'}
`})
	name := file(t, "agent: {name: a, llm: {model: scripted/twice, tool_names: [pay]}}\n"+
		"tools: [{name: pay, description: Pays, command: [cat], needs_approval: true}]\n")
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, s.url, "run", name, "go")
	term.Await(0, "dit the arguments: ")
	first := s.lines("interactions", "list")[0]
	session, id := first["sessionId"].(string), first["id"].(string)
	term.Type("y") // somebody else is faster
	mark := term.Mark()
	s.says(false, "interactions", "resolve", session, id, "deny", "too much")
	term.Await(mark, "answered elsewhere")
	term.Await(mark, `{"amount":1000}`)
	term.Await(mark, "dit the arguments: ")
	mark = term.Mark()
	term.Press("\n")
	term.Await(mark, "Please answer y, n or e: ")
	if open := s.lines("interactions", "list"); len(open) != 1 || open[0]["id"] == id {
		t.Fatalf("open are %v", open)
	}
	term.Press("n\n")
	term.Await(mark, "Why?")
	term.Press("not that much\n")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, term.Screen())
	}
	term.Await(mark, ", session ") // the last line
	contains(t, term.Screen(), "At last: ", "not that much")
}

// Ctrl-C at a prompt cancels the turn, and says nothing of somebody else.
func TestInterruptAtPrompt(t *testing.T) {
	s := startShell(t, nil)
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, s.url, "run", examples+"refund.yaml", "Refund 30 dollars")
	term.Await(0, "dit the arguments: ")
	term.Press(ctrlC)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("ended with %v", err)
	}
	term.Await(0, ", session ")
	contains(t, term.Screen(), "^C\r\nagentd: canceling the turn; interrupt again to leave it\r\n", "stopped: interrupted at the terminal")
	if strings.Contains(term.Screen(), "elsewhere") {
		t.Errorf("shown %q", term.Screen())
	}
}

// Whoever closes the terminal ends the command and all that its tools have started.
// The turn continues without it.
func TestHangUp(t *testing.T) {
	heedHangUps(t)
	s := startShell(t, nil)
	name, up, gone := fifo(t)
	slow := file(t, "agent: {name: a, llm: {model: scripted/demo, tool_names: [slow]}}\n"+
		"tools: [{name: slow, description: Slow, command: [sh, -c, '(echo up; exec sleep 1000) >\"$0\" & wait', '"+name+"']}]\n")
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, s.url, "run", slow, "go")
	up()
	term.Close()
	gone()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	turn := s.lines("turns", "list")[0]
	if status := turn["status"]; status != "TURN_STATUS_RUNNING" && status != "TURN_STATUS_WAITING_FOR_CLIENT" {
		t.Errorf("the turn is %v", status)
	}
	s.says(false, "turns", "cancel", turn["sessionId"].(string))
}

// A server on a terminal reloads by SIGHUP while the terminal is there, and stops when that closes.
func TestServeOnTerminal(t *testing.T) {
	heedHangUps(t)
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, "", "serve", "--addr=127.0.0.1:0", "--admin-addr=off", "--data=:memory:")
	term.Await(0, "msg=serving")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	term.Await(0, "the configuration was reloaded")
	term.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// heedHangUps has the commands that a test starts take SIGHUP: under nohup they would
// ignore it, as the test does.
func heedHangUps(t *testing.T) {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangUps) })
}

// A prompt that is being read can be interrupted.
func TestInterruptWhileReading(t *testing.T) {
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, "http://127.0.0.1:1", "run", examples+"greeter.yaml", "-")
	term.Await(0, "end it with Ctrl-D")
	term.Type("Say hi\n")
	term.Press(ctrlC)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("ended with %v", err)
	}
	term.Await(0, "agentd: read the prompt: interrupted (interrupt)")

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	piped := shell{t: t, url: "http://127.0.0.1:1", stdin: r, signals: make(chan os.Signal, 1)}
	piped.signals <- syscall.SIGTERM
	contains(t, piped.fails(exitError, "run", examples+"greeter.yaml", "-"), "interrupted (terminated)")
}

// The spinner says what the turn waits for, and is gone after a signal.
func TestSpinnerOnTerminal(t *testing.T) {
	t.Parallel()
	s := startShell(t, nil)
	slow := file(t, "agent: {name: a, llm: {model: scripted/demo, tool_names: [slow]}}\n"+
		"tools: [{name: slow, description: Slow, command: [sleep, '1000']}]\n")
	term := ttytest.Open(t)
	cmd := onTerminal(t, term, s.url, "run", slow, "go")
	term.Await(0, " waiting for slow, 1s")
	mark := term.Mark()
	term.Press(ctrlC)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("ended with %v", err)
	}
	term.Await(mark, ", session ")
	// Each line begins where the spinner was erased, if it was there.
	for l := range strings.Lines(term.Screen()) {
		shown := l[strings.LastIndex(l, "\r\x1b[K")+1:]
		if strings.Contains(shown, "waiting for slow") {
			t.Errorf("the spinner is left in %q", l)
		}
	}
}

// Only people at a terminal that can move its cursor have a spinner.
func TestSpinnerForPeople(t *testing.T) {
	for name, tc := range map[string]struct {
		stdout, stderr bool
		cmd            runCmd
		term           string
		want           bool
	}{
		"a terminal":         {true, true, runCmd{}, "xterm", true},
		"no TERM":            {true, true, runCmd{}, "", true},
		"the answer alone":   {false, true, runCmd{Output: "text"}, "xterm", true},
		"a dumb terminal":    {true, true, runCmd{}, "dumb", false},
		"messages elsewhere": {true, false, runCmd{}, "xterm", false},
		"output elsewhere":   {false, true, runCmd{}, "xterm", false},
		"--json":             {true, true, runCmd{daemonFlags: daemonFlags{JSON: true}}, "xterm", false},
		"-o json":            {true, true, runCmd{Output: "json"}, "xterm", false},
		"-o events":          {true, true, runCmd{Output: "events"}, "xterm", false},
	} {
		p := &process{env: map[string]string{"TERM": tc.term}, stdout: io.Discard, stderr: io.Discard}
		p.tty.stdout, p.tty.stderr = tc.stdout, tc.stderr
		s := tc.cmd.spinner(p, &task{})
		if s != nil {
			s.Close()
		}
		if (s != nil) != tc.want {
			t.Errorf("%s: a spinner is there: %v", name, s != nil)
		}
	}
}
