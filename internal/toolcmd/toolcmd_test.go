//go:build unix

package toolcmd_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/internal/toolcmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool.sh"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		args   []string // in place of the script
		want   string
		err    string
	}{
		"input":           {script: "cat\n", want: `{"a":1}`},
		"line ends":       {script: "echo hello; echo; echo\n", want: "hello"},
		"no input read":   {script: "echo done\n", want: "done"},
		"arguments":       {args: []string{"printf", "%s|", "$HOME", "a b", "*"}, want: "$HOME|a b|*|"},
		"environment":     {script: "echo $CALL\n", want: "c1"},
		"not UTF-8":       {args: []string{"printf", `\377x`}, want: "\uFFFDx"},
		"exit code":       {script: "echo ignored; echo wrong key >&2; exit 3\n", err: "the tool failed: exit status 3: wrong key"},
		"signal":          {script: "kill -9 $$\n", err: "the tool failed: signal: killed"},
		"long error":      {script: "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1\n", err: "line 2999"},
		"too much":        {args: []string{"yes"}, err: "more than 1048576 bytes"},
		"no such program": {args: []string{"no-such-program"}, err: `there is no program "no-such-program"`},
		"no such file":    {args: []string{"./none.sh"}, err: `there is no program "./none.sh"`},
		"not executable":  {args: []string{"/dev/null"}, err: "cannot be run"},
		"nothing":         {args: []string{}, err: "has no command"},
	} {
		t.Run(name, func(t *testing.T) {
			c := toolcmd.Command{Args: tc.args, Env: []string{"CALL=c1"}}
			if c.Args == nil {
				c.Base, c.Args = script(t, tc.script), []string{"./tool.sh"}
			}
			got, err := toolcmd.Run(t.Context(), c, `{"a":1}`)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
			if err != nil && len(err.Error()) > 5000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// Programs get the environment without keys of providers and secrets of agentd; a
// file may pass them on purpose.
func TestEnvironment(t *testing.T) {
	kept := []string{"PATH", "HOME", "WEATHER_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "OPENAI_BASE_URL", "AGENTD_LOG_LEVEL", "AGENTD_URL", "AGENTD_DATA"}
	dropped := []string{
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_API_KEY", "openai_api_key", "OPENAI_ADMIN_KEY",
		"AZURE_OPENAI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "AGENTD_TLS_KEY", "AGENTD_AUTH_TOKEN", "AGENTD_DB_PASSWORD",
	}
	t.Setenv("AGENTD_URL", "http://127.0.0.1:8080")
	for _, name := range slices.Concat(kept, dropped) {
		if os.Getenv(name) == "" {
			t.Setenv(name, "canary of "+name)
		}
	}
	run := func(pass ...string) string {
		out, err := toolcmd.Run(t.Context(), toolcmd.Command{Args: []string{"env"}, Env: []string{"AGENTD_TOOL_CALL_ID=c1"}, Pass: pass}, "{}")
		if err != nil {
			t.Fatal(err)
		}
		return "\n" + out
	}
	out := run()
	for _, name := range append(kept, "AGENTD_TOOL_CALL_ID") {
		if !strings.Contains(out, "\n"+name+"=") {
			t.Errorf("%s is not passed", name)
		}
	}
	for _, name := range dropped {
		if strings.Contains(out, "\n"+name+"=") || strings.Contains(out, "canary of "+name) {
			t.Errorf("%s is passed", name)
		}
	}
	if out := run("OPENAI_API_KEY"); !strings.Contains(out, "\nOPENAI_API_KEY=canary") || strings.Contains(out, "ANTHROPIC_API_KEY") {
		t.Errorf("passed on purpose: %s", out)
	}
	t.Setenv("AGENTD_URL", "http://user:secret@127.0.0.1:8080")
	if strings.Contains(run(), "AGENTD_URL") {
		t.Error("a URL with a password is passed")
	}
}

// Output that grows when it is made UTF-8 keeps to the limit.
func TestOutputGrows(t *testing.T) {
	_, err := toolcmd.Run(t.Context(), toolcmd.Command{Args: []string{"sh", "-c", `yes x | head -c 600000 | tr '\n' '\377'`}}, "{}")
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

// A relative folder works from wherever the program is.
func TestRelativeBase(t *testing.T) {
	dir := script(t, "pwd\n")
	t.Chdir(filepath.Dir(dir))
	got, err := toolcmd.Run(t.Context(), toolcmd.Command{Args: []string{"./tool.sh"}, Base: filepath.Base(dir)}, "{}")
	if err != nil || got != filepath.Dir(dir) {
		t.Errorf("ran in %q, %v; want the current folder", got, err)
	}
}

// A tool that is not wanted any more is killed with all that it has started.
func TestKilled(t *testing.T) {
	dir := script(t, "(echo up; exec sleep 1000) > \"$1\" & wait\n")
	fifo := filepath.Join(dir, "up")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("not wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := toolcmd.Run(ctx, toolcmd.Command{Args: []string{"./tool.sh", fifo}, Base: dir}, "{}")
		done <- err
	}()
	in, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r := bufio.NewReader(in)
	if line, err := r.ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	// The end of the pipe comes when the last process that writes to it is gone.
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestTimeout(t *testing.T) {
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	_, err := toolcmd.Run(ctx, toolcmd.Command{Args: []string{"sleep", "1000"}}, "{}")
	if !errors.Is(err, late) {
		t.Errorf("got %v", err)
	}
}
