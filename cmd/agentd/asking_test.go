package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
)

// TestWhatAToolAsksOutlivesAll: the gate of a client asks, and the daemon and the client are killed. The question waits,
// its answer is given to the second daemon and survives the death of that one, too; whoever gets the call then asks the
// same and runs it with what was said, and no person is asked twice.
func TestWhatAToolAsksOutlivesAll(t *testing.T) { //nolint:tparallel // overBoth runs them side by side
	t.Parallel()
	overBoth(t, func(t *testing.T, over *carrier) {
		scripts := t.TempDir()
		script := "answers:\n  - {calls: [{name: pay, args: {amount: 100}}]}\n  - {text: '{{tool_result \"pay\"}}'}\n"
		if err := os.WriteFile(filepath.Join(scripts, "payer.yaml"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts}
		type payment struct {
			Amount int `json:"amount"`
		}
		var paid []int
		dial := func(s *served, opts ...client.Option) *client.Client {
			c := client.New(s.url, append(opts, client.WithReconnect(client.ReconnectPolicy{Off: true}))...)
			t.Cleanup(c.CloseIdleConnections)
			err := client.AddTool(c, "pay", "pays", func(ctx context.Context, in payment) (any, error) {
				d, err := permit.InTurn(nil).AskApproval(ctx, permit.PromptRequest{
					ToolName: "pay", Detail: fmt.Sprint(in.Amount), Access: "x", PersistKey: "100", Source: "clerk",
				})
				if err != nil {
					return nil, err
				}
				paid = append(paid, in.Amount)
				return fmt.Sprintf("paid %d, decision %d", in.Amount, d), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}

		first := over.binary(t, env)
		var in *client.Interaction
		for event, err := range dial(first).Run(t.Context(), agent("scripted/payer", "pay"), "go") {
			if err != nil {
				break // the server is dead
			}
			if d, ok := event.Data.(*client.InteractionRequested); ok {
				in = d.Interaction
				first.signal(syscall.SIGKILL)
			}
		}
		first.wait()
		if in.Question != "run 100" || in.N != 1 || in.Source != "clerk" || !slices.Contains(in.Choices, "always") {
			t.Fatalf("asked %+v", in)
		}

		second := over.binary(t, env)
		c := dial(second)
		turn, err := c.Session(in.SessionID).Turn(t.Context(), in.TurnID)
		if err != nil || turn.Status != client.TurnWaitingForInput {
			t.Fatalf("after a restart the turn is %+v, %v", turn, err)
		}
		always := &client.Resolution{Kind: client.ResolutionApproval, Scope: "always"}
		if got, err := c.Resolve(t.Context(), in.SessionID, in.ID, always); err != nil || got.Status != client.InteractionStatusResolved {
			t.Fatalf("resolved: %+v, %v", got, err)
		}
		second.signal(syscall.SIGKILL)
		second.wait()

		nobody := client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
			t.Errorf("asked again: %+v", in)
			return client.Deny("again?"), nil
		})
		var said strings.Builder
		for event, err := range dial(over.binary(t, env)).Attach(t.Context(), in.SessionID, client.WithPrompter(nobody)) {
			switch {
			case err != nil:
				t.Fatal(err)
			case event.OutputChunk != nil:
				said.WriteString(event.OutputChunk.Content)
			}
		}
		if want := fmt.Sprintf("paid 100, decision %d", permit.Always); said.String() != want || !slices.Equal(paid, []int{100}) {
			t.Errorf("said %q, want %q; paid %v", said.String(), want, paid)
		}
	})
}
