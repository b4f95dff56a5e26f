package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// InteractionKind is what is asked of a person: one of the constants, or of a newer
// server the number of a kind that this client does not know.
type InteractionKind string

// The kinds of interactions.
const (
	// InteractionApproval asks whether a tool may be called; see [NeedsApproval].
	InteractionApproval InteractionKind = "approval"
	// InteractionClarification asks what was meant; it has choices.
	InteractionClarification InteractionKind = "clarification"
	// InteractionInput asks anything else.
	InteractionInput InteractionKind = "input"
)

// InteractionStatus is how an interaction is: one of the constants, or of a newer
// server the number of one that this client does not know.
type InteractionStatus string

// The states of an interaction.
const (
	// InteractionStatusPending waits for a person.
	InteractionStatusPending InteractionStatus = "pending"
	// InteractionStatusResolved was resolved by a person.
	InteractionStatusResolved InteractionStatus = "resolved"
	// InteractionStatusCanceled is one that nobody waits for any more: the call was
	// canceled, or its turn is over.
	InteractionStatusCanceled InteractionStatus = "canceled"
)

// Interaction is one question of a turn to a person. The agent that asks waits, and
// any client may resolve it, once; see [Prompter] and [Client.Resolve].
type Interaction struct {
	// ID is what [Client.Resolve] takes; unique within the session, and opaque.
	ID string
	// ToolCallID is the tool call that it is about.
	ToolCallID string
	// ResolvedBy is the id of the principal who has resolved it; "" before, and where
	// the server does not say.
	ResolvedBy string
	// ExpireTime is when the server ends the turn that asks, unless something happens in
	// the turn before; zero when it is no longer pending.
	ExpireTime time.Time
	// SessionID and TurnID name the turn that asks.
	SessionID, TurnID string
	// Kind is what is asked.
	Kind InteractionKind
	// Status is how it is.
	Status InteractionStatus
	// AgentPath runs from the root of the tree to the agent that asks.
	AgentPath []string
	// Question is the model's, or a tool's; empty on an approval of a tool call.
	Question string
	// Choices are answers that are suggested; any other is allowed too. On an approval that
	// a tool asks for they are the scopes that it knows; see [Resolution].Scope.
	Choices []string
	// ToolName is, on an approval, the tool that is to be called, and ToolInput its
	// arguments, a JSON object in the model's own text.
	ToolName  string
	ToolInput json.RawMessage
	// CreateTime is when it was asked, and EndTime when it was resolved or canceled,
	// by the server's clock; zero where the server does not say, or before.
	CreateTime, EndTime time.Time
	// Resolution is what a person has said; nil unless it is resolved.
	Resolution *Resolution
	// Source is, of a question that a tool asks, in whose name; see [Call.Ask]. N is the number
	// of that question among those of the tool call; 0 if no tool asks.
	Source string
	N      int
	// Refused is, for a [Prompter] that is asked again, why what it has returned before
	// cannot be taken: arguments that do not fit the tool's schema, a text that is too long,
	// or a decision that is none of this kind. It is nil the first time.
	Refused *Error

	message *agentdv1.Interaction // what it was made from; shared, never changed
}

// InteractionOf translates an interaction of a message, such as that of a list of the
// session service; nil for nil.
func InteractionOf(m *agentdv1.Interaction) *Interaction {
	if m == nil {
		return nil
	}
	m = proto.CloneOf(m)
	return &Interaction{
		ID:         m.GetId(),
		ToolCallID: m.GetToolCallId(),
		ResolvedBy: m.GetResolvedBy(),
		ExpireTime: timeOf(m.GetExpireTime()),
		SessionID:  m.GetSessionId(),
		TurnID:     m.GetTurnId(),
		Kind:       InteractionKind(wordOf(m.GetKind(), "INTERACTION_KIND_")),
		Status:     InteractionStatus(wordOf(m.GetStatus(), "INTERACTION_STATUS_")),
		AgentPath:  m.GetAgentPath(),
		Question:   m.GetQuestion(),
		Choices:    m.GetChoices(),
		ToolName:   m.GetToolName(),
		ToolInput:  rawOf(m.GetToolInput()),
		Source:     m.GetSource(),
		N:          int(m.GetN()),
		CreateTime: timeOf(m.GetCreateTime()),
		EndTime:    timeOf(m.GetEndTime()),
		Resolution: ResolutionOf(m.GetResolution()),
		message:    m,
	}
}

// Proto returns the message that the interaction was made from, with all that a newer
// server has said in it; nil for one that this program has made itself.
func (i *Interaction) Proto() *agentdv1.Interaction { return proto.CloneOf(i.message) }

// asked returns the question as a prompter gets it, its own copy.
func (i *Interaction) asked(refused *Error) *Interaction {
	out := InteractionOf(i.message)
	out.SessionID, out.Refused = i.SessionID, refused
	return out
}

// InteractionRequested says that the turn asks a person: this run's [Prompter], if it
// has one, and anybody who calls [Client.Resolve].
type InteractionRequested struct {
	// Interaction is the question.
	Interaction *Interaction
}

// InteractionResolved says that nobody is asked any more, and what a person has said.
// The call of an approved tool follows as [ToolCall] or [ToolCallAnnounced].
type InteractionResolved struct {
	// Interaction is the question, with what has become of it.
	Interaction *Interaction
}

func (*InteractionRequested) eventData() {}
func (*InteractionResolved) eventData()  {}

// ResolutionKind is what a person has decided.
type ResolutionKind string

// The kinds of resolutions.
const (
	// ResolutionApproval lets a tool be called.
	ResolutionApproval ResolutionKind = "approval"
	// ResolutionDenial says no to the call of a tool, or gives no answer to a question.
	ResolutionDenial ResolutionKind = "denial"
	// ResolutionAnswer answers a question.
	ResolutionAnswer ResolutionKind = "answer"
)

// Resolution is what a person says to an interaction; [Approve], [Edit], [Deny] and
// [Answer] make one.
type Resolution struct {
	// Kind says which of the fields below count. Of a newer server it may be empty.
	Kind ResolutionKind
	// ToolInput is, in an approval, the arguments to call the tool with, a JSON object;
	// nil: the model's.
	ToolInput json.RawMessage
	// Scope is how far the approval of what a tool asks holds: once, session, session_verb,
	// session_tool or always; empty: once. On any other resolution it is refused.
	Scope string
	// Reason is the text of a denial that the model receives; at most 65,536 bytes.
	Reason string
	// Answer is the text of an answer that the model receives; at most 1 MiB.
	Answer string
	// IdempotencyKey, of at most 128 bytes, makes a repeat with the same decision
	// succeed, which is refused otherwise. One that a [Prompter] leaves empty gets one.
	IdempotencyKey string

	message *agentdv1.Resolution // what it was made from; nil: made here
	err     error                // why Edit's arguments cannot be sent
}

// Approve lets a tool be called with the model's arguments.
func Approve() *Resolution { return &Resolution{Kind: ResolutionApproval} }

// Edit lets a tool be called with other arguments, which the model learns: a
// struct or map that encoding/json makes an object of, or a json.RawMessage. What is
// no JSON object is refused when the resolution is sent.
func Edit(args any) *Resolution {
	text, err := marshalJSON(args)
	if err != nil {
		err = fmt.Errorf("client.Edit: %w", err)
	} else if text[0] != '{' {
		err = fmt.Errorf("client.Edit: the arguments of a tool are a JSON object, got %.80s", text)
	}
	return &Resolution{Kind: ResolutionApproval, ToolInput: json.RawMessage(text), err: err}
}

// Deny refuses: no to the call of a tool, no answer to a question. The model is told
// the reason, which may be empty.
func Deny(reason string) *Resolution { return &Resolution{Kind: ResolutionDenial, Reason: reason} }

// Answer answers a question; the model receives the text.
func Answer(text string) *Resolution { return &Resolution{Kind: ResolutionAnswer, Answer: text} }

// ResolutionOf translates the resolution of a message; nil for nil.
func ResolutionOf(m *agentdv1.Resolution) *Resolution {
	if m == nil {
		return nil
	}
	out := &Resolution{IdempotencyKey: m.GetIdempotencyKey(), message: proto.CloneOf(m)}
	switch d := m.GetDecision().(type) {
	case *agentdv1.Resolution_Approve:
		out.Kind = ResolutionApproval
		if d.Approve.Scope != nil {
			out.Scope = wordOf(d.Approve.GetScope(), "APPROVAL_SCOPE_")
		}
		if d.Approve.ToolInput != nil {
			out.ToolInput = json.RawMessage(d.Approve.GetToolInput())
		}
	case *agentdv1.Resolution_Deny:
		out.Kind, out.Reason = ResolutionDenial, d.Deny.GetReason()
	case *agentdv1.Resolution_Answer:
		out.Kind, out.Answer = ResolutionAnswer, d.Answer
	}
	return out
}

// Proto returns the resolution as a message. Of a kind that this client does not know
// it is the one that came from the server.
func (r *Resolution) Proto() *agentdv1.Resolution {
	out := &agentdv1.Resolution{IdempotencyKey: r.IdempotencyKey}
	switch r.Kind {
	case ResolutionApproval:
		approval := &agentdv1.Approval{}
		if r.ToolInput != nil {
			approval.ToolInput = new(validUTF8(string(r.ToolInput)))
		}
		if n := r.scope(); n > 0 {
			approval.Scope = n.Enum()
		}
		out.Decision = &agentdv1.Resolution_Approve{Approve: approval}
	case ResolutionDenial:
		out.Decision = &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: validUTF8(r.Reason)}}
	case ResolutionAnswer:
		out.Decision = &agentdv1.Resolution_Answer{Answer: validUTF8(r.Answer)}
	default:
		if r.message != nil {
			return proto.CloneOf(r.message)
		}
	}
	return out
}

// scope is the protocol's form of Scope, 0 or less for none.
func (r *Resolution) scope() agentdv1.ApprovalScope {
	return agentdv1.ApprovalScope(numberOf(r.Scope, "APPROVAL_SCOPE_", agentdv1.ApprovalScope_value))
}

// checked returns the message to send, or why it cannot be sent.
func (r *Resolution) checked() (*agentdv1.Resolution, error) {
	switch {
	case r == nil:
		return nil, errors.New("there is no resolution; make one with client.Approve, Edit, Deny or Answer")
	case r.err != nil:
		return nil, r.err
	case r.Scope != "" && r.Kind != ResolutionApproval, r.scope() == math.MaxInt32:
		return nil, fmt.Errorf("the scope of an approval is one of once, session, session_verb, session_tool "+
			"and always, got %.80q", r.Scope)
	default:
		return r.Proto(), nil
	}
}

// enum is a protobuf enum.
type enum interface{ String() string }

// wordOf is the name of an enum's value in lower case and without its prefix; empty
// for the unspecified one.
func wordOf(value enum, prefix string) string {
	word := strings.ToLower(strings.TrimPrefix(value.String(), prefix))
	if word == "unspecified" {
		return ""
	}
	return word
}

// timeOf is zero where the server does not say.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// rawOf is nil where the server sent none.
func rawOf(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
