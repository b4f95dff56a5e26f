package cli_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// TestGateOfAnOlderDaemon: what the gate asks is put to the person of the turn by a daemon, too, that takes no questions of
// tools.
func TestGateOfAnOlderDaemon(t *testing.T) {
	for typed, want := range map[string]string{
		"v\n": fmt.Sprint(permit.SessionVerb, " <nil>"),
		"n\n": fmt.Sprint(permit.Deny, " <nil>"),
		"":    fmt.Sprint(permit.Deny, " ", permit.ErrNoPrompter),
	} {
		answered := make(chan struct{})
		f := &fake{watch: []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(1, calls("c1", "sh", `{}`)))
			<-answered
			send(at(2, ends(true)))
			return nil
		}}}
		gate, set := &cli.Gate{}, client.NewToolSet()
		err := client.AddTool(set, "sh", "Runs.", func(ctx context.Context, _ struct{}) (string, error) {
			d, err := gate.AskApproval(ctx, permit.PromptRequest{ToolName: "sh", Detail: "git push", Access: "x", Verb: "git"})
			return fmt.Sprint(d, " ", err), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		turn := &cli.Turn{
			Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Logf,
			Person: terminal.New(strings.NewReader(typed), &shown), Builtins: []*client.ToolSet{set},
		}
		gate.For(turn)
		done := make(chan error, 1)
		go func() {
			_, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
			done <- err
		}()
		if got := <-f.results; got.GetOutput() != want {
			t.Errorf("typed %q: the gate says %q, want %q", typed, got.GetOutput()+got.GetError(), want)
		}
		close(answered)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !strings.Contains(shown.String(), "sh asks: run git push\nAllow? [y]es, [n]o, this for the [s]ession, each command with this first word") {
			t.Errorf("shown %q", shown.String())
		}
	}
}
