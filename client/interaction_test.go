package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// What a person says is the message that it means, and back.
func TestResolutions(t *testing.T) {
	type args struct {
		Amount int    `json:"amount"`
		Note   string `json:"note,omitempty"`
	}
	approve := func(input *string) *agentdv1.Resolution {
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{ToolInput: input}}}
	}
	for name, tc := range map[string]struct {
		said *client.Resolution
		want *agentdv1.Resolution
		kind client.ResolutionKind
	}{
		"approve":       {client.Approve(), approve(nil), client.ResolutionApproval},
		"edit":          {client.Edit(args{Amount: 5, Note: "<b>"}), approve(new(`{"amount":5,"note":"<b>"}`)), client.ResolutionApproval},
		"edit raw":      {client.Edit(json.RawMessage(`{"amount":123456789012345678901}`)), approve(new(`{"amount":123456789012345678901}`)), client.ResolutionApproval},
		"deny":          {client.Deny("too much"), &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: "too much"}}}, client.ResolutionDenial},
		"deny silently": {client.Deny(""), &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{}}}, client.ResolutionDenial},
		"answer":        {client.Answer("red"), &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: "red"}}, client.ResolutionAnswer},
		"broken text":   {client.Answer("r\xff"), &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: "r\ufffd"}}, client.ResolutionAnswer},
		"key": {&client.Resolution{Kind: client.ResolutionAnswer, Answer: "red", IdempotencyKey: "k"},
			&agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: "red"}, IdempotencyKey: "k"}, client.ResolutionAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.said.Proto()
			if !proto.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			back := client.ResolutionOf(got)
			if back.Kind != tc.kind || !proto.Equal(back.Proto(), tc.want) {
				t.Errorf("translated back: %v, want %v", back.Proto(), tc.want)
			}
		})
	}
	if client.ResolutionOf(nil) != nil || client.InteractionOf(nil) != nil {
		t.Error("nil becomes something")
	}
}

// What cannot be sent is refused before anything is sent.
func TestWrongResolutions(t *testing.T) {
	c := client.New("http://127.0.0.1:1")
	for name, tc := range map[string]struct {
		said *client.Resolution
		want string
	}{
		"nil":          {nil, "client.Approve"},
		"a number":     {client.Edit(5), "a JSON object, got 5"},
		"a text":       {client.Edit(`{"a":1}`), "a JSON object"},
		"not encoded":  {client.Edit(func() {}), "client.Edit"},
		"broken bytes": {client.Edit(json.RawMessage(`{"a"`)), "client.Edit"},
	} {
		_, err := c.Resolve(t.Context(), "s", "i", tc.said)
		if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// An interaction has what the message has; what a newer server says in it is in the
// message that Proto returns.
func TestInteractionOf(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := &agentdv1.Interaction{
		Id: "i", SessionId: "s", TurnId: "t", Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL,
		Status: agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED, AgentPath: []string{"root", "a"}, Question: "q", Choices: []string{"x", "y"},
		ToolName: "pay", ToolInput: `{"amount":1}`, CreateTime: timestamppb.New(at), EndTime: timestamppb.New(at.Add(time.Minute)),
		Resolution: client.Deny("no").Proto(),
	}
	// As from a newer server: a field, a kind and a decision that are not known here.
	m.ProtoReflect().SetUnknown([]byte{0xa2, 0x06, 0x01, 'x'})
	got := client.InteractionOf(m)
	if got.ID != "i" || got.SessionID != "s" || got.TurnID != "t" || got.Kind != client.InteractionApproval || got.Status != client.InteractionStatusResolved ||
		strings.Join(got.AgentPath, "/") != "root/a" || got.Question != "q" || strings.Join(got.Choices, ",") != "x,y" || got.ToolName != "pay" ||
		string(got.ToolInput) != `{"amount":1}` || !got.CreateTime.Equal(at) || !got.EndTime.Equal(at.Add(time.Minute)) || got.Resolution.Reason != "no" {
		t.Errorf("got %+v", got)
	}
	if !proto.Equal(got.Proto(), m) {
		t.Errorf("the message is %v, want %v", got.Proto(), m)
	}
	newer := client.InteractionOf(&agentdv1.Interaction{Kind: 77, Resolution: &agentdv1.Resolution{}})
	if newer.Kind != "77" || newer.Status != "" || newer.Resolution.Kind != "" {
		t.Errorf("of a newer server: %+v", newer)
	}
	other := &agentdv1.Resolution{IdempotencyKey: "k"}
	other.ProtoReflect().SetUnknown([]byte{0xa2, 0x06, 0x01, 'x'})
	if back := client.ResolutionOf(other).Proto(); !proto.Equal(back, other) {
		t.Errorf("a decision of a newer server becomes %v", back)
	}
}

// Each kind of interaction and each state has its word.
func TestInteractionWords(t *testing.T) {
	kinds := []client.InteractionKind{"", client.InteractionApproval, client.InteractionClarification, client.InteractionInput}
	for n := range agentdv1.InteractionKind_name {
		if got := client.InteractionOf(&agentdv1.Interaction{Kind: agentdv1.InteractionKind(n)}).Kind; int(n) >= len(kinds) || got != kinds[n] {
			t.Errorf("kind %d is %q", n, got)
		}
	}
	states := []client.InteractionStatus{"", client.InteractionStatusPending, client.InteractionStatusResolved, client.InteractionStatusCanceled}
	for n := range agentdv1.InteractionStatus_name {
		if got := client.InteractionOf(&agentdv1.Interaction{Status: agentdv1.InteractionStatus(n)}).Status; int(n) >= len(states) || got != states[n] {
			t.Errorf("status %d is %q", n, got)
		}
	}
}

// A part is translated there and back; of one that this client does not know nothing
// is lost.
func TestPartOf(t *testing.T) {
	unknown := &agentdv1.Part{}
	unknown.ProtoReflect().SetUnknown([]byte{0xa2, 0x06, 0x01, 'x'})
	for _, m := range []*agentdv1.Part{
		client.Text("x").Proto(), client.Inline("image/png", []byte("x")).Proto(), client.FileURI("image/png", "gs://x").Proto(),
		client.ToolReference("look").Proto(), unknown,
	} {
		if got := client.PartOf(m).Proto(); !proto.Equal(got, m) {
			t.Errorf("%v becomes %v", m, got)
		}
	}
}
