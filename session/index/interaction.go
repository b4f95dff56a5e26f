package index

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// An interaction is a tool call with a question; in old logs its id is the call's. Until a person resolves it, the
// server offers the call to no client and the call's timeout does not run. The resolution is one record. It
// is the call's result, except for an approval, which opens the call for clients. A result without a
// resolution (a cancel) and the end of the turn cancel the interaction.
//
// A client may raise questions about a call that it runs, which are interactions too. They change nothing for the
// call: the client makes of what is said what it will. The call's result and the end of the turn cancel them.

const (
	askApproval = agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL

	askPending  = agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING
	askResolved = agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED
	askCanceled = agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED
)

// forClients are the calls about which no person is asked.
func forClients(calls ...record.ToolCall) []record.ToolCall {
	return slices.DeleteFunc(slices.Clone(calls), func(c record.ToolCall) bool { return c.Asks != nil })
}

// Interaction is one question of a turn to a person.
type Interaction struct {
	// SessionID and TurnID say who asks.
	SessionID string `json:"-"`
	TurnID    string `json:"-"`
	// Call is the call as the model has made it; its Asks is set.
	Call record.ToolCall `json:"call"`
	// Status is how it is.
	Status agentdv1.InteractionStatus `json:"status"`
	// Created is when it was asked, and Ended when it was resolved or canceled; zero before.
	Created time.Time `json:"-"`
	Ended   time.Time `json:"ended,omitzero"`
	// Resolution is nil unless it is resolved.
	Resolution *record.Resolution `json:"resolution,omitempty"`
	// By is the id of the principal who has resolved it, "" before.
	By string `json:"by,omitempty"`
	// Expires is when the turn is ended, unless something happens in it before; zero when it is not
	// pending.
	Expires time.Time `json:"-"`

	seq int64 // the record that asks
}

// ID is the interaction's id.
func (in *Interaction) ID() string { return in.Call.InteractionID() }

// Raised reports whether a client asks, about a call that it runs.
func (in *Interaction) Raised() bool { return in.Call.Asks.N > 0 }

// Proto is the protocol's form. A caller's key is not part of it.
func (in *Interaction) Proto() *agentdv1.Interaction {
	out := &agentdv1.Interaction{
		Id:         in.ID(),
		ToolCallId: in.Call.ID,
		ResolvedBy: in.By,
		SessionId:  in.SessionID,
		TurnId:     in.TurnID,
		Status:     in.Status,
		AgentPath:  in.Call.Path,
		Kind:       in.Call.Asks.Kind,
		Question:   in.Call.Asks.Text,
		Choices:    in.Call.Asks.Choices,
		CreateTime: timestamppb.New(in.Created),
		Source:     in.Call.Asks.Source,
		N:          in.Call.Asks.N,
	}
	if out.GetKind() == askApproval {
		out.ToolName, out.ToolInput = in.Call.Name, string(in.Call.Input)
	}
	if !in.Ended.IsZero() {
		out.EndTime = timestamppb.New(in.Ended)
	}
	if in.Status == askPending && !in.Expires.IsZero() {
		out.ExpireTime = timestamppb.New(in.Expires)
	}
	if r := in.Resolution; r != nil {
		out.Resolution = resolutionProto(r)
	}
	return out
}

func resolutionProto(r *record.Resolution) *agentdv1.Resolution {
	switch r.Decision {
	case record.Approve:
		approve := &agentdv1.Approval{}
		if r.Scope != 0 {
			approve.Scope = r.Scope.Enum()
		}
		if r.Input != nil {
			approve.ToolInput = new(string(r.Input))
		}
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: approve}}
	case record.Reply:
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: r.Answer}}
	default:
		return &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: r.Reason}}}
	}
}

// Asked holds the pending interactions that follow from the records of a log, added in order.
type Asked struct {
	SessionID string         // may be empty
	Retention time.Duration  // how long a turn waits; 0: not known
	Pending   []*Interaction // in the order in which they were asked
}

// Add takes a record and returns the interactions that it has made or ended. open are calls for clients, with all
// of its turn that have no result.
func (a *Asked) Add(rec record.Record, fact any, open []record.ToolCall) (changed []*Interaction) {
	switch f := fact.(type) {
	case *record.Event, *record.ToolCall:
		for _, c := range record.CallsOf(f) {
			if c.Asks != nil {
				changed = append(changed, a.begin(rec, c))
			}
		}
	case *record.Question:
		for _, c := range open {
			if c.ID == f.CallID && c.Asks == nil {
				return []*Interaction{a.begin(rec, f.Asking(c))}
			}
		}
	case *record.InteractionResolved:
		changed = a.end(func(in *Interaction) bool { return in.Call.ID == f.ID && in.Call.Asks.N == f.N })
		for _, in := range changed {
			in.Status, in.Ended, in.Resolution, in.By = askResolved, rec.Time, &f.Resolution, f.By
		}
	case *record.ToolResult:
		changed = a.end(func(in *Interaction) bool { return in.Call.ID == f.CallID })
		for _, in := range changed {
			in.Status, in.Ended = askCanceled, rec.Time
		}
	case *record.TurnEnded:
		changed = a.end(func(in *Interaction) bool { return in.TurnID == rec.TurnID })
		for _, in := range changed {
			in.Status, in.Ended = askCanceled, rec.Time
		}
	}
	return changed
}

// begin makes an interaction of a call that asks.
func (a *Asked) begin(rec record.Record, c record.ToolCall) *Interaction {
	in := &Interaction{
		SessionID: a.SessionID,
		TurnID:    rec.TurnID,
		Call:      c,
		Status:    askPending,
		Created:   rec.Time,
		seq:       rec.Seq,
	}
	if a.Retention > 0 {
		in.Expires = rec.Time.Add(a.Retention)
	}
	a.Pending = append(a.Pending, in)
	return in
}

// end returns those that are not pending any more.
func (a *Asked) end(over func(*Interaction) bool) (ended []*Interaction) {
	a.Pending = slices.DeleteFunc(a.Pending, func(in *Interaction) bool {
		if over(in) {
			ended = append(ended, in)
			return true
		}
		return false
	})
	return ended
}

// Clone returns interactions that change by themselves.
func (a Asked) Clone() Asked {
	pending := make([]*Interaction, len(a.Pending))
	for i, in := range a.Pending {
		c := *in
		pending[i] = &c
	}
	a.Pending = pending
	return a
}

// The statuses of interactions in rows.
var askRows = map[agentdv1.InteractionStatus]string{
	askPending:  "pending",
	askResolved: "resolved",
	askCanceled: "canceled",
}

// row is the interaction as it stands in a store.
func (in *Interaction) row(sessionID string) (store.Row, error) {
	data, err := logjson.Marshal(in)
	return store.Row{
		Kind:      store.RowInteraction,
		SessionID: sessionID,
		ID:        in.ID(),
		TurnID:    in.TurnID,
		Seq:       in.seq,
		CreatedAt: in.Created,
		Status:    askRows[in.Status],
		Data:      data,
	}, err
}

// readInteraction reads what row has written. retention is how long its turn waits.
func readInteraction(r store.Row, retention time.Duration) (*Interaction, error) {
	in := &Interaction{}
	if err := logjson.Unmarshal(r.Data, in); err != nil {
		return nil, fmt.Errorf("session %s: interaction %s: its row: %w", r.SessionID, r.ID, err)
	}
	in.SessionID, in.TurnID, in.Created, in.seq = r.SessionID, r.TurnID, r.CreatedAt, r.Seq
	in.Expires = in.Created.Add(retention)
	return in, nil
}
