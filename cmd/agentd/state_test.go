package main

import (
	"fmt"
	"strings"
	"testing"
)

// An operator lists the state that sessions share, page by page, and removes keys of it.
func TestStateCommands(t *testing.T) {
	s := startShell(t, quick)
	one := file(t, "name: a\nllm: {model: scripted/quick}\n")
	if got := s.says(true, "state", "list"); got != "nothing\n" {
		t.Errorf("at first there is %q", got)
	}
	args := []string{"run", one, "go", "-s", "user:name=Ada", "-s", "app:plan={\"steps\": 2}", "-s", "own=1", "-s", "app:bell=\a"}
	for i := range 120 { // more than a page
		args = append(args, "-s", fmt.Sprintf("app:k%03d=%d", i, i))
	}
	s.says(true, args...)

	table := s.says(true, "state", "list", "--limit", "1000")
	rows := strings.Split(table, "\n")
	if len(rows) != 125 || strings.Contains(table, "own") || strings.Contains(table, "\a") {
		t.Errorf("%d lines of table:\n%s", len(rows), table)
	}
	for _, want := range []string{"KEY BYTES VALUE", `app:plan 15 {"steps":2}`, "app:k119 7 119", `user:name 9 "Ada"`} {
		contains(t, strings.Join(strings.Fields(table), " "), want)
	}
	if got := s.lines("state", "list"); len(got) != 50 || got[0]["key"] != "app:bell" {
		t.Errorf("%d keys, want 50; the first is %v", len(got), got[0])
	}
	if got := s.lines("state", "list", "--limit", "110", "--prefix", "app:k"); len(got) != 110 || got[0]["key"] != "app:k000" || got[109]["key"] != "app:k109" {
		t.Errorf("%d keys of a prefix: %v", len(got), got)
	}
	user := s.lines("state", "list", "--prefix", "user:")
	if len(user) != 1 || user[0]["key"] != "user:name" || user[0]["value"] != `"Ada"` || user[0]["bytes"] != "9" {
		t.Errorf("of user: there is %v", user)
	}

	if got := s.says(true, "state", "remove", "app:plan", "app:none"); got != "removed app:plan\nnot there: app:none\n" {
		t.Errorf("said %q", got)
	}
	if got := s.says(false, "state", "remove", "user:name", "app:none"); got != `{"removed":["user:name"]}`+"\n" {
		t.Errorf("said %q", got)
	}
	if got := s.lines("state", "list", "--limit", "1000"); len(got) != 121 {
		t.Errorf("%d keys are left, want 121", len(got))
	}
	contains(t, s.fails(exitError, "state", "remove", "app:k000", "own"), "keys[1]", `"own"`, "app: or user:")
	if got := s.lines("state", "list", "--prefix", "app:k000"); len(got) != 1 {
		t.Errorf("a refused request has removed app:k000: %v", got)
	}
	contains(t, s.fails(exitUsage, "state", "remove"), `expected "<KEY> ..."`)
	contains(t, shell{t: t, url: "http://127.0.0.1:1"}.fails(exitError, "state", "list"), "no agentd responds")
}

// The flags of serve bound state.
func TestStateFlags(t *testing.T) {
	for flag, tc := range map[string]struct{ key, want string }{
		"MAX_SHARED_KEYS":  {"app", "at most 1 are allowed"},
		"MAX_SHARED_BYTES": {"user", "at most 1 are allowed"},
		"MAX_STATE_KEYS":   {"", "at most 1 are allowed"},
		"MAX_STATE_BYTES":  {"", "at most 1 are allowed"},
	} {
		t.Run(flag, func(t *testing.T) {
			d := inProcess(t, map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": ":memory:", "AGENTD_" + flag: "1"})
			s := shell{t: t, url: d.url}
			scope := strings.TrimPrefix(tc.key+":", ":")
			one := file(t, "name: a\nllm: {model: echo}\n")
			contains(t, s.fails(exitError, "run", one, "go", "-s", scope+"a=1", "-s", scope+"b=2"), tc.want, "LIMIT_EXCEEDED")
		})
	}
	for _, flag := range []string{"max-shared-keys", "max-shared-bytes", "max-state-keys", "max-state-bytes"} {
		contains(t, shell{t: t}.fails(exitUsage, "serve", "--"+flag+"=0"), "--"+flag+" is 0, must be at least 1")
	}
}
