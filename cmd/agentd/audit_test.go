package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestAuditTrail reads the trail beside a daemon in a process of its own.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := binary(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": dir})
	if code, out, errs := agentd(t, "run", "--url", d.url, "--model", "echo", "hi"); code != exitOK {
		t.Fatalf("run: %d, %s%s", code, out, errs)
	}
	if code, _, errs := agentd(t, "keys", "create", "ops", "--tenant", "acme", "--data", dir); code != exitOK {
		t.Fatalf("create: %d, %s", code, errs)
	}
	list := func(args ...string) (lines []auditLine) {
		code, out, errs := agentd(t, append([]string{"audit", "--data", dir}, args...)...)
		if code != exitOK {
			t.Fatalf("audit: %d, %s", code, errs)
		}
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var line auditLine
			if err := dec.Decode(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		return lines
	}
	await(t, "three entries", func() bool { return len(list()) == 3 })
	all := list("--since", "1h")
	byAction := map[string]auditLine{}
	for _, line := range all {
		byAction[line.Action] = line
	}
	ran, made := byAction["SessionService.CreateTurn"], byAction["keys.create"]
	if ran.Principal != "local" || ran.Session == "" || ran.Turn == "" || ran.Outcome != "ok" || !strings.HasPrefix(ran.From, "127.0.0.1:") {
		t.Errorf("the run: %+v", ran)
	}
	if made.Tenant != "acme" || made.Subject == "" || made.From != "local" {
		t.Errorf("the key: %+v", made)
	}
	for name, tt := range map[string]struct {
		args []string
		want int
	}{
		"a session":       {[]string{"--session", ran.Session}, 2},
		"a caller":        {[]string{"--principal", "local"}, 2},
		"a tenant":        {[]string{"--tenant", "acme"}, 1},
		"no tenant":       {[]string{"--tenant", ""}, 2},
		"later":           {[]string{"--since", time.Now().Add(time.Hour).Format(time.RFC3339)}, 0},
		"behind the last": {[]string{"--after", "3"}, 0},
	} {
		if got := list(tt.args...); len(got) != tt.want {
			t.Errorf("of %s: %+v, want %d", name, got, tt.want)
		}
	}
	if code, _, errs := agentd(t, "audit", "--data", dir, "--since", "yesterday"); code != exitUsage || !strings.Contains(errs, "yesterday") {
		t.Errorf("a wrong time: %d, %s", code, errs)
	}
	if table := (shell{t: t}).says(true, "audit", "--data", dir); strings.Count(table, "\n") != 4 || !strings.Contains(table, "keys.create") {
		t.Errorf("the table is %s", table)
	}
}
