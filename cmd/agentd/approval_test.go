package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// payer is a script that pays, asks why, and tells what came of both.
const payer = `answers:
  - {calls: [{name: pay, args: {amount: 100}}]}
  - {calls: [{name: ask_user, args: {question: "why?", choices: [fun, need]}}]}
  - {text: '{{tool_result "pay"}}, {{tool_result "ask_user"}}'}
`

// An approval waits across the death of its server. What a person then says
// stands, also across the next death; the tool gets the arguments that the person
// has changed.
func TestApprovalOutlivesItsServer(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, approvalOutlivesItsServer)
}

func approvalOutlivesItsServer(t *testing.T, over *carrier) {
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "payer.yaml"), []byte(payer), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts}
	type payment struct {
		Amount int `json:"amount"`
	}
	var paid []int
	person := client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
		if in.Question != "why?" || !slices.Equal(in.Choices, []string{"fun", "need"}) {
			return nil, fmt.Errorf("asked %v", in)
		}
		return client.Answer("fun"), nil
	})
	dial := func(s *served) *client.Client {
		c := client.New(s.url, client.WithReconnect(client.ReconnectPolicy{Off: true}))
		t.Cleanup(c.CloseIdleConnections)
		if err := client.AddTool(c, "pay", "pays", func(_ context.Context, in payment) (any, error) {
			paid = append(paid, in.Amount)
			return fmt.Sprintf("paid %d", in.Amount), nil
		}, client.NeedsApproval()); err != nil {
			t.Fatal(err)
		}
		return c
	}

	first := over.binary(t, env)
	c := client.New(first.url, client.WithReconnect(client.ReconnectPolicy{Off: true}))
	t.Cleanup(c.CloseIdleConnections)
	if err := client.AddTool(c, "pay", "pays", func(context.Context, payment) (any, error) {
		t.Error("the tool runs without approval")
		return nil, nil
	}, client.NeedsApproval()); err != nil {
		t.Fatal(err)
	}
	tree := agent("scripted/payer", "pay")
	tree.GetLlm().BuiltinTools = []string{"ask_user"}
	var in *client.Interaction
	for event, err := range c.Run(t.Context(), tree, "go") {
		if err != nil {
			break // the server is dead
		}
		if d, ok := event.Data.(*client.InteractionRequested); ok {
			in = d.Interaction
			first.signal(syscall.SIGKILL)
		}
	}
	first.wait()
	if in.ToolName != "pay" || string(in.ToolInput) != `{"amount":100}` {
		t.Fatalf("asked %v", in)
	}

	second := over.binary(t, env)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	sessions := agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, second.url)
	turn, err := sessions.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: in.SessionID}))
	if err != nil || turn.Msg.GetTurn().GetStatus() != agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT || len(turn.Msg.GetTurn().GetPendingInteractions()) != 1 {
		t.Fatalf("after a restart the turn is %v, %v", turn, err)
	}
	c = dial(second)
	if _, err := c.Resolve(t.Context(), in.SessionID, in.ID, client.Edit(json.RawMessage(`{"amount":"much"}`))); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("arguments that do not fit: %v", err)
	}
	if in, err := c.Resolve(t.Context(), in.SessionID, in.ID, client.Edit(json.RawMessage(`{"amount":5}`))); err != nil || in.Status != client.InteractionStatusResolved {
		t.Fatalf("resolved: %v, %v", in, err)
	}
	second.signal(syscall.SIGKILL)
	second.wait()

	third := over.binary(t, env)
	c = dial(third)
	if _, err := c.Resolve(t.Context(), in.SessionID, in.ID, client.Edit(json.RawMessage(`{"amount":1000}`))); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("a second resolution: %v", err)
	}
	var said strings.Builder
	var end *client.End
	for event, err := range c.Attach(t.Context(), in.SessionID, client.WithPrompter(person)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.OutputChunk != nil:
			said.WriteString(event.OutputChunk.Content)
		case event.Error != nil:
			t.Errorf("yielded %v", event.Error)
		case event.End != nil:
			end = event.End
		}
	}
	if !end.Completed || !slices.Equal(paid, []int{5}) {
		t.Errorf("paid %v, and the turn ended with %v", paid, end)
	}
	for _, want := range []string{"paid 5", "changed the arguments", ", fun"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("said %q, want %q in it", said.String(), want)
		}
	}
}
