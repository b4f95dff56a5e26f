package main

import (
	"bytes"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// replicaSecret is what the replicas of a test know each other by.
const replicaSecret = "a secret of replicas, of a test alone"

// freeAddr returns an address on which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// replica starts one of several servers over the database of env.
func replica(t *testing.T, env map[string]string) *served {
	t.Helper()
	return replicaOf(t, os.Args[0], env)
}

// replicaOf is replica for a program.
func replicaOf(t *testing.T, path string, env map[string]string) *served {
	t.Helper()
	own := maps.Clone(env)
	own["AGENTD_ADDR"] = freeAddr(t)
	own["AGENTD_ADVERTISE"], own["AGENTD_REPLICA_SECRET"] = "http://"+own["AGENTD_ADDR"], replicaSecret
	return program(t, path, own)
}

// A client follows a turn through a replica that does not own its session. When the owner is killed, that replica takes
// the session over, and the client's stream stands: no model call that was recorded is made again. A server that would
// have the database alone does not start meanwhile.
func TestReplicas(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"] = pgserver.URL(t)
	pace(t, env, slow, slow)
	owner := replica(t, env)
	var alone bytes.Buffer
	if code := run(nil, []string{"serve"}, env, io.Discard, &alone); code != exitError {
		t.Errorf("a server alone: exit code %d: %s", code, alone.String())
	}
	f.open(owner, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "five") })
	f.drop()
	pace(t, env, fast, fast)
	other := replica(t, env)
	f.open(other, nil)
	call := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall()
	owner.signal(syscall.SIGKILL)
	owner.wait()
	f.sendResult(call)
	end := f.end()
	if !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
		t.Errorf("got %v, want a completed turn of 3 model calls", end)
	}
	if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
		t.Errorf("said %q, want %q", f.text(), want)
	}
	other.signal(syscall.SIGTERM)
	if code := other.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, other.log)
	}
	if log := owner.log.String() + other.log.String(); strings.Contains(log, replicaSecret) {
		t.Error("a log has the secret of the replicas")
	}
}
