package daemon_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/model"
)

// deadlyData makes TestTurnThatKills be a daemon on this folder.
const deadlyData = "DAEMON_TEST_DEADLY_DATA"

// deadly is a provider whose models kill the process that calls them.
type deadly struct{}

func (deadly) Describe() model.Description             { return model.Description{Name: "deadly"} }
func (d deadly) Open(_, _ string) (model.Model, error) { return model.Model{LLM: d}, nil }
func (deadly) Generate(ctx context.Context, _ *model.Request, _ func(model.Delta)) (*model.Response, error) {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// deadlyRequest asks for a turn of one agent that a model runs; no session is a new one.
func deadlyRequest(session, name string) *agentdv1.CreateTurnRequest {
	ex := &agentdv1.RunRequest_ExecuteRequest{
		UserPrompt: "hello",
		Agent:      &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: name}}},
	}
	if session != "" {
		ex.SessionId = &session
	}
	return &agentdv1.CreateTurnRequest{Execute: ex}
}

// TestTurnThatKills (F37): a process dies of a turn before the turn has written
// anything, and so do the next two; the one after those has failed the turn, and
// serves a stranger and the session itself.
func TestTurnThatKills(t *testing.T) {
	if dir := os.Getenv(deadlyData); dir != "" {
		dieOfATurn(t, dir)
		return
	}
	dir := t.TempDir()
	for n := range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTurnThatKills$")
		child.Env = append(os.Environ(), deadlyData+"="+dir)
		out, err := child.CombinedOutput()
		if err == nil || child.ProcessState.Exited() {
			t.Fatalf("process %d was not killed: %v\n%s", n, err, out)
		}
	}
	var log buffer
	d := start(t, daemon.Config{
		DataDir: dir, ExtraProviders: []model.Provider{deadly{}}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{}).GetTurns()
	if len(turns) != 1 {
		t.Fatalf("the turns are %v, want one", turns)
	}
	turn := turns[0]
	if turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_FAILED || !strings.Contains(turn.GetStatusMessage(), "died 3 times in a row") {
		t.Errorf("the turn is %v", turn)
	}
	if said := log.String(); !strings.Contains(said, "turn quarantined") || !strings.Contains(said, turn.GetSessionId()) || !strings.Contains(said, turn.GetId()) {
		t.Errorf("the log does not name the turn: %s", said)
	}
	for _, id := range []string{"", turn.GetSessionId()} {
		until(t, c, call(t, c.CreateTurn, deadlyRequest(id, "echo")).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	}
}

// dieOfATurn starts the turn, if it is not there, and dies of it.
func dieOfATurn(t *testing.T, dir string) {
	d := start(t, daemon.Config{DataDir: dir, ExtraProviders: []model.Provider{deadly{}}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	if len(call(t, c.ListTurns, &agentdv1.ListTurnsRequest{}).GetTurns()) == 0 {
		call(t, c.CreateTurn, deadlyRequest("", "deadly/model"))
	}
	<-t.Context().Done() // the turn kills the process before that
}
