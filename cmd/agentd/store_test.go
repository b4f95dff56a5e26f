package main

import (
	"bytes"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// Over PostgreSQL a server that was killed in the middle of a turn is followed by one that continues it, and a second
// one does not start meanwhile. Keys are made beside it. Nobody is shown the password.
func TestStore(t *testing.T) {
	t.Parallel()
	store := pgserver.URL(t)
	env, f := killable(t)
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"] = store
	pace(t, env, slow, slow)
	first := binary(t, env)
	f.open(first, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool {
		return strings.Contains(m.GetOutputChunk().GetContent(), "five")
	})
	var other bytes.Buffer
	code := run(nil, []string{"serve"}, env, io.Discard, &other)
	if code != exitError || !strings.Contains(other.String(), "another agentd has the database open") {
		t.Errorf("a second server: exit code %d: %s", code, other.String())
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	f.drop()
	pace(t, env, fast, fast)
	second := binary(t, env)
	f.open(second, nil)
	end := f.end()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
		t.Errorf("got %v, want a completed turn of 3 model calls", end)
	}
	if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
		t.Errorf("said %q, want %q", f.text(), want)
	}
	if code, key, errs := command(t, env, "keys", "create", "ops", "--role", "operator"); code != exitOK || key == "" {
		t.Errorf("made %q: %d, %s", key, code, errs)
	}
	if code, keys, errs := command(t, env, "keys", "list"); code != exitOK || !strings.Contains(keys, "ops") {
		t.Errorf("listed %q: %d, %s", keys, code, errs)
	}
	for _, args := range [][]string{{"backup", "x.db"}, {"restore", "x.db"}} {
		if code, _, errs := command(t, env, args...); code == exitOK || !strings.Contains(errs, "PostgreSQL") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
	_, shown, _ := command(t, env, "config")
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	for what, text := range map[string]string{
		"the log": first.log.String() + other.String() + second.log.String(), "the configuration": shown,
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the password", what)
		}
	}
}
