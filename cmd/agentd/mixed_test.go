package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestVersionBefore runs this version beside the one before, over one database: a turn that one has begun a client
// follows through the other, which goes on with it when the first one is killed. The older one may make the database,
// or find that of the newer one.
func TestVersionBefore(t *testing.T) {
	t.Parallel()
	before := os.Getenv("AGENTD_BEFORE")
	if before == "" {
		t.Skip("AGENTD_BEFORE is not set: scripts/mixed runs this test")
	}
	for name, programs := range map[string][2]string{
		"from the one before": {before, os.Args[0]}, "to the one before": {os.Args[0], before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, f := killable(t)
			delete(env, "AGENTD_DATA")
			env["AGENTD_STORE"] = pgserver.URL(t)
			pace(t, env, slow, slow)
			owner := replicaOf(t, programs[0], env)
			f.open(owner, agent("scripted/work", "a", "b", "c", "d"))
			f.until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "five") })
			f.drop()
			pace(t, env, fast, fast)
			other := replicaOf(t, programs[1], env)
			f.open(other, nil)
			call := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall()
			encrypted := map[string]string{"AGENTD_ENCRYPTION_KEYS": encryptionKey(t, t.TempDir(), "", "main")}
			maps.Copy(encrypted, env)
			encrypted["AGENTD_ADDR"] = freeAddr(t)
			encrypted["AGENTD_ADVERTISE"], encrypted["AGENTD_REPLICA_SECRET"] = "http://"+encrypted["AGENTD_ADDR"], replicaSecret
			code, out, errs := command(t, encrypted, "serve")
			if code == exitOK || !strings.Contains(errs, "does not know encryption among replicas") {
				t.Errorf("a replica that encrypts, beside one that cannot: %d, %s%s", code, out, errs)
			}
			owner.signal(syscall.SIGKILL)
			owner.wait()
			f.sendResult(call)
			if end := f.end(); !end.GetCompleted() || end.GetUsageSummary().GetLlmCalls() != 3 {
				t.Errorf("%s, then %s: got %v, want a completed turn of 3 model calls", filepath.Base(programs[0]), filepath.Base(programs[1]), end)
			}
			if want := long + " result of a, result of b, result of c, result of d"; f.text() != want {
				t.Errorf("said %q, want %q", f.text(), want)
			}
			other.signal(syscall.SIGTERM)
			if code := other.wait(); code != exitOK {
				t.Errorf("exit code %d: %s", code, other.log)
			}
		})
	}
}
