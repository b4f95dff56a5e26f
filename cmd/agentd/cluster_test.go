package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// The replicas over a database are shown with what they own, also when one was killed, and what another one has taken
// over from it.
func TestCluster(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	env["AGENTD_STORE"] = pgserver.URL(t)
	look := func() (s daemon.Survey) {
		t.Helper()
		code, out, errs := command(t, env, "cluster", "--json", "--watch=1m")
		if err := json.Unmarshal([]byte(out), &s); code != exitOK || err != nil {
			t.Fatalf("cluster: %d, %v: %s%s", code, err, out, errs)
		}
		return s
	}
	if code, out, errs := command(t, nil, "cluster"); code != exitUsage || !strings.Contains(errs, "--store is missing") {
		t.Errorf("no database: %d, %s%s", code, out, errs)
	}
	owner, other := replica(t, env), replica(t, env)
	f.open(owner, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil })
	s := look()
	if len(s.Replicas) != 2 || s.Replicas[0].State != "alive" || s.Replicas[0].Name != owner.addr || s.Replicas[0].OpenTurns != 1 {
		t.Errorf("with a turn: %+v", s)
	}
	if code, out, errs := command(t, env, "cluster"); code != exitOK || strings.Count(out, " alive ") != 2 || !strings.HasSuffix(out, "nothing is due\n") {
		t.Errorf("as text: %d, %s%s", code, out, errs)
	}
	f.drop()
	f.open(other, nil) // whose stream stands
	call := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall()
	owner.signal(syscall.SIGKILL)
	owner.wait()
	f.sendResult(call)
	if end := f.end(); !end.GetCompleted() {
		t.Errorf("got %v, want a completed turn", end)
	}
	for n := int64(0); n == 0; { // it is told with a beat
		s = look()
		n = s.Replicas[len(s.Replicas)-1].Takeovers
	}
	if r := s.Replicas[len(s.Replicas)-1]; r.Takeovers != 1 || r.LastTakeover == nil || r.Name != other.addr {
		t.Errorf("behind a takeover: %+v", s)
	}
	other.signal(syscall.SIGTERM)
	if code := other.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, other.log)
	}
}
