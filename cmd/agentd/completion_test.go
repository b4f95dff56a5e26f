package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCompletion asks a real bash what it would complete.
func TestCompletion(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	script := shell{t: t}.says(false, "completion", "bash")
	for line, want := range map[string]string{
		"agentd ses": "sessions", "agentd sessions cr": "create", "agentd sessions create --drop": "--drop-tool-payloads",
		"agentd run --out": "--output", "agentd run --output ev": "events", "agentd run x.yaml --permissions acc": "acceptEdits",
		"agentd completion ": "--help", "agentd --url http://x turns li": "list", "agentd run --file mai": "main.go main_test.go", "agentd validate mai": "main.go main_test.go",
	} {
		words := strings.Split(line, " ")
		ask := fmt.Sprintf("%s\nCOMP_WORDS=(%s %q); COMP_CWORD=%d; _agentd; printf '%%s\\n' \"${COMPREPLY[@]}\"",
			script, strings.Join(words[:len(words)-1], " "), words[len(words)-1], len(words)-1)
		out, err := exec.CommandContext(t.Context(), bash, "-uc", ask).CombinedOutput()
		got := strings.Fields(string(out))
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q (%v), want %s", line, got, err, want)
		}
	}
	zsh := shell{t: t}.says(false, "completion", "zsh")
	if !strings.HasPrefix(zsh, "autoload -U +X bashcompinit && bashcompinit\n") || !strings.HasSuffix(zsh, script) {
		t.Errorf("for zsh: %.200s", zsh)
	}
	fish := shell{t: t}.says(false, "completion", "fish")
	contains(t, fish, "complete -c agentd -f -n '__fish_use_subcommand' -a run -d 'Run an agent of a file, and its tools.'\n",
		"-n '__fish_seen_subcommand_from sessions; and __fish_seen_subcommand_from create' -l drop-tool-payloads ", "-l output -x -a 'text json events'")
	_ = shell{t: t}.fails(exitUsage, "completion", "csh")
}
