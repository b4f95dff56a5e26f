package gestalt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

const (
	active   = gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ACTIVE
	archived = gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ARCHIVED
)

const echo = "agents:\n  - {name: a, llm: {model: echo}}\n  - {name: b, llm: {model: echo}}\n"

// update changes a session.
func (h *host) update(req *gestaltv1.UpdateSessionRequest) *gestaltv1.AgentSession {
	h.t.Helper()
	out := &gestaltv1.AgentSession{}
	req.Subject = of(ann)
	h.must("AgentProvider/UpdateSession", req, out)
	return out
}

// list lists the ids of sessions.
func (h *host) list(req *gestaltv1.ListSessionsRequest) (ids []string) {
	h.t.Helper()
	out := &gestaltv1.ListSessionsResponse{}
	if req.Subject = of(ann); req.GetLimit() < 0 {
		req.Limit = 0
	}
	h.must("AgentProvider/ListSessions", req, out)
	for _, s := range out.GetSessions() {
		ids = append(ids, s.GetId())
	}
	return ids
}

// Sessions keep what the host says of them; what an update leaves out stays; lists have those first that were used last;
// a restart changes nothing.
func TestSessions(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo, nil)
	h.start()
	metadata := object(t, map[string]any{"__gestalt.lifecycle.x": "kept", "a": 1, "b": map[string]any{"c": []any{true}}})
	create := &gestaltv1.CreateSessionRequest{
		SessionId: "s1", IdempotencyKey: "k", Model: "b", ClientRef: "r1", Metadata: metadata, CreatedBy: actor("user:somebody"), Subject: of(ann),
	}
	made := &gestaltv1.AgentSession{}
	h.must("AgentProvider/CreateSession", create, made)
	want := &gestaltv1.AgentSession{
		Id: "s1", ProviderName: "agentd", Model: "b", ClientRef: "r1", State: active, Metadata: metadata, CreatedBy: actor("user:somebody"),
		CreatedAt: made.GetCreatedAt(), UpdatedAt: made.GetUpdatedAt(),
	}
	if diff := cmp.Diff(want, made, protocmp.Transform()); diff != "" || made.GetCreatedAt() == nil || made.GetUpdatedAt() == nil {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	// The same request, and another one with the key, are the first session.
	for _, other := range []string{"s1", "s1-again"} {
		create.SessionId = other
		got := &gestaltv1.AgentSession{}
		h.must("AgentProvider/CreateSession", create, got)
		if diff := cmp.Diff(made, got, protocmp.Transform()); diff != "" {
			t.Errorf("again:\n%s", diff)
		}
	}
	for _, id := range []string{"s2", "s3"} {
		h.session(id, ann, "")
	}
	if diff := cmp.Diff([]string{"s3", "s2", "s1"}, h.list(&gestaltv1.ListSessionsRequest{})); diff != "" {
		t.Errorf("listed:\n%s", diff)
	}
	got := h.update(&gestaltv1.UpdateSessionRequest{SessionId: "s1"})
	if diff := cmp.Diff(made, got, protocmp.Transform(), protocmp.IgnoreFields(&gestaltv1.AgentSession{}, "updated_at")); diff != "" {
		t.Errorf("nothing was changed, and yet:\n%s", diff)
	}
	got = h.update(&gestaltv1.UpdateSessionRequest{SessionId: "s1", ClientRef: "r2", Metadata: object(t, map[string]any{"z": "y"})})
	if got.GetClientRef() != "r2" || !proto.Equal(got.GetMetadata(), object(t, map[string]any{"z": "y", "__gestalt.lifecycle.x": "kept"})) {
		t.Errorf("changed: %v", got)
	}
	if diff := cmp.Diff([]string{"s1", "s3"}, h.list(&gestaltv1.ListSessionsRequest{Limit: 2})); diff != "" {
		t.Errorf("listed after a change:\n%s", diff)
	}
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s2"})
	h.until("t", succeeded)
	if diff := cmp.Diff([]string{"s2", "s1", "s3"}, h.list(&gestaltv1.ListSessionsRequest{SummaryOnly: true})); diff != "" {
		t.Errorf("listed after a turn:\n%s", diff)
	}
	if got := h.update(&gestaltv1.UpdateSessionRequest{SessionId: "s2", State: archived}); got.GetState() != archived || got.GetLastTurnAt() == nil {
		t.Errorf("archived: %v", got)
	}
	if diff := cmp.Diff([]string{"s1", "s3"}, h.list(&gestaltv1.ListSessionsRequest{State: active})); diff != "" {
		t.Errorf("active:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"s2"}, h.list(&gestaltv1.ListSessionsRequest{State: archived, SessionIds: []string{"s1", "s2"}})); diff != "" {
		t.Errorf("archived:\n%s", diff)
	}
	req := &gestaltv1.CreateTurnRequest{TurnId: "u", SessionId: "s2"}
	h.granted(req)
	if text := h.refused("AgentProvider/CreateTurn", req, codes.FailedPrecondition); !strings.Contains(text, "archived") {
		t.Errorf("a turn of it is refused: %s", text)
	}
	before := &gestaltv1.ListSessionsResponse{}
	h.must("AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{Subject: of(ann)}, before)
	h.kill()
	h.start()
	after := &gestaltv1.ListSessionsResponse{}
	h.must("AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{Subject: of(ann)}, after)
	if diff := cmp.Diff(before, after, protocmp.Transform()); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
	if got := h.update(&gestaltv1.UpdateSessionRequest{SessionId: "s2", State: active}); got.GetState() != active {
		t.Errorf("active again: %v", got)
	}
	h.prompt(req)
	h.until("u", succeeded)
	h.stop()
}

// Lists of turns have the newest first, and what the host asks for.
func TestListTurns(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo, nil)
	h.start()
	h.session("s", ann, "")
	for i := range 3 {
		id := fmt.Sprintf("t%d", i)
		h.prompt(&gestaltv1.CreateTurnRequest{TurnId: id, SessionId: "s", Messages: says("say " + id)})
		h.until(id, succeeded)
	}
	for name, tc := range map[string]struct {
		req  *gestaltv1.ListTurnsRequest
		want []string
	}{
		"all":      {&gestaltv1.ListTurnsRequest{}, []string{"t2", "t1", "t0"}},
		"two":      {&gestaltv1.ListTurnsRequest{Limit: 2}, []string{"t2", "t1"}},
		"named":    {&gestaltv1.ListTurnsRequest{TurnIds: []string{"t0", "other"}}, []string{"t0"}},
		"over":     {&gestaltv1.ListTurnsRequest{Status: succeeded, SummaryOnly: true}, []string{"t2", "t1", "t0"}},
		"canceled": {&gestaltv1.ListTurnsRequest{Status: canceled}, nil},
	} {
		func() {
			tc.req.SessionId, tc.req.Subject = "s", of(ann)
			out := &gestaltv1.ListTurnsResponse{}
			if err := h.call(t.Context(), "AgentProvider/ListTurns", tc.req, out); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, turn := range out.GetTurns() {
				ids = append(ids, turn.GetId())
				want := h.turn(turn.GetId())
				if tc.req.GetSummaryOnly() {
					want.Messages, want.OutputText = nil, ""
				}
				if diff := cmp.Diff(want, turn, protocmp.Transform()); diff != "" {
					t.Errorf("in the list:\n%s", diff)
				}
			}
			if diff := cmp.Diff(tc.want, ids); diff != "" {
				t.Errorf("%s:\n%s", name, diff)
			}
		}()
	}
	h.stop()
}

// What belongs to one subject is not there for another one.
func TestSubjects(t *testing.T) {
	t.Parallel()
	h := newHost(t, "name: a\nllm: {model: scripted/asks, builtin_tools: [ask_user]}\n", map[string]string{
		"asks": `answers: [{when: {after_tool: ask_user}, text: "Thanks."}, {when: {}, calls: [{name: ask_user, args: {question: "Who?", choices: [a, b]}}]}]`,
	})
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	h.until("t", waiting)
	asked := &gestaltv1.ListInteractionsResponse{}
	h.must("AgentProvider/ListInteractions", &gestaltv1.ListInteractionsRequest{TurnId: "t", Subject: of(ann)}, asked)
	id := asked.GetInteractions()[0].GetId()
	bob := of("user:bob")
	foreign := map[string]proto.Message{
		"GetSession":         &gestaltv1.GetSessionRequest{SessionId: "s", Subject: bob},
		"UpdateSession":      &gestaltv1.UpdateSessionRequest{SessionId: "s", ClientRef: "x", Subject: bob},
		"GetTurn":            &gestaltv1.GetTurnRequest{TurnId: "t", Subject: bob},
		"ListTurns":          &gestaltv1.ListTurnsRequest{SessionId: "s", Subject: bob},
		"CancelTurn":         &gestaltv1.CancelTurnRequest{TurnId: "t", Subject: bob},
		"ListTurnEvents":     &gestaltv1.ListTurnEventsRequest{TurnId: "t", Subject: bob},
		"GetInteraction":     &gestaltv1.GetInteractionRequest{InteractionId: id, Subject: bob},
		"ListInteractions":   &gestaltv1.ListInteractionsRequest{TurnId: "t", Subject: bob},
		"ResolveInteraction": &gestaltv1.ResolveInteractionRequest{InteractionId: id, Resolution: object(t, map[string]any{"answer": "x"}), Subject: bob},
		"CreateTurn":         &gestaltv1.CreateTurnRequest{TurnId: "u", SessionId: "s", Messages: says("hi"), Subject: bob},
	}
	for method, req := range foreign {
		h.refused("AgentProvider/"+method, req, codes.NotFound)
	}
	none := &gestaltv1.ListSessionsResponse{}
	h.must("AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{Subject: bob}, none)
	if len(none.GetSessions()) != 0 {
		t.Errorf("listed: %v", none)
	}
	h.refused("AgentProvider/CreateSession", &gestaltv1.CreateSessionRequest{SessionId: "s", Subject: bob}, codes.AlreadyExists)
	h.must("AgentProvider/CreateSession", &gestaltv1.CreateSessionRequest{SessionId: "s-of-bob", IdempotencyKey: "k", Subject: bob}, &gestaltv1.AgentSession{})
	mine := &gestaltv1.AgentSession{}
	h.must("AgentProvider/CreateSession", &gestaltv1.CreateSessionRequest{SessionId: "s2", IdempotencyKey: "k", Subject: of(ann)}, mine)
	if mine.GetId() != "s2" {
		t.Errorf("somebody else's key is mine: %v", mine)
	}
	if got := h.turn("t"); got.GetStatus() != waiting {
		t.Errorf("the turn is %v", got)
	}
	h.stop()
}
