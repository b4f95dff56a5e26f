package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// locally makes a command of a process of its own, with a data folder in home.
func locally(t *testing.T, home string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], append([]string{"run", "--local"}, args...)...)
	cmd.Env = []string{asMain + "=1", "GORACE=atexit_sleep_ms=0", "XDG_DATA_HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_PROXY=*"}
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// outputOf runs a command to its end and returns what it says.
func outputOf(t *testing.T, home string, args ...string) string {
	t.Helper()
	cmd, stdout, stderr := locally(t, home, args...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("agentd run --local %q: %v: %s", args, err, stderr)
	}
	return stdout.String()
}

// A local session is made by the command that names it first, and later commands
// continue it: its last tree is there. Each folder has its own sessions.
func TestLocalSession(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	cmd, _, stderr := locally(t, home, "--session", "notes", "anybody?")
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "agent is missing: session \"notes\" has not run a tree yet") {
		t.Errorf("a session that is not there and gets no agent: %v: %s", err, stderr)
	}
	if got := outputOf(t, home, "--session", "notes", "-o", "text", "-m", "echo", "one"); got != "one\n" {
		t.Errorf("the first command says %q", got)
	}
	contains(t, outputOf(t, home, "--session", "notes", "-o", "json", "two"), `"sessionId":"notes"`, `"outputText":"two"`)
	if got := outputOf(t, home, "--attach", "notes", "-o", "text"); got != "two\n" {
		t.Errorf("who attaches gets %q", got)
	}
	if _, err := os.Stat(filepath.Join(home, "agentd", "local", "agentd.db")); err != nil {
		t.Error(err)
	}
	cmd, _, stderr = locally(t, home, "--data", filepath.Join(home, "other"), "--session", "notes", "three")
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "agent is missing: session \"notes\" has not run a tree yet") {
		t.Errorf("another folder has the session: %v: %s", err, stderr)
	}
	// Without a session nothing is kept, but where --data says so.
	bare := t.TempDir()
	outputOf(t, bare, "-m", "echo", "one")
	if left, err := os.ReadDir(bare); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", err, left)
	}
	cmd, _, stderr = locally(t, bare, "--data", filepath.Join(bare, "kept"), "-m", "echo", "-o", "text", "one")
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr)
	}
	if got := outputOf(t, bare, "--data", filepath.Join(bare, "kept"), "--attach", sessionOf(t, stderr.String()), "-o", "text"); got != "one\n" {
		t.Errorf("who attaches gets %q", got)
	}
}

// Of two commands on one folder the second is refused, with words. A turn that was
// left continues with the next command.
func TestLocalFolderInUse(t *testing.T) {
	home := t.TempDir()
	name, up, gone := fifo(t)
	marker := filepath.Join(home, "marker")
	slow := file(t, "agent: {name: a, llm: {model: scripted/demo, tool_names: [slow]}}\n"+
		"tools: [{name: slow, description: Slow, command: [sh, -c, 'test -e \"$1\" && echo at last && exit; : >\"$1\"; (echo up; exec sleep 1000) >\"$0\" & wait', '"+name+"', '"+marker+"']}]\n")
	first, _, said := locally(t, home, "--session", "notes", slow, "go")
	heedHangUps(t)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill() })
	up()
	second, _, stderr := locally(t, home, "--session", "other", "-m", "echo", "hi")
	if err := second.Run(); second.ProcessState.ExitCode() != exitError {
		t.Errorf("the second command ended with %v", err)
	}
	contains(t, stderr.String(), "the folder of local sessions is "+filepath.Join(home, "agentd", "local"), "--data names another one", "database is in use: another agentd holds")
	if err := first.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	gone()
	if err := first.Wait(); first.ProcessState.ExitCode() != exitError {
		t.Errorf("the first command ended with %v", err)
	}
	contains(t, said.String(), "To follow it: agentd run --local --attach notes "+slow)
	contains(t, outputOf(t, home, "--attach", "notes", "-o", "text", slow), "The tool slow says: at last")
}
