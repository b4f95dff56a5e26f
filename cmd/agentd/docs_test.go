package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apzuk3/agentd/internal/agentfile"
)

// commandNames are the names of all commands, such as sessions list.
func commandNames(t *testing.T) []string {
	t.Helper()
	parser, err := (&process{}).parser()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, leaf := range parser.Model.Leaves(true) {
		name := leaf.Name
		for n := leaf.Parent; n != nil && n.Parent != nil; n = n.Parent {
			name = n.Name + " " + name
		}
		out = append(out, name)
	}
	return out
}

// TestCommandsInAPI: the tables of docs/api.md name each command, and no other.
func TestCommandsInAPI(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 {
			continue
		}
		for i, word := range strings.Split(cells[5], "`") {
			if i%2 == 1 {
				named = append(named, word)
			}
		}
	}
	commands := commandNames(t)
	slices.Sort(named)
	slices.Sort(commands)
	if diff := cmp.Diff(commands, named); diff != "" {
		t.Errorf("commands, and what docs/api.md names:\n%s", diff)
	}
}

// Helps are sentences, and every command that is a client has examples.
func TestHelp(t *testing.T) {
	for _, name := range commandNames(t) {
		out := shell{t: t}.says(false, append(strings.Fields(name), "--help")...)
		if !strings.HasPrefix(out, "Usage: agentd "+name) {
			t.Errorf("agentd %s --help begins with %.60q", name, out)
		}
		if name != "serve" && name != "healthcheck" && name != "version" && !strings.Contains(out, "\n    agentd "+name) {
			t.Errorf("agentd %s --help has no example:\n%s", name, out)
		}
	}
	parser, err := (&process{}).parser()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(true) {
		texts := []string{leaf.Help}
		for _, f := range leaf.Flags {
			texts = append(texts, f.Help)
			shown[f.Enum] = true
		}
		for _, a := range leaf.Positional {
			texts = append(texts, a.Help)
		}
		for _, text := range texts {
			shown[text] = true
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no sentence", leaf.Name, text)
			}
		}
	}
	for name, text := range helps {
		if !shown[text] {
			t.Errorf("no tag names the text %s", name)
		}
	}
}

// runPage runs the commands of a page in one shell, from the root of the
// repository. It returns the page and what they have printed.
func runPage(t *testing.T, name string, env ...string) (page, out string) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	blocks := strings.Split(string(text), "```")
	for i := 1; i < len(blocks); i += 2 {
		if code, ok := strings.CutPrefix(blocks[i], "sh\n"); ok {
			script.WriteString(code)
		}
	}
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asMain, self)
	if err := os.WriteFile(filepath.Join(bin, "agentd"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the page waits for things to happen
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "-euo", "pipefail", "-c", script.String())
	cmd.Dir = "../.."
	cmd.Env = slices.Concat(os.Environ(), []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "NO_PROXY=*", "GORACE=atexit_sleep_ms=0"}, env)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return string(text), string(printed)
}

// TestRecordPage runs the commands of docs/record.md.
func TestRecordPage(t *testing.T) {
	t.Parallel()
	_, out := runPage(t, "../../docs/record.md")
	contains(t, out, "\n2\n", "Hello from a tool", "Hello, Carol!", "ERROR_CODE_INVALID_REQUEST",
		`contents[0].parts[0].text: recorded "Say hi to Alice", got "Say hi to Bob"`,
		"equal, 1 turn, 6 records", `"equal":true,"turns":1,"records":6`)
}

// TestScriptsPage runs the commands of docs/scripts.md.
func TestScriptsPage(t *testing.T) {
	_, out := runPage(t, "../../docs/scripts.md")
	contains(t, out, "The tool says: Hello, Hal!", "You said \"Good evening\".")
}

// TestPage runs the commands of docs/cli.md, in one shell, against a daemon.
func TestPage(t *testing.T) {
	t.Parallel()
	d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:"})
	page, out := runPage(t, "../../docs/cli.md", "AGENTD_URL="+d.url, "XDG_DATA_HOME="+t.TempDir())
	contains(t, out, "greeter.yaml: ok", "Hello, Alice!", "Hello, Bob!", `"TURN_STATUS_SUCCEEDED"`, "Hello, Dora!", `"team":"search"`, `"SESSION_STATE_ARCHIVED"`, `"forkedFrom":"`,
		"enough for today", `"instruction":"Greet people`, `"toolName":"refund"`, "paid back", `"name":"scripted/demo"`, "\nOnly this line is on standard output\n", "Hello, Gus!", "Hello, Ann!", "\nAnd to Ben\n", "did you mean model?",
		`"key":"app:plan","value":"\"ship it\""`, `{"removed":["app:plan"]}`)
	// The file on the page is the example.
	_, shown, _ := strings.Cut(page, "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	onPage, err := agentfile.Parse("page", []byte(shown))
	if err != nil {
		t.Fatal(err)
	}
	example, err := agentfile.Read(examples + "greeter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example.Agent, onPage.Agent, protocmp.Transform()) + cmp.Diff(example.Tools, onPage.Tools, protocmp.Transform()); diff != "" {
		t.Errorf("the page's file is not greeter.yaml:\n%s", diff)
	}
	// Every command there is has its place on the page.
	for _, name := range commandNames(t) {
		if !strings.Contains(page, "agentd "+name) {
			t.Errorf("agentd %s is not on the page", name)
		}
	}
}
