package daemon_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

var damageSeeds = flag.Int("daemon.damageseeds", 12, "how many databases TestDamagedDatabase damages")

// TestDamagedDatabase (F41): a daemon on a database that was damaged while it was down
// says why it does not start, or serves: each call ends, and what it shows was there.
func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	const turns = 5
	dir := t.TempDir()
	d := start(t, daemon.Config{DataDir: dir, Scripts: map[string]string{"asks": asks}})
	c := wires(t, d)["Connect, binary, HTTP/2"]
	said := map[string]string{} // session id to what its agent has said
	for n := range turns {
		ex := lookRequest(fmt.Sprintf("a prompt of number %d", n))
		ex.Tools, ex.Agent.GetLlm().ToolNames, ex.Agent.GetLlm().Model = nil, nil, "echo"
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		said[turn.GetSessionId()] = joined(followTurn(t, c, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}))
	}
	waits := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("go")}).GetTurn()
	until(t, c, waits, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	stop(t, d)
	db, err := os.ReadFile(filepath.Join(dir, "agentd.db"))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	for seed := range uint64(*damageSeeds) {
		rng := rand.New(rand.NewPCG(seed, 41))
		bad := bytes.Clone(db)
		from := 0
		if rng.IntN(4) > 0 {
			from = len(bad) / 10 // behind the schema, without which nothing starts
		}
		for range 1 << rng.IntN(8) {
			bad[from+rng.IntN(len(bad)-from)] ^= 1 << rng.IntN(8)
		}
		outcomes[serveDamaged(t, seed, bad, said)]++
	}
	t.Logf("%d databases: %v", *damageSeeds, outcomes)
}

func serveDamaged(t *testing.T, seed uint64, db []byte, said map[string]string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for calls that never end
	defer cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agentd.db"), db, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(daemon.Config{DataDir: dir, Addr: "127.0.0.1:0", Scripts: map[string]string{"asks": asks}})
	if err == nil {
		ended, now := context.WithCancel(t.Context())
		now()
		defer func() { _ = d.Shutdown(ended) }() // reports that the store has failed too
		err = d.Start(ctx)
	}
	if err != nil {
		if ctx.Err() != nil || !strings.Contains(err.Error(), "daemon: ") && !strings.Contains(err.Error(), dir) {
			t.Errorf("seed %d: start: %v", seed, err)
		}
		return "refused"
	}
	c := wires(t, d)["Connect, binary, HTTP/2"]
	outcome := "served"
	ended := func(err error) {
		if err != nil {
			outcome = "served in part"
		}
		if ctx.Err() != nil {
			t.Fatalf("seed %d: a call does not end: %v", seed, err)
		}
	}
	_, err = c.ListSessions(ctx, connect.NewRequest(&agentdv1.ListSessionsRequest{}))
	ended(err)
	for id, want := range said {
		turns, err := c.ListTurns(ctx, connect.NewRequest(&agentdv1.ListTurnsRequest{SessionId: id}))
		if ended(err); err != nil {
			continue
		}
		for _, turn := range turns.Msg.GetTurns() {
			text, err := watchDamaged(ctx, c, id, turn.GetId())
			if ended(err); err == nil && text != want {
				t.Errorf("seed %d: session %s says %q, want %q", seed, id, text, want)
			}
		}
		_, err = c.GetSession(ctx, connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: id}))
		ended(err)
	}
	_, err = c.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: lookRequest("go")}))
	ended(err)
	return outcome
}

func watchDamaged(ctx context.Context, c agentdv1connect.SessionServiceClient, id, turn string) (string, error) {
	stream, err := c.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, TurnId: turn}))
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	text := ""
	for stream.Receive() {
		text += stream.Msg().GetEvent().GetOutputChunk().GetContent()
	}
	return text, stream.Err()
}
