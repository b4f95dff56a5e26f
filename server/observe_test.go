package server_test

import (
	"context"
	"slices"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// TestObserve: on both services a client that observes sees the turn and cannot change
// it; what it tries is refused, and its stream continues.
func TestObserve(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		_, err := ask(ctx, run, "c1")
		return err
	}}, server.Config{})
	c := f.run(t)
	msgs := c.until(isCall)
	id := msgs[0].GetExecute().GetSessionId()

	req := attach(id, -1)
	req.GetAttach().Observe = true
	o := f.open(t.Context(), t)
	o.send(req)
	o.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil })
	resolves := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_InteractionResponse{InteractionResponse: &agentdv1.InteractionResponse{
		InteractionId: "c1", Resolution: &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{}}},
	}}}
	ends := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{}}}
	for _, m := range []*agentdv1.RunRequest{toolResult("c1", "mine"), resolves, cancelCall("c1"), cancelTurn(), ends} {
		o.send(m)
		if e := o.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION {
			t.Errorf("%v: %v", m, e)
		}
	}
	s := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	w, err := s.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: true}))
	if err != nil {
		t.Fatal(err)
	}
	c.send(toolResult("c1", "fine"))
	if got := o.rest(); !slices.ContainsFunc(got, isEnd) {
		t.Errorf("the observer reads %s", show(got))
	}
	var over, asked bool
	for w.Receive() {
		over, asked = over || isEnd(w.Msg().GetEvent()), asked || isCall(w.Msg().GetEvent())
	}
	if err := w.Err(); err != nil || !over || asked {
		t.Errorf("WatchTurn: over=%v asked=%v %v", over, asked, err)
	}
	c.toEnd()
}

// TestObserveIsForWatching: it goes with no tools.
func TestObserveIsForWatching(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	c := f.run(t)
	id := c.toEnd()[0].GetExecute().GetSessionId()
	req := attach(id, -1, "tool")
	req.GetAttach().Observe = true
	o := f.open(t.Context(), t)
	o.send(req)
	endedEarly(t, o.rest(), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "observe")
	s := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	w, err := s.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: true, ToolNames: []string{"tool"}}))
	if err == nil && w.Receive() {
		t.Errorf("WatchTurn with tools gives %v", w.Msg())
	}
	if err == nil {
		err = w.Err()
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("WatchTurn with tools: %v", err)
	}
}
