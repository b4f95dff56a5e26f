package server_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/principal"
)

// TestWantedSession has clients take part at one server in a turn whose owner lives and cannot be reached any more: the
// owner lets go of the session, and streams and calls go on at the server of the clients.
func TestWantedSession(t *testing.T) {
	turnAt := func(t *testing.T, p *peerServer) (id, turn string) {
		t.Helper()
		made, err := p.calls.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: knowing().GetExecute()}))
		if err != nil {
			t.Fatal(err)
		}
		return made.Msg.GetTurn().GetSessionId(), made.Msg.GetTurn().GetId()
	}
	isAt := func(t *testing.T, p *peerServer, id string) {
		t.Helper()
		if address, _ := p.group.OwnerOf(id); address != "" && !strings.HasSuffix(p.url, address) {
			t.Errorf("the session is at %q, want %q", address, p.url)
		}
	}
	t.Run("Run, attached before", func(t *testing.T) {
		all := peers(t, engine{run: askThenSay}, 2)
		id, turn := turnAt(t, all[0])
		r := begin(t.Context(), t, all[1], taking(id, turn))
		r.untilCall()
		all[0].cut()
		r.finish()
		isAt(t, all[1], id)
	})
	t.Run("Run and WatchTurn, attached later", func(t *testing.T) {
		all := peers(t, engine{run: askThenSay}, 2)
		id, turn := turnAt(t, all[0])
		all[0].cut()
		w, err := all[1].calls.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, TurnId: turn}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		r := begin(t.Context(), t, all[1], taking(id, turn))
		r.untilCall()
		r.finish()
		isAt(t, all[1], id)
		said := ""
		for w.Receive() {
			said += w.Msg().GetEvent().GetOutputChunk().GetContent()
		}
		if said != "one moment. done" || w.Err() != nil {
			t.Errorf("WatchTurn reads %q, %v", said, w.Err())
		}
	})
	t.Run("a call, beside an observer of the owner", func(t *testing.T) {
		all := peers(t, engine{run: askThenSay}, 2)
		id, turn := turnAt(t, all[0])
		_, watch, err := all[0].m.Attach(principal.With(t.Context(), principal.Principal{ID: "ann"}),
			session.AttachRequest{SessionID: id, Observe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		all[0].cut()
		resp, err := all[1].calls.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
			SessionId: id, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{{
				ToolCallId: "c-" + turn, SessionId: id,
				Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`},
			}},
		}))
		if err != nil || len(resp.Msg.GetRefused()) > 0 {
			t.Fatalf("%v, %v", resp, err)
		}
		isAt(t, all[1], id)
	})
}

// taking attaches to a turn, and runs its tool.
func taking(id, turn string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{
		SessionId: id, TurnId: turn, ToolNames: []string{"tool"},
	}}}
}
