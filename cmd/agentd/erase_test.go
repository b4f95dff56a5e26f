package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestExportAndErase writes and erases what a user has, beside a daemon that runs, then what a tenant has, without one.
func TestExportAndErase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": dir})
	say := func(args ...string) string {
		t.Helper()
		code, out, errs := agentd(t, append(args, "--data", dir)...)
		if code != exitOK {
			t.Fatalf("%q: %d, %s%s", args, code, out, errs)
		}
		return out
	}
	agent := file(t, "agent: {name: a, llm: {model: echo}}")
	runAs := func(name, tenant, prompt string) {
		t.Helper()
		key := strings.TrimSpace(say("keys", "create", name, "--tenant", tenant))
		code, out, errs := command(t, map[string]string{"AGENTD_API_KEY": key}, "run", "--url", d.url, agent, prompt)
		if code != exitOK {
			t.Fatalf("run as %s: %d, %s%s", name, code, out, errs)
		}
	}
	runAs("ann", "acme", "the secret of Ann")
	runAs("ben", "acme", "the secret of Ben")
	runAs("ann", "umbrella", "the secret of another Ann")
	all := func(args ...string) string { return say(append([]string{"export"}, append(args, "-")...)...) }
	const ann, ben, other = "the secret of Ann", "the secret of Ben", "the secret of another Ann"
	for _, tt := range []struct {
		args       []string
		has, lacks []string
	}{
		{[]string{"--tenant", "acme"}, []string{ann, ben}, []string{other}},
		{[]string{"--tenant", "acme", "--user", "ann"}, []string{ann}, []string{ben, other}},
		{[]string{"--tenant", "umbrella"}, []string{other}, []string{ann, ben}},
		{[]string{"--tenant="}, nil, []string{ann, ben, other}},
	} {
		got := all(tt.args...)
		for _, text := range tt.has {
			if !strings.Contains(got, text+`"`) {
				t.Errorf("the export of %q lacks %q", tt.args, text)
			}
		}
		for _, text := range tt.lacks {
			if strings.Contains(got, text+`"`) {
				t.Errorf("the export of %q has %q", tt.args, text)
			}
		}
		for line := range strings.Lines(got) {
			var of struct{ Kind string }
			if err := json.Unmarshal([]byte(line), &of); err != nil || of.Kind == "" {
				t.Errorf("line %q: %v", line, err)
			}
		}
	}
	if out := say("erase", "--tenant", "acme", "--user", "ann"); !strings.HasPrefix(out, "1 sessions would") || !strings.Contains(all("--tenant", "acme"), ann) {
		t.Errorf("without --yes: %s", out)
	}
	if out := say("erase", "--tenant", "acme", "--user", "ann", "--yes", "--trail"); !strings.HasPrefix(out, "erased 1 sessions, 0 shared keys, 1 API keys, 0 agents, 0 objects, 2 entries") {
		t.Errorf("erased by the daemon: %s", out)
	}
	if got := all("--tenant", "acme"); strings.Contains(got, ann) || strings.Contains(got, `"ann"`) || !strings.Contains(got, ben) {
		t.Errorf("after the erasure of Ann: %s", got)
	}
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != exitOK {
		t.Fatalf("the daemon exits with %d: %s", code, d.log)
	}
	if out := say("erase", "--tenant", "acme", "--yes", "--json"); !strings.Contains(out, "erased 1 sessions") {
		t.Errorf("erased without a daemon: %s", out)
	}
	if got := all("--tenant", "acme"); strings.Contains(got, ben) || !strings.Contains(all("--tenant", "umbrella"), other) {
		t.Errorf("after the erasure of the tenant: %s", got)
	}
	for _, text := range []string{ann, ben} {
		for _, name := range []string{"agentd.db", "agentd.db-wal"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if strings.Contains(string(data), text+`"`) {
				t.Errorf("%s still has %q", name, text)
			}
		}
	}
	code, _, errs := agentd(t, "export", "--data", dir, "-")
	if code != exitUsage || !strings.Contains(errs, "--tenant is missing") {
		t.Errorf("nobody's: %d, %s", code, errs)
	}
}
