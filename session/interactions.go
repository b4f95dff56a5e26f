package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
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
	// Created is when it was asked, and Ended when it was resolved or canceled; zero
	// before.
	Created time.Time `json:"-"`
	Ended   time.Time `json:"ended,omitzero"`
	// Resolution is nil unless it is resolved.
	Resolution *record.Resolution `json:"resolution,omitempty"`
	// By is the id of the principal who has resolved it, "" before.
	By string `json:"by,omitempty"`
	// Expires is when the turn is ended, unless something happens in it before; zero
	// when it is not pending.
	Expires time.Time `json:"-"`

	seq int64 // the record that asks
}

// ID is the interaction's id.
func (in *Interaction) ID() string { return in.Call.InteractionID() }

// Proto is the protocol's form. A caller's key is not part of it.
func (in *Interaction) Proto() *agentdv1.Interaction {
	out := &agentdv1.Interaction{
		Id: in.ID(), ToolCallId: in.Call.ID, ResolvedBy: in.By, SessionId: in.SessionID, TurnId: in.TurnID, Status: in.Status, AgentPath: in.Call.Path,
		Kind: in.Call.Asks.Kind, Question: in.Call.Asks.Text, Choices: in.Call.Asks.Choices,
		CreateTime: timestamppb.New(in.Created),
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

// asked are the interactions that are pending: what the records of a log, added
// in order, say of them.
type asked struct {
	sessionID string         // may be empty
	retention time.Duration  // how long a turn waits; 0: not known
	pending   []*Interaction // in the order in which they were asked
}

// add takes a record and returns the interactions that it has made or ended.
func (a *asked) add(rec record.Record, fact any) (changed []*Interaction) {
	switch f := fact.(type) {
	case *record.Event, *record.ToolCall:
		for _, c := range callsOf(f) {
			if c.Asks != nil {
				in := &Interaction{SessionID: a.sessionID, TurnID: rec.TurnID, Call: c, Status: askPending, Created: rec.Time, seq: rec.Seq}
				if a.retention > 0 {
					in.Expires = rec.Time.Add(a.retention)
				}
				a.pending = append(a.pending, in)
				changed = append(changed, in)
			}
		}
	case *record.InteractionResolved:
		changed = a.end(func(in *Interaction) bool { return in.Call.ID == f.ID })
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

// clone returns what changes by itself.
func (a asked) clone() asked {
	pending := make([]*Interaction, len(a.pending))
	for i, in := range a.pending {
		c := *in
		pending[i] = &c
	}
	a.pending = pending
	return a
}

// The statuses of interactions in rows.
var askRows = map[agentdv1.InteractionStatus]string{askPending: "pending", askResolved: "resolved", askCanceled: "canceled"}

// row is the interaction's entry of the index.
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

// interactionOf reads what row has written.
func (p *patient) interactionOf(r store.Row) (*Interaction, error) {
	in := &Interaction{}
	if err := logjson.Unmarshal(r.Data, in); err != nil {
		return nil, fmt.Errorf("session %s: interaction %s: its row: %w", r.SessionID, r.ID, err)
	}
	in.SessionID, in.TurnID, in.Created, in.seq = r.SessionID, r.TurnID, r.CreatedAt, r.Seq
	in.Expires = in.Created.Add(p.shared.limits.Retention)
	return in, nil
}

// interaction reads one of the session's. One that is not there is a *fault.Error of
// code NOT_FOUND.
func (p *patient) interaction(ctx context.Context, sessionID, id string) (*Interaction, error) {
	row, err := p.Row(ctx, store.RowInteraction, sessionID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fault.Errorf(fault.NotFound, "interaction_id: session %q has no interaction %q", sessionID, id)
	case err != nil:
		return nil, fmt.Errorf("session %s: interaction %s: %w", sessionID, id, err)
	}
	return p.interactionOf(row)
}

// waitsFor is how the open turn of a session is that runs nowhere.
func (p *patient) waitsFor(ctx context.Context, info store.Info) (Status, error) {
	rows, err := p.Rows(ctx, store.RowQuery{Kind: store.RowInteraction, SessionID: info.ID, TurnID: info.LastTurn, Statuses: []string{askRows[askPending]}, Limit: 1})
	switch {
	case err != nil:
		return 0, fmt.Errorf("session %s: what it waits for: %w", info.ID, err)
	case len(rows) > 0:
		return WaitingForInput, nil
	default:
		return WaitingForClient, nil
	}
}

// Interaction says how an interaction is; one that the session does not have is an
// *fault.Error of code NOT_FOUND.
func (m *Manager) Interaction(ctx context.Context, sessionID, id string) (*Interaction, error) {
	if _, err := m.known(ctx, sessionID); err != nil {
		return nil, err
	}
	return m.store.interaction(ctx, sessionID, id)
}

// InteractionQuery says which interactions; what is zero does not matter.
type InteractionQuery struct {
	// SessionID and TurnID are those that ask; a turn only together with its session.
	SessionID, TurnID string
	// Statuses are those of which an interaction has to have one.
	Statuses []agentdv1.InteractionStatus
}

// ListInteractions returns at most limit interactions, newest first, fewer if they
// are large, and the token of the next page, "" on the last one. page is a token
// of the same query, "" for the first page. A turn that its session does not have
// is a *fault.Error of code NOT_FOUND.
func (m *Manager) ListInteractions(ctx context.Context, q InteractionQuery, page string, limit int) (list []*Interaction, next string, err error) {
	hash := queryHash(q)
	after, err := readToken(page, hash)
	if err != nil {
		return nil, "", err
	}
	if q.TurnID != "" && q.SessionID == "" {
		return nil, "", fault.Errorf(fault.Invalid, "turn_id without session_id: a turn is named together with its session").
			Breaking("session_id", fault.RuleRequired)
	}
	if q.SessionID != "" {
		if err := m.hasTurn(ctx, q.SessionID, q.TurnID); err != nil {
			return nil, "", err
		}
	}
	rq := store.RowQuery{Kind: store.RowInteraction, SessionID: q.SessionID, TurnID: q.TurnID, Limit: min(limit+1, listRows)}
	for _, is := range q.Statuses {
		rq.Statuses = append(rq.Statuses, askRows[is])
	}
	if after != nil {
		rq.After = &store.Row{CreatedAt: after.created(), SessionID: after.Session, Seq: after.Seq, ID: after.ID}
	}
	bytes := 0
	for {
		rows, err := m.store.Rows(ctx, rq)
		if err != nil {
			return nil, "", fmt.Errorf("session: list interactions: %w", err)
		}
		for _, row := range rows {
			if full(len(list), limit, bytes, len(row.Data)) {
				last := rq.After
				return list, token{hash, last.CreatedAt.UnixMicro(), last.SessionID, last.Seq, last.ID}.String(), nil
			}
			in, err := m.store.interactionOf(row)
			if err != nil {
				return nil, "", err
			}
			list, rq.After = append(list, in), &row
			bytes += len(row.Data)
		}
		if store.LastRows(rows, rq.Limit) {
			return list, "", nil
		}
	}
}
