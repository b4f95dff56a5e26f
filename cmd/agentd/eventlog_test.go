package main

import (
	"strings"
	"testing"
)

// TestEventLogFlags: each of them turns the event log on, and the path is that of the database.
func TestEventLogFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ data, err string }{
		"--eventlog --data /d":                                 {data: "/d"},
		"--session-db --data /d":                               {data: "/d"},
		"--session-db-path /d":                                 {data: "/d"},
		"--session-db-path /d/agentd.db":                       {data: "/d"},
		"--session-db-path /d/agentd.db --data /d/":            {data: "/d"},
		"--session-db-path /d/sessions.db":                     {err: "name /d/agentd.db"},
		"--session-db-path /d --data /e":                       {err: "leave out one of them"},
		"--session-db-path /d --store postgres://u@h/database": {err: "--eventlog is enough"},
	} {
		p := &process{env: map[string]string{"HOME": t.TempDir()}, args: append([]string{"serve"}, strings.Fields(line)...)}
		cmd, _, err := p.readAgain()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		cfg, err := cmd.config(p)
		switch {
		case want.err != "":
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: error %v, want %q", line, err, want.err)
			}
		case err != nil || !cfg.EventLog || cfg.DataDir != want.data:
			t.Errorf("%s: EventLog %v, DataDir %q, %v", line, cfg.EventLog, cfg.DataDir, err)
		}
	}
}
