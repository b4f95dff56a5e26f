package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What operators do with agents that a daemon keeps.
func TestAgentsCommands(t *testing.T) {
	s, greeter := startShell(t, quick), examples+"greeter.yaml"
	text, err := os.ReadFile(greeter)
	if err != nil {
		t.Fatal(err)
	}
	warm := filepath.Join(t.TempDir(), "warm.yaml")
	if err := os.WriteFile(warm, []byte(strings.Replace(string(text), "Greet people", "Warmly greet people", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, s.says(true, "agents", "apply", "--dry-run", greeter), "greeter would be version 1")
	if got := s.says(true, "agents", "list"); got != "nothing\n" {
		t.Errorf("a dry run has left %q", got)
	}
	contains(t, s.says(true, "agents", "apply", greeter), "greeter is version 1 now")
	contains(t, s.says(true, "agents", "apply", greeter), "greeter is version 1 already")
	contains(t, s.fails(exitError, "agents", "apply", "--version", "0", greeter), "CONFLICT", "version 1, not 0")
	pinned, _ := s.lines("sessions", "create", "--agent", "greeter")[0]["id"].(string)
	contains(t, s.says(true, "sessions", "show", pinned), "agent       greeter@1")

	differs := func(args ...string) string {
		t.Helper()
		s.stdout, s.stderr = nil, nil
		if code := s.run(append([]string{"agents", "diff"}, args...)...); code != exitError {
			t.Errorf("diff %q exits with %d: %s", args, code, s.stderr)
		}
		return s.stdout.String()
	}
	if out := differs("greeter", warm); !strings.Contains(out, `-      "instruction": "Greet people`) || !strings.Contains(out, `+      "instruction": "Warmly greet`) {
		t.Errorf("differs in %q", out)
	}
	if got := s.says(true, "agents", "diff", "greeter", greeter); got != "" {
		t.Errorf("differs from itself in %q", got)
	}
	if got := s.lines("agents", "apply", "--version", "1", "--metadata", `{"team":"a"}`, warm)[0]; got["created"] != true {
		t.Errorf("applied %v", got)
	}
	for _, refs := range [][]string{{"greeter@2"}, {"greeter@1", "greeter"}} {
		contains(t, differs(refs...), `+      "instruction": "Warmly greet`, `+    "team": "a"`)
	}
	list := s.lines("agents", "list", "greeter")
	if len(list) != 2 || list[0]["version"] != "2" || list[1]["version"] != "1" {
		t.Fatalf("versions %v", list)
	}
	hash, _ := list[1]["contentHash"].(string)
	contains(t, s.says(true, "agents", "show", "greeter@"+hash[:8]), "version        1", "hash           "+hash, `"instruction": "Greet people`)
	contains(t, s.says(true, "agents", "list"), "AGENT", "greeter", hash[:0]+"local", "active")

	for ref, says := range map[string]string{"greeter": "Warmly", "greeter@1": "Greet people", "greeter@" + hash[:12]: "Greet people"} {
		s.stdout, s.stderr = nil, nil
		if code := s.run("run", "--agent", ref, greeter, "Say hi to Alice"); code != exitOK {
			t.Fatalf("%s: %s", ref, s.stderr)
		}
		id := sessionOf(t, s.stderr.String())
		contains(t, s.says(true, "turns", "calls", id), says)
	}
	s.stdout, s.stderr = nil, nil
	if code := s.run("run", "--session", pinned, greeter, "Say hi to Bob"); code != exitOK {
		t.Errorf("in its session: %s", s.stderr)
	}
	for says, args := range map[string][]string{
		"--agent does not go with":  {"run", "--agent", "greeter", "--model", "echo", "hi"},
		"keeps none":                {"run", "--local", "--agent", "greeter", "hi"},
		"names no agent":            {"agents", "show", "greeter@x"},
		"are for one FILE":          {"agents", "apply", "--name", "x", greeter, warm},
		"name what to compare with": {"agents", "diff", "greeter"},
		"give --yes":                {"agents", "delete", "greeter"},
	} {
		contains(t, s.fails(exitUsage, args...), says)
	}
	contains(t, s.fails(exitError, "run", "--agent", "nobody", "hi"), "NOT_FOUND")
	contains(t, s.says(true, "agents", "archive", "greeter"), "archived greeter")
	contains(t, s.fails(exitError, "run", "--agent", "greeter", "hi"), "archived")
	contains(t, s.says(true, "agents", "list", "--archived"), "archived")
	contains(t, s.says(true, "agents", "delete", "--yes", "greeter"), "deleted greeter")
	contains(t, s.fails(exitError, "agents", "show", "greeter"), "NOT_FOUND")
}
