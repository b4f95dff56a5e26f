package deploy_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unit returns the values of each key of the service, in order; those that are commented out too, under "#KEY".
func unit(t *testing.T) map[string][]string {
	t.Helper()
	keys := map[string][]string{}
	for line := range strings.SplitSeq(read(t, "deploy/agentd.service"), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.Contains(key, " ") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	keys := unit(t)
	one := func(key string) string {
		if len(keys[key]) != 1 {
			t.Fatalf("%s is %q, want it once", key, keys[key])
		}
		return keys[key][0]
	}
	command := strings.Fields(one("ExecStart"))
	if command[0] != "/usr/local/bin/agentd" {
		t.Errorf("ExecStart is %q", command)
	}
	env := map[string]string{}
	for _, pair := range keys["Environment"] {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = strings.ReplaceAll(value, "%S", "/var/lib")
	}
	settings := effective(t, command[1:], env)
	kill, err := time.ParseDuration(one("TimeoutStopSec") + "s")
	if err != nil {
		t.Fatal(err)
	}
	closed(t, settings, kill)
	if got, want := settings["data"].Value, "/var/lib/"+one("StateDirectory"); got != want {
		t.Errorf("the data is in %s, the unit's folder is %s", got, want)
	}
	if one("User") == "root" || one("Restart") != "on-failure" || one("ExecReload") != "kill -HUP $MAINPID" {
		t.Errorf("User %s, Restart %s, ExecReload %s", one("User"), one("Restart"), one("ExecReload"))
	}
	names := []string{}
	for _, pair := range keys["#Environment"] {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	if len(names) != len(keys["#LoadCredential"]) || len(names) == 0 {
		t.Errorf("%q for %q, want a variable for each credential", names, keys["#LoadCredential"])
	}
	knownVariables(t, settings, names)
}

// TestSystemdKnowsTheUnit asks systemd itself, where it is installed.
func TestSystemdKnowsTheUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze: the names of the unit's keys were not checked")
		return
	}
	path := filepath.Join(t.TempDir(), "agentd.service")
	text := strings.ReplaceAll(read(t, "deploy/agentd.service"), "/usr/local/bin/agentd", *binary)
	for _, key := range []string{"LoadCredential", "Environment"} { // those that are commented out
		text = strings.ReplaceAll(text, "\n#"+key, "\n"+key)
	}
	write(t, path, text)
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), path) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
