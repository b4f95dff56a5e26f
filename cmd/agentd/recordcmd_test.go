package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What agentd has recorded is played after both conversions as it was, strictly too; another prompt is refused with exit
// code 1, and so is a call more than the file has.
func TestRecordConvert(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	agent := file(t, "{name: a, llm: {model: echo}}")
	s := shell{t: t, url: "http://127.0.0.1:1"}
	said := s.says(false, "run", "--local", "-o", "text", "--record-to", path("calls"), agent, "Good evening")
	s.says(false, "record", "convert", path("calls"), "-o", path("theirs"))
	theirs, err := os.ReadFile(path("theirs"))
	if err != nil || !strings.HasPrefix(string(theirs), `{"request":{"Model":"echo","Contents":[{`) {
		t.Fatalf("%s, %v", theirs, err)
	}
	if info, err := os.Stat(path("theirs")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, name := range []string{"calls", "theirs"} {
		for _, model := range []string{"echo", "gemini-2.5-flash"} { // no key is needed
			agent := file(t, "{name: a, llm: {model: "+model+"}}")
			if got := s.says(false, "run", "--local", "-o", "text", "--script", path(name), "--script-strict", agent, "Good evening"); got != said {
				t.Errorf("played %s: %q, was %q", name, got, said)
			}
		}
		contains(t, s.fails(exitError, "run", "--local", "-o", "text", "--script", path(name), "--script-strict", agent, "Good night"), "script: strict mismatch on turn 0: contents[0].parts[0].text", "Good night")
		two := file(t, "{name: both, sequential: {agents: [{name: a, llm: {model: echo}}, {name: b, llm: {model: echo}}]}}")
		contains(t, s.fails(exitError, "run", "--local", "-o", "text", "--script", path(name), two, "x"), "script exhausted at turn 1")
	}
	// Theirs in ours is played by its name, wherever the agent stands in its tree.
	if err := os.WriteFile(path("back.jsonl"), []byte(s.says(false, "record", "convert", path("theirs"))), 0o600); err != nil {
		t.Fatal(err)
	}
	named := file(t, "{name: other, sequential: {agents: [{name: a, llm: {model: 'scripted/back:strict'}}]}}")
	if got := s.says(false, "run", "--local", "-o", "text", "--scripts", dir, named, "Good evening"); got != said {
		t.Errorf("played by its name: %q", got)
	}
}

func TestRecordConvertRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, out := filepath.Join(dir, "empty"), filepath.Join(dir, "out")
	for _, name := range []string{empty, out} {
		if err := os.WriteFile(name, []byte("# nothing\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := shell{t: t}
	contains(t, s.fails(exitError, "record", "convert", empty, "-o", out), "no recorded model call")
	if kept, err := os.ReadFile(out); err != nil || string(kept) != "# nothing\n" {
		t.Errorf("the output is %q, %v", kept, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%d files, %v", len(left), err)
	}
	contains(t, s.fails(exitUsage, "record", "convert", filepath.Join(dir, "no")), "no such file")
	agent := file(t, "{name: a, llm: {model: echo}}")
	contains(t, s.fails(exitError, "run", "--local", "--script", empty, agent, "go"), "no recorded model call")
	contains(t, s.fails(exitError, "run", "--local", "--script-strict", agent, "go"), "--script-strict", "names none")
}
