package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// SessionState is whether a session takes new turns.
type SessionState string

// The states of a session.
const (
	// SessionActive takes new turns.
	SessionActive SessionState = "active"
	// SessionArchived takes none until it is active again; what runs continues.
	SessionArchived SessionState = "archived"
)

// Proto returns the protocol's number; 0 for the empty state.
func (s SessionState) Proto() agentdv1.SessionState {
	return agentdv1.SessionState(numberOf(string(s), "SESSION_STATE_", agentdv1.SessionState_value))
}

// SessionInfo is what a server knows of a session.
type SessionInfo struct {
	// ID names it.
	ID string
	// State is whether it takes new turns.
	State SessionState
	// Labels are the caller's own notes.
	Labels map[string]string
	// ClientRef is the caller's own name for it; it need not be unique.
	ClientRef string
	// CreatedBy is who made it.
	CreatedBy string
	// CreateTime is when it was made, and UpdateTime when something last happened in it.
	CreateTime, UpdateTime time.Time
	// Usage is what its turns have used so far.
	Usage *Usage
	// Budget is what they may spend, from the session's beginning; the zero Budget is no
	// bound but the server's.
	Budget Budget
	// Version rises with each update; see [SessionUpdate].
	Version int64
	// ForkedFrom is the session that it was forked from, and ForkedThroughSeq the last
	// position that it has inherited.
	ForkedFrom       string
	ForkedThroughSeq int64
	// LastTurnID is the turn that was started last; empty before the first.
	LastTurnID string
	// LastTurnStatus is how that turn is.
	LastTurnStatus TurnStatus
	// LastSeq is the position of the last thing that has happened.
	LastSeq int64
	// Purged is true when its log is no longer kept: it takes no new turns.
	Purged bool
	// DropToolPayloads is true when what tools were given and returned is not kept after its turn.
	DropToolPayloads bool
	// Metadata is the caller's own object, with numbers as float64; nil for none.
	Metadata map[string]any
	// Agent is the agent that it was made with; zero without one.
	Agent AgentRef

	message *agentdv1.Session
}

// Proto returns the message that it was made from.
func (i *SessionInfo) Proto() *agentdv1.Session { return proto.CloneOf(i.message) }

func sessionOf(m *agentdv1.Session) *SessionInfo {
	if m == nil {
		return nil
	}
	return &SessionInfo{
		ID: m.GetId(), State: SessionState(wordOf(m.GetState(), "SESSION_STATE_")), Labels: maps.Clone(m.GetLabels()),
		ClientRef: m.GetClientRef(), CreatedBy: m.GetCreatedBy(),
		CreateTime: timeOf(m.GetCreateTime()), UpdateTime: timeOf(m.GetUpdateTime()),
		Usage: UsageOf(m.GetUsage()), Budget: budgetOf(m.GetBudget()), Version: m.GetVersion(),
		ForkedFrom: m.GetForkedFrom(), ForkedThroughSeq: m.GetForkedThroughSeq(),
		LastTurnID: m.GetLastTurnId(), LastTurnStatus: TurnStatus(wordOf(m.GetLastTurnStatus(), "TURN_STATUS_")),
		LastSeq: m.GetLastSeq(), Purged: m.GetPurged(), DropToolPayloads: m.GetDropToolPayloads(),
		Metadata: metadataOf(m.GetMetadata()), Agent: agentRefOf(m.GetAgentRef()), message: m,
	}
}

// metadataOf returns an object of the caller's own, nil for none.
func metadataOf(m *structpb.Struct) map[string]any {
	if m == nil {
		return nil
	}
	return m.AsMap()
}

// metadataMessage is metadataOf the other way round. A map that is not nil becomes an object, also an empty one.
func metadataMessage(field string, m map[string]any) (*structpb.Struct, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // none is not said
	}
	data, err := json.Marshal(m)
	out := &structpb.Struct{}
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return nil, errorf(ErrInvalidRequest, "%s: it is no JSON object: %v", field, err)
	}
	return out, nil
}

// NewSessionInfo describes a session to make; a zero field is not said.
type NewSessionInfo struct {
	// Labels are at most 64, with keys up to 63 bytes and values up to 1,024.
	Labels map[string]string
	// ClientRef has at most 256 bytes.
	ClientRef string
	// IdempotencyKey, of at most 128 bytes, has a repeat return the session that the
	// first request has made.
	IdempotencyKey string
	// Budget is what the session may spend from its beginning, all of its turns together.
	// [WithSessionBudget] only tightens it, for its turn; [Session.Update] changes it.
	Budget Budget
	// DropToolPayloads has the arguments and the results of tools removed from the session's log with the end of their
	// turn: later turns, and readers, find the calls without them.
	DropToolPayloads bool
	// ID is the session's id, of at most 128 bytes; "" has the server choose one. A repeat with the same ID and content
	// returns the session that the first request has made. Not with IdempotencyKey.
	ID string
	// Metadata is an object of the caller's own, which the server keeps and does not read: at most 16,384 bytes as
	// JSON.
	Metadata map[string]any
	// Agent is the agent that the server keeps and that runs in turns of the session that bring none, until one has:
	// the version that it has now. See [Client.ApplyAgent].
	Agent AgentRef
}

// CreateSession makes a session without turns. A first turn
// makes one too: see [Client.NewSession].
func (c *Client) CreateSession(ctx context.Context, info NewSessionInfo, opts ...RequestOption) (*SessionInfo, error) {
	req := &agentdv1.CreateSessionRequest{
		Labels: info.Labels, ClientRef: info.ClientRef, IdempotencyKey: info.IdempotencyKey,
		DropToolPayloads: info.DropToolPayloads, SessionId: info.ID, AgentRef: info.Agent.Proto(),
	}
	var err error
	if req.Metadata, err = metadataMessage("client.NewSessionInfo.Metadata", info.Metadata); err != nil {
		return nil, err
	}
	if info.Budget != (Budget{}) {
		if req.Budget, err = info.Budget.checked("client.NewSessionInfo.Budget"); err != nil {
			return nil, err
		}
	}
	resp, err := unary(ctx, c, opts, c.sessions.CreateSession, req)
	return sessionOf(resp.GetSession()), err
}

// SessionFilter says which sessions to list; a zero field does not matter.
type SessionFilter struct {
	// States are those of the sessions.
	States []SessionState
	// Labels are all of a session's labels that it must have.
	Labels map[string]string
	// ClientRef is the sessions' name.
	ClientRef string
	// TurnStatuses are how the sessions' last turn is.
	TurnStatuses []TurnStatus
	// Since is inclusive, Before is not.
	CreatedSince, CreatedBefore, UpdatedSince, UpdatedBefore time.Time
	// PageSize is how many are asked for at a time, at most 1,000; 0 is 50.
	PageSize int
}

// Sessions lists sessions, newest first, and asks for the next page when it needs one.
func (c *Client) Sessions(
	ctx context.Context, filter SessionFilter, opts ...RequestOption,
) iter.Seq2[*SessionInfo, error] {
	return sizedPages(filter.PageSize, func(size int32, token string) ([]*SessionInfo, string, error) {
		resp, err := unary(ctx, c, opts, c.sessions.ListSessions, &agentdv1.ListSessionsRequest{
			PageSize: size, PageToken: token, Labels: filter.Labels, ClientRef: filter.ClientRef,
			States:       mapped(filter.States, SessionState.Proto),
			TurnStatuses: mapped(filter.TurnStatuses, TurnStatus.Proto),
			CreatedSince: stampOf(filter.CreatedSince), CreatedBefore: stampOf(filter.CreatedBefore),
			UpdatedSince: stampOf(filter.UpdatedSince), UpdatedBefore: stampOf(filter.UpdatedBefore),
		})
		return mapped(resp.GetSessions(), sessionOf), resp.GetNextPageToken(), err
	})
}

// Info says what the server knows of the session.
func (s *Session) Info(ctx context.Context, opts ...RequestOption) (*SessionInfo, error) {
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.GetSession,
		&agentdv1.GetSessionRequest{SessionId: s.id})
	return sessionOf(resp.GetSession()), err
}

// SessionUpdate says what to change; a zero field stays as it is.
type SessionUpdate struct {
	// Version is the one that the caller has read; another one is CONFLICT. 0 is any.
	Version int64
	// Labels are set; an empty value removes one.
	Labels map[string]string
	// ClientRef is the new name; one that points to "" has none.
	ClientRef *string
	// State archives the session, or makes it active again.
	State SessionState
	// Budget takes the place of the whole budget of the session, larger or smaller; one
	// that points to the zero Budget takes it away. It holds at once: a turn that runs is
	// checked against it from its next model call on.
	Budget *Budget
	// Metadata takes the place of the session's whole metadata; an empty map takes it away, nil leaves it.
	Metadata map[string]any
}

// Update changes what a session is called and may spend, or archives it.
func (s *Session) Update(ctx context.Context, update SessionUpdate, opts ...RequestOption) (*SessionInfo, error) {
	req := &agentdv1.UpdateSessionRequest{
		SessionId: s.id, Labels: update.Labels, ClientRef: update.ClientRef,
	}
	var err error
	if req.Metadata, err = metadataMessage("client.SessionUpdate.Metadata", update.Metadata); err != nil {
		return nil, err
	}
	if update.State != "" {
		req.State = new(update.State.Proto())
	}
	if update.Budget != nil {
		if req.Budget, err = update.Budget.checked("client.SessionUpdate.Budget"); err != nil {
			return nil, err
		}
	}
	if update.Version != 0 {
		req.Version = &update.Version
	}
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.UpdateSession, req)
	return sessionOf(resp.GetSession()), err
}

// Compact asks that a summary replaces what the models of the session have read so far:
// each agent writes its own before its next model call, of a turn that runs or of the
// next one, and [HistoryCompacted] says so. focus is what the summaries are to keep in
// particular, at most 16 KiB. It returns the position behind which they come. A session
// without a turn is FAILED_PRECONDITION.
func (s *Session) Compact(ctx context.Context, focus string, opts ...RequestOption) (seq int64, err error) {
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.CompactSession,
		&agentdv1.CompactSessionRequest{SessionId: s.id, Focus: focus})
	return resp.GetSeq(), err
}

// Delete cancels what runs in the session and removes it for good, with its log.
func (s *Session) Delete(ctx context.Context, opts ...RequestOption) error {
	_, err := unary(ctx, s.client, s.request(opts), s.client.sessions.DeleteSession,
		&agentdv1.DeleteSessionRequest{SessionId: s.id})
	return err
}

// ForkAt says where a fork ends, and what it is called.
type ForkAt struct {
	// ThroughSeq is the position of the last event to inherit, see [Event].Seq; nil is
	// all there is.
	ThroughSeq *int64
	// Labels, ClientRef and IdempotencyKey are those of [NewSessionInfo]; a fork inherits
	// none of them. It has a copy of the metadata.
	Labels         map[string]string
	ClientRef      string
	IdempotencyKey string
}

// Fork makes a session that begins with the history and the state of this one, which
// stays as it is, and with the budget that this one has now, of which it has spent nothing.
// The fork runs with the options of this Session.
func (s *Session) Fork(ctx context.Context, at ForkAt, opts ...RequestOption) (*Session, error) {
	if at.ThroughSeq != nil && *at.ThroughSeq < 0 {
		return nil, errorf(ErrInvalidRequest, "ForkAt.ThroughSeq: a position is at least 0, got %d", *at.ThroughSeq)
	}
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.ForkSession, &agentdv1.ForkSessionRequest{
		SessionId: s.id, ThroughSeq: at.ThroughSeq, Labels: at.Labels, ClientRef: at.ClientRef,
		IdempotencyKey: at.IdempotencyKey,
	})
	if err != nil {
		return nil, err
	}
	return s.client.Session(resp.GetSession().GetId(), slices.Clone(s.opts)...), nil
}

// InteractionFilter says which interactions to list; a zero field does not matter.
type InteractionFilter struct {
	// SessionID and TurnID are where they were asked; a turn needs its session.
	SessionID, TurnID string
	// Statuses are how they are.
	Statuses []InteractionStatus
	// PageSize is how many are asked for at a time, at most 1,000; 0 is 50.
	PageSize int
}

// Interactions lists what turns ask of people, newest first.
func (c *Client) Interactions(
	ctx context.Context, filter InteractionFilter, opts ...RequestOption,
) iter.Seq2[*Interaction, error] {
	return sizedPages(filter.PageSize, func(size int32, token string) ([]*Interaction, string, error) {
		resp, err := unary(ctx, c, opts, c.sessions.ListInteractions, &agentdv1.ListInteractionsRequest{
			SessionId: filter.SessionID, TurnId: filter.TurnID, PageSize: size, PageToken: token,
			Statuses: mapped(filter.Statuses, func(s InteractionStatus) agentdv1.InteractionStatus {
				n := numberOf(string(s), "INTERACTION_STATUS_", agentdv1.InteractionStatus_value)
				return agentdv1.InteractionStatus(n)
			}),
		})
		return mapped(resp.GetInteractions(), InteractionOf), resp.GetNextPageToken(), err
	})
}

// Interaction says how an interaction of the session is.
func (s *Session) Interaction(ctx context.Context, id string, opts ...RequestOption) (*Interaction, error) {
	rc, err := s.client.request(s.request(opts))
	if err != nil {
		return nil, err
	}
	return s.client.interaction(ctx, rc.header, s.id, id)
}

// stampOf is nil for the zero time.
func stampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TokenRequest says what a token for one session allows; see [Session.CreateToken].
type TokenRequest struct {
	// Tools are the names of the tools that the holder may declare and run.
	Tools []string
	// Lifetime is how long the token is valid, at most an hour; 0 is 10 minutes. It ends earlier if the
	// credential of this client does.
	Lifetime time.Duration
	// Observe says that the holder only watches.
	Observe bool
	// Agents says that the holder may bring an agent tree. Otherwise its turns continue with that of the session.
	Agents bool
}

// CreateToken makes a token with which a web page may use this session, and no other, for some minutes. It returns when
// the token ends. The page sends it as "Authorization: Bearer TOKEN".
func (s *Session) CreateToken(
	ctx context.Context, req TokenRequest, opts ...RequestOption,
) (token string, expires time.Time, err error) {
	msg := &agentdv1.CreateSessionTokenRequest{
		SessionId: s.id, ToolNames: req.Tools, Observe: req.Observe, Agents: req.Agents,
	}
	if req.Lifetime != 0 {
		msg.Lifetime = durationpb.New(req.Lifetime)
	}
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.CreateSessionToken, msg)
	if err != nil {
		return "", time.Time{}, err
	}
	return resp.GetToken(), resp.GetExpireTime().AsTime(), nil
}
