package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// on runs statements on the database of a URL.
func on(t *testing.T, url string, texts ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, text := range texts {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// Check, export and replay read the database of replicas that run, and erase has a replica remove what another one owns.
func TestOperatePostgres(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	store := pgserver.URL(t)
	env["AGENTD_STORE"] = store
	first := replica(t, env) // which does erasures
	owner := replica(t, env)
	say := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := command(t, env, args...)
		if code != want {
			t.Fatalf("%q: %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	f.open(owner, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	f.flushed()
	id := f.session()
	if out := say(exitOK, "check"); !strings.HasPrefix(out, "0 findings in 1 session") {
		t.Errorf("checked: %s", out)
	}
	if out := say(exitOK, "export", "--tenant=", "-"); !strings.Contains(out, `"kind":"record","session":"`+id) {
		t.Errorf("exported: %s", out)
	}
	if out := say(exitOK, "replay", id); !strings.HasPrefix(out, "equal, 1 turn") {
		t.Errorf("replayed: %s", out)
	}
	if out := say(exitError, "replay", "nobody"); !strings.Contains(out, `there is no session "nobody" in postgres://`) {
		t.Errorf("replayed nobody: %s", out)
	}
	if out := say(exitUsage, "check", "--data", t.TempDir(), "--store", store); !strings.Contains(out, "want one") {
		t.Errorf("two databases: %s", out)
	}
	if out := say(exitError, "check", "--data", t.TempDir()); !strings.Contains(out, "there is no database") {
		t.Errorf("a folder on the command line: %s", out)
	}
	if out := say(exitOK, "erase", "--tenant=", "--user=local"); !strings.HasPrefix(out, "1 sessions would be erased") {
		t.Errorf("without --yes: %s", out)
	}
	on(t, store, `UPDATE records SET epoch = 99 WHERE seq = 1`)
	if out := say(exitError, "check"); !strings.Contains(out, "the one before it 99") {
		t.Errorf("checked: %s", out)
	}
	if out := say(exitOK, "erase", "--tenant=", "--user=local", "--yes"); !strings.HasPrefix(out, "erased 1 sessions") {
		t.Errorf("erased: %s", out)
	}
	if end := f.end(); end.GetCompleted() || !strings.Contains(end.GetReason(), "deleted") {
		t.Errorf("the turn of an erased session ends with %v", end)
	}
	if out := say(exitOK, "export", "--tenant=", "-"); strings.Contains(out, `"kind":"session"`) {
		t.Errorf("exported after the erasure: %s", out)
	}
	for _, s := range []*served{first, owner} {
		s.signal(syscall.SIGTERM)
		if code := s.wait(); code != exitOK {
			t.Errorf("exit code %d: %s", code, s.log)
		}
	}
	if out := say(exitOK, "check"); !strings.HasPrefix(out, "0 findings in 0 sessions") {
		t.Errorf("checked without servers: %s", out)
	}
}
