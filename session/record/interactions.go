package record

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// Question makes a tool call one that asks a person.
type Question struct {
	// ID is the interaction's; "" in logs of before it had one, where it is the call's.
	ID string `json:"id,omitempty"`
	// Kind is APPROVAL for whether the call may be made; on any other the answer is the call's result.
	Kind agentdv1.InteractionKind `json:"kind"`
	// Text is the question; "" on an approval.
	Text string `json:"text,omitempty"`
	// Choices are answers to suggest.
	Choices []string `json:"choices,omitempty"`
	// N is the number of a question that a client raises about a call that it runs, from 1; 0 for a call's own.
	N uint32 `json:"n,omitempty"`
	// CallID is, of such a question, the call's; Source says in whose name the client asks, "" for none; and By is
	// the id of the principal who asks.
	CallID string `json:"call_id,omitempty"`
	Source string `json:"source,omitempty"`
	By     string `json:"by,omitempty"`
}

// Raise makes the question one that a client raises about a call, as its number says.
func (q *Question) Raise(callID, by string) {
	q.ID, q.CallID, q.By = fmt.Sprintf("%s#%d", callID, q.N), callID, by
}

// Asking is the call that the question was raised about, as one that asks it.
func (q *Question) Asking(c ToolCall) ToolCall {
	c.Asks = q
	return c
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
	// Scope, of Approve to a question that was raised, is how far it holds; 0 is this once.
	Scope agentdv1.ApprovalScope `json:"scope,omitempty"`
	// Input, of Approve, are arguments in place of the model's, a JSON object; nil leaves those.
	Input json.RawMessage `json:"input,omitempty"`
	// Reason, of Deny, is the text that the model receives.
	Reason string `json:"reason,omitempty"`
	// Answer, of Reply, is the text that the model receives.
	Answer string `json:"answer,omitempty"`
	// Key is the caller's own: a repeat with the same key and the same decision is no second resolution. ""
	// is none.
	Key string `json:"key,omitempty"`
}

// InteractionResolved says what a person has said. The first one of an interaction counts.
type InteractionResolved struct {
	// ID is the call's.
	ID string `json:"id"`
	// N is the number of a question that was raised; 0 for the call's own.
	N uint32 `json:"n,omitempty"`
	// By is the id of the principal who has resolved it.
	By string `json:"by,omitempty"`
	Resolution
}

// Result is the result of the call; nil where a client makes it.
func (f *InteractionResolved) Result() *ToolResult {
	switch {
	case f.N > 0, f.Decision == Approve:
		return nil
	case f.Decision == Reply:
		return &ToolResult{CallID: f.ID, Outcome: Returned, Output: &f.Answer}
	default:
		reason := f.Reason
		if reason == "" {
			reason = "no reason was given"
		}
		return &ToolResult{CallID: f.ID, Outcome: Denied, Error: reason}
	}
}

// ApprovedCall is the call as clients are asked for it.
func (r *Resolution) ApprovedCall(c ToolCall) ToolCall {
	c.Asks = nil
	if r.Input != nil {
		c.Input = r.Input
	}
	return c
}

// String names the question for an error.
func (q *Question) String() string {
	if q.Kind == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		return "an approval"
	}
	return fmt.Sprintf("a question (%v)", q.Kind)
}

// SetNewID gives the question an id of its own, which says nothing.
func (q *Question) SetNewID() { q.ID = "i-" + strings.ToLower(rand.Text()) }

// InteractionID is the id of what the call asks.
func (c *ToolCall) InteractionID() string { return cmp.Or(c.Asks.ID, c.ID) }

// Repeats is what a resolution comes to after another one.
func (r *Resolution) Repeats(id string, o Resolution) error {
	if o.Input != nil {
		var b bytes.Buffer
		if json.Compact(&b, o.Input) == nil {
			o.Input = b.Bytes()
		}
	}
	if r.Key != "" && r.Key == o.Key && r.Decision == o.Decision && r.Reason == o.Reason && r.Scope == o.Scope &&
		r.Answer == o.Answer && bytes.Equal(r.Input, o.Input) {
		return nil
	}
	return fault.Errorf(fault.Precondition,
		"interaction %q: it has been resolved before (%s), the first resolution stands",
		id, r.Decision)
}
