package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTest: agentd test compares with golden transcripts, writes them, and says by its exit code what came of it.
func TestTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	s := shell{t: t}
	said := func(code int, args ...string) string {
		t.Helper()
		s.stdout, s.stderr = nil, nil
		if got := s.run(append([]string{"test"}, args...)...); got != code {
			t.Errorf("agentd test %q: exit code %d, want %d: %s%s", args, got, code, s.stdout, s.stderr)
		}
		return s.stdout.String() + s.stderr.String()
	}
	write("a.yaml", "{name: a, llm: {model: gpt-5-mini}}")
	contains(t, said(exitUsage, path("a.yaml")), "a.yaml has no cases: write them to "+path("a.test.yaml"))
	write("a.test.yaml", "cases:\n  - {name: one, prompt: hi, answers: [{text: Hello}]}\n  - {name: two, prompt: ho, model: echo}\n")
	contains(t, said(exitError, path("a.yaml")), "FAIL  "+path("a.test.yaml")+": one (", "has no transcript of it: agentd test --update writes it", "2 of 2 cases have failed")

	contains(t, said(exitOK, path("a.yaml"), "--update"), "2 cases have passed")
	want := "=== one\n> hi\na: Hello\ncompleted\n\n=== two\n> ho\na: ho\ncompleted\n"
	if got := read("a.test.golden"); got != want {
		t.Errorf("the golden file is\n%s", got)
	}
	contains(t, said(exitOK, path("a.test.yaml"), path("a.yaml")), "ok    "+path("a.test.yaml")+": two (", "4 cases have passed")

	write("a.test.golden", strings.ReplaceAll(want, "Hello", "Hallo"))
	contains(t, said(exitError, path("a.yaml")), "-a: Hallo\n+a: Hello\n", "ok    "+path("a.test.yaml")+": two (", "1 of 2 cases have failed")
	contains(t, said(exitOK, path("a.yaml"), "--run", "^two$"), "1 cases have passed")
	contains(t, said(exitOK, path("a.yaml"), "--run", "^two$", "--update"), "1 cases have passed")
	if got := read("a.test.golden"); !strings.Contains(got, "Hallo") {
		t.Errorf("--run has changed another transcript:\n%s", got)
	}

	write("a.test.yaml", "cases:\n  - {name: two, prompt: ho, model: echo}\n")
	contains(t, said(exitError, path("a.yaml")), `there is no case "one" any more`)
	said(exitOK, path("a.yaml"), "--update")
	if got := read("a.test.golden"); got != "=== two\n> ho\na: ho\ncompleted\n" {
		t.Errorf("the golden file is\n%s", got)
	}

	write("a.test.yaml", "cases:\n  - {name: two, prompt: ho, answers: [{text: a}, {text: b}]}\n")
	contains(t, said(exitError, path("a.yaml"), "--update"), "answer 2 of a was not played", "1 of 1 cases have failed")
	contains(t, said(exitUsage, path("a.yaml"), "--run", "["), "--run: ")
	contains(t, said(exitUsage, path("a.yaml"), "--run", "nope"), "no case has such a name")
	write("a.test.golden", "text\n")
	contains(t, said(exitUsage, path("a.yaml")), "a.test.golden:1:1: want === NAME")
	write("a.yaml", "{name: a, llm: {model: echo, tool_names: [nope]}}")
	contains(t, said(exitUsage, path("a.yaml")), "nope")
}

// TestExampleCases: the cases of the examples pass.
func TestExampleCases(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(examples + "tests/*.test.yaml")
	if err != nil || len(names) < 2 {
		t.Fatalf("found %v, %v", names, err)
	}
	shell{t: t}.says(false, append([]string{"test"}, names...)...)
}
