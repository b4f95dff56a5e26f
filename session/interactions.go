package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// What a turn asks a person is a tool call that says so: its id is the call's. As
// long as nobody has resolved it no client is asked for the call, and no time of
// it runs. What a person says is one record. It is the call's result, but for an
// approval, which opens the call for clients. A result that comes without one (a
// cancel), like the end of the turn, leaves nobody who waits for a person.

const (
	askApproval = agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL

	askPending  = agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING
	askResolved = agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED
	askCanceled = agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED
)

// Question makes a tool call one that asks a person.
type Question struct {
	// Kind is APPROVAL for whether the call may be made; on any other the answer is
	// the call's result.
	Kind agentdv1.InteractionKind `json:"kind"`
	// Text is the question; "" on an approval.
	Text string `json:"text,omitempty"`
	// Choices are answers to suggest.
	Choices []string `json:"choices,omitempty"`
}

// Decision is what a person has decided.
type Decision string

// The decisions.
const (
	Approve Decision = "approve" // the call may be made
	Deny    Decision = "deny"    // no call, or no answer
	Reply   Decision = "reply"   // an answer
)

// Resolution is what a person says to an interaction.
type Resolution struct {
	// Decision says which of the fields below counts.
	Decision Decision `json:"decision"`
	// Input, of Approve, are arguments in place of the model's, a JSON object; nil
	// leaves those.
	Input json.RawMessage `json:"input,omitempty"`
	// Reason, of Deny, is what the model is told.
	Reason string `json:"reason,omitempty"`
	// Answer, of Reply, is what the model is told.
	Answer string `json:"answer,omitempty"`
	// Key is the caller's own: a repeat with the same key and the same decision is
	// no second resolution. "" is none.
	Key string `json:"key,omitempty"`
}

// InteractionResolved says what a person has said; the first one stands.
type InteractionResolved struct {
	// ID is the interaction's, and the call's.
	ID string `json:"id"`
	Resolution
}

// result is what has become of the call; nil where a client is to make it.
func (f *InteractionResolved) result() *ToolResult {
	switch f.Decision {
	case Approve:
		return nil
	case Reply:
		return &ToolResult{CallID: f.ID, Outcome: Answered, Output: &f.Answer}
	default:
		reason := f.Reason
		if reason == "" {
			reason = "no reason was given"
		}
		return &ToolResult{CallID: f.ID, Outcome: Denied, Error: reason}
	}
}

// open is the call as clients are asked for it.
func (f *InteractionResolved) open(c ToolCall) ToolCall {
	c.Asks = nil
	if f.Input != nil {
		c.Input = f.Input
	}
	return c
}

// Interaction is one question of a turn to a person.
type Interaction struct {
	// SessionID and TurnID say who asks.
	SessionID, TurnID string
	// Call is the call as the model has made it; its Asks is set.
	Call ToolCall
	// Status is how it is.
	Status agentdv1.InteractionStatus
	// Created is when it was asked, and Ended when it was resolved or canceled; zero
	// before.
	Created, Ended time.Time
	// Resolution is nil unless it is resolved.
	Resolution *Resolution
}

// Proto is the protocol's form. A caller's key is not part of it.
func (in *Interaction) Proto() *agentdv1.Interaction {
	out := &agentdv1.Interaction{
		Id: in.Call.ID, SessionId: in.SessionID, TurnId: in.TurnID, Status: in.Status, AgentPath: in.Call.Path,
		Kind: in.Call.Asks.Kind, Question: in.Call.Asks.Text, Choices: in.Call.Asks.Choices,
		CreateTime: timestamppb.New(in.Created),
	}
	if out.GetKind() == askApproval {
		out.ToolName, out.ToolInput = in.Call.Name, string(in.Call.Input)
	}
	if !in.Ended.IsZero() {
		out.EndTime = timestamppb.New(in.Ended)
	}
	if r := in.Resolution; r != nil {
		out.Resolution = r.proto()
	}
	return out
}

func (r *Resolution) proto() *agentdv1.Resolution {
	switch r.Decision {
	case Approve:
		approve := &agentdv1.Resolution_Approve{}
		if r.Input != nil {
			approve.ToolInput = new(string(r.Input))
		}
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve_{Approve: approve}}
	case Reply:
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: r.Answer}}
	default:
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny_{Deny: &agentdv1.Resolution_Deny{Reason: r.Reason}}}
	}
}

// asked are the interactions of a log: what its records, added in order, say of
// them.
type asked struct {
	sessionID string
	all       []*Interaction // in the order in which they were asked
	pending   []*Interaction // those of all that are pending
}

// add takes a record and returns the interactions that it has made or ended.
func (a *asked) add(rec Record, fact any) (changed []*Interaction) {
	switch f := fact.(type) {
	case *Event, *ToolCall:
		for _, c := range callsOf(f) {
			if c.Asks != nil {
				in := &Interaction{SessionID: a.sessionID, TurnID: rec.TurnID, Call: c, Status: askPending, Created: rec.Time}
				a.all, a.pending = append(a.all, in), append(a.pending, in)
				changed = append(changed, in)
			}
		}
	case *InteractionResolved:
		changed = a.end(func(in *Interaction) bool { return in.Call.ID == f.ID })
		for _, in := range changed {
			in.Status, in.Ended, in.Resolution = askResolved, rec.Time, &f.Resolution
		}
	case *ToolResult:
		changed = a.end(func(in *Interaction) bool { return in.Call.ID == f.CallID })
		for _, in := range changed {
			in.Status, in.Ended = askCanceled, rec.Time
		}
	case *TurnEnded:
		changed = a.end(func(in *Interaction) bool { return in.TurnID == rec.TurnID })
		for _, in := range changed {
			in.Status, in.Ended = askCanceled, rec.Time
		}
	}
	return changed
}

// end returns those that are not pending any more.
func (a *asked) end(over func(*Interaction) bool) (ended []*Interaction) {
	a.pending = slices.DeleteFunc(a.pending, func(in *Interaction) bool {
		if over(in) {
			ended = append(ended, in)
			return true
		}
		return false
	})
	return ended
}

// interactions reads what a session has asked people.
func (s *Session) interactions(ctx context.Context) ([]*Interaction, error) {
	a := asked{sessionID: s.id}
	for rec, err := range s.records(ctx, 0, readPage) {
		if err != nil {
			return nil, err
		}
		fact, err := s.decode(rec)
		if err != nil {
			return nil, err
		}
		a.add(rec, fact)
	}
	return a.all, nil
}

// interaction reads one of them. One that is not there is an *Error of code
// NOT_FOUND.
func (s *Session) interaction(ctx context.Context, id string) (*Interaction, error) {
	all, err := s.interactions(ctx)
	if err != nil {
		return nil, err
	}
	for _, in := range all {
		if in.Call.ID == id {
			return in, nil
		}
	}
	return nil, Errorf(codeNoSuch, "interaction_id %q: session %q has no such interaction", id, s.id)
}

// Interactions returns what the turns of a session have asked people, in the
// order in which they have. It reads the whole log. Its errors are as those of
// Attach.
func (m *Manager) Interactions(ctx context.Context, sessionID string) ([]*Interaction, error) {
	h, err := m.acquire(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	return h.s.interactions(ctx)
}

// Interaction returns one of them; an unknown one is an *Error of code NOT_FOUND.
func (m *Manager) Interaction(ctx context.Context, sessionID, id string) (*Interaction, error) {
	h, err := m.acquire(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	return h.s.interaction(ctx, id)
}

// String names the question for an error.
func (q *Question) String() string {
	if q.Kind == askApproval {
		return "an approval"
	}
	return fmt.Sprintf("a question (%v)", q.Kind)
}
