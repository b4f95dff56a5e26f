// Package deploy_test checks what deploy/ ships with the libraries that read it (Compose's, Kubernetes') and with the
// binary that it starts, which scripts/deploy builds.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the repository.
const root = "../.."

var binary = flag.String("agentd", "", "path of the agentd binary; scripts/deploy sets it")

// streamsEnd is how long streams may take to end once the grace of model calls is over, see docs/operations.md.
const streamsEnd = 2 * time.Second

// setting is a line of `agentd config --json`.
type setting struct{ Key, Value, Source string }

// effective is what `agentd serve ARGS` would run with, in an environment of env alone.
func effective(t *testing.T, args []string, env map[string]string) map[string]setting {
	t.Helper()
	if *binary == "" {
		t.Fatal("-agentd names no binary: run scripts/deploy")
	}
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("the command is %q, want serve", args)
	}
	run := func(more ...string) []byte {
		cmd := exec.CommandContext(t.Context(), *binary, slices.Concat([]string{"config"}, args[1:], more)...)
		cmd.Env = []string{}
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
		}
		return out
	}
	run("--check")
	settings := map[string]setting{}
	for line := range bytes.Lines(run("--json")) {
		var s setting
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		settings[s.Key] = s
	}
	return settings
}

// closed fails if whoever reaches the server is its operator, or if it is stopped before it has ended.
func closed(t *testing.T, settings map[string]setting, kill time.Duration) {
	t.Helper()
	if v := settings["insecure"].Value; v != "" && v != "false" {
		t.Errorf("insecure is %q, want authentication on", v)
	}
	grace, err := time.ParseDuration(settings["shutdown_grace"].Value)
	if err != nil {
		t.Fatal(err)
	}
	if kill < grace+streamsEnd {
		t.Errorf("the process is killed after %v, want at least %v after its grace of %v", kill, streamsEnd, grace)
	}
}

// knownVariables fails for a variable that agentd does not read.
func knownVariables(t *testing.T, settings map[string]setting, names []string) {
	t.Helper()
	for _, name := range names {
		key := strings.ToLower(strings.TrimPrefix(name, "AGENTD_"))
		if _, ok := settings[key]; !ok && name != "AGENTD_CONFIG" {
			t.Errorf("the variable %s is no setting of agentd", name)
		}
	}
}

// dockerfile returns the operands of an instruction of the image's stage, one a line.
func dockerfile(t *testing.T, instruction string) []string {
	t.Helper()
	_, stage, ok := strings.Cut(read(t, "Dockerfile"), "\nFROM scratch\n")
	if !ok {
		t.Fatal("Dockerfile has no stage from scratch")
	}
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(stage, -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("Dockerfile has no %s", instruction)
	}
	return found
}

// imageEnv is the environment that the image sets.
func imageEnv(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, line := range dockerfile(t, "ENV") {
		for pair := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
	}
	return env
}

// imageUser is the user of the image, UID:GID.
func imageUser(t *testing.T) string {
	t.Helper()
	return dockerfile(t, "USER")[0]
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
