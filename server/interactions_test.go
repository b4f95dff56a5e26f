package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// inquire asks a person for leave to call a tool, then something, and says what
// came of both.
func inquire(ctx context.Context, run *session.Run) error {
	ev := &record.Event{Path: root, Calls: []record.ToolCall{
		{ID: "call", Name: "tool", Input: json.RawMessage(`{"n":1}`), Path: root, Asks: &record.Question{Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL}},
		{ID: "ask", Name: "ask_user", Input: json.RawMessage(`{}`), Path: root, Asks: &record.Question{
			Kind: agentdv1.InteractionKind_INTERACTION_KIND_CLARIFICATION, Text: "which?", Choices: []string{"a", "b"},
		}},
	}}
	if err := emit(ctx, run, ev); err != nil {
		return err
	}
	var said []string
	for _, c := range ev.Calls {
		res, err := run.Await(ctx, c.ID)
		if err != nil {
			return err
		}
		text := res.Error
		if res.Output != nil {
			text = *res.Output
		}
		said = append(said, text)
	}
	return say(ctx, run, "m1", strings.Join(said, " and "))
}

func isAsked(m *agentdv1.RunResponse) bool {
	return m.GetInteractionRequested().GetInteraction().GetId() == "ask"
}

func resolve(id string, r *agentdv1.Resolution) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_InteractionResponse{InteractionResponse: &agentdv1.InteractionResponse{
		InteractionId: id, Resolution: r,
	}}}
}

func approved(input *string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{ToolInput: input}}}
}

func denied(reason string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: reason}}}
}

func replied(text string) *agentdv1.Resolution {
	return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: text}}
}

// A client resolves on the stream of its turn; an invalid resolution does not end the
// turn.
func TestInteractionResponse(t *testing.T) {
	f := serve(t, engine{run: inquire}, server.Config{})
	c := f.run(t)
	msgs := c.until(isAsked)
	in := msgs[len(msgs)-2].GetInteractionRequested().GetInteraction()
	if in.GetToolName() != "tool" || in.GetToolInput() != `{"n":1}` || in.GetStatus() != agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING {
		t.Errorf("asked %v", in)
	}
	for _, tc := range []struct {
		msg  *agentdv1.RunRequest
		want agentdv1.ErrorCode
	}{
		{resolve("call", nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{resolve("call", &agentdv1.Resolution{}), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{resolve("call", replied("yes")), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{resolve("call", approved(new(""))), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{resolve("ask", approved(nil)), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{resolve("other", denied("")), agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND},
		{toolResult("call", "x"), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
	} {
		c.send(tc.msg)
		if got := c.next(); got.GetError().GetCode() != tc.want {
			t.Errorf("%v: %v, want %v", tc.msg, got, tc.want)
		}
	}
	c.send(resolve("call", approved(new(`{"n":2}`))))
	msgs = c.until(isCall)
	if got := msgs[len(msgs)-1].GetToolCall().GetToolInput(); got != `{"n":2}` {
		t.Errorf("the tool is to be called with %s", got)
	}
	c.send(resolve("call", denied("")))
	if got := c.next(); got.GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION {
		t.Errorf("a second resolution: %v", got)
	}
	c.send(toolResult("call", "done"), resolve("ask", replied("b")))
	if msgs := c.toEnd(); textOf(msgs) != "done and b" || !lastOf(t, msgs).GetCompleted() {
		t.Errorf("got %s", show(msgs))
	}
}

// textOf is what was said.
func textOf(msgs []*agentdv1.RunResponse) string {
	text := ""
	for _, m := range msgs {
		text += m.GetOutputChunk().GetContent()
	}
	return text
}

// Another client resolves by unary calls.
func TestInteractionsOfSessionService(t *testing.T) {
	f := serve(t, engine{run: inquire}, server.Config{})
	c := f.run(t)
	id := c.until(isAsked)[0].GetExecute().GetSessionId()
	s := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	list := func(req *agentdv1.ListInteractionsRequest) *agentdv1.ListInteractionsResponse {
		t.Helper()
		req.SessionId = id
		resp, err := s.ListInteractions(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Msg
	}
	ids := func(list []*agentdv1.Interaction) string {
		var out []string
		for _, in := range list {
			out = append(out, in.GetId())
		}
		return strings.Join(out, " ")
	}
	turn, err := s.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	if got := turn.Msg.GetTurn(); got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT || ids(got.GetPendingInteractions()) != "call ask" || len(got.GetPendingToolCalls()) > 0 {
		t.Errorf("the turn is %v", got)
	}
	first := list(&agentdv1.ListInteractionsRequest{PageSize: 1})
	second := list(&agentdv1.ListInteractionsRequest{PageSize: 1, PageToken: first.GetNextPageToken()})
	if ids(first.GetInteractions()) != "call" || ids(second.GetInteractions()) != "ask" || second.GetNextPageToken() != "" {
		t.Errorf("listed %v, then %v", first, second)
	}
	resolve := func(id, name string, r *agentdv1.Resolution) (*agentdv1.Interaction, error) {
		resp, err := s.ResolveInteraction(t.Context(), connect.NewRequest(&agentdv1.ResolveInteractionRequest{SessionId: id, InteractionId: name, Resolution: r}))
		if err != nil {
			return nil, err
		}
		return resp.Msg.GetInteraction(), nil
	}
	for _, tc := range []struct {
		session, id string
		want        connect.Code
	}{
		{"other", "call", connect.CodeNotFound}, {id, "other", connect.CodeNotFound}, {id, "call", connect.CodeInvalidArgument}, {id, "", connect.CodeInvalidArgument},
	} {
		if in, err := resolve(tc.session, tc.id, replied("x")); connect.CodeOf(err) != tc.want {
			t.Errorf("%+v: %v, %v", tc, in, err)
		}
	}
	no := denied("not now")
	no.IdempotencyKey = "mine"
	for range 2 {
		in, err := resolve(id, "call", no)
		if err != nil || in.GetStatus() != agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED || in.GetResolution().GetDeny().GetReason() != "not now" || in.GetResolution().GetIdempotencyKey() != "" {
			t.Errorf("resolved: %v, %v", in, err)
		}
	}
	if _, err := resolve(id, "call", denied("")); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a second time: %v", err)
	}
	if got := list(&agentdv1.ListInteractionsRequest{Statuses: []agentdv1.InteractionStatus{agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED}}); ids(got.GetInteractions()) != "call" {
		t.Errorf("resolved are %v", got)
	}
	if resp, err := s.ListInteractions(t.Context(), connect.NewRequest(&agentdv1.ListInteractionsRequest{})); err != nil || len(resp.Msg.GetInteractions()) != 2 {
		t.Errorf("of all sessions: %v, %v", resp, err)
	}
	if _, err := s.ListInteractions(t.Context(), connect.NewRequest(&agentdv1.ListInteractionsRequest{TurnId: "x"})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("of a turn without its session: %v", err)
	}
	got, err := s.GetInteraction(t.Context(), connect.NewRequest(&agentdv1.GetInteractionRequest{SessionId: id, InteractionId: "ask"}))
	if err != nil || strings.Join(got.Msg.GetInteraction().GetChoices(), " ") != "a b" || got.Msg.GetInteraction().GetTurnId() != turn.Msg.GetTurn().GetId() {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := resolve(id, "ask", replied("a")); err != nil {
		t.Error(err)
	}
	if msgs := c.toEnd(); textOf(msgs) != "not now and a" {
		t.Errorf("said %s", show(msgs))
	}
}
