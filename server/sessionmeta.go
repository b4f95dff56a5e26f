package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// defaultPage is the size of a list's page if the request sets none.
const defaultPage = 50

func (s *sessionService) CreateSession(
	ctx context.Context, r *connect.Request[agentdv1.CreateSessionRequest],
) (*connect.Response[agentdv1.CreateSessionResponse], error) {
	metadata, e := metadataText(r.Msg.GetMetadata())
	if e != nil {
		return nil, e
	}
	names := session.Names{
		Labels: r.Msg.GetLabels(), ClientRef: r.Msg.GetClientRef(), DropToolPayloads: r.Msg.GetDropToolPayloads(),
		ID: r.Msg.GetSessionId(), Metadata: metadata, Agent: r.Msg.GetAgentRef(),
	}
	once := onceOf(r.Msg.GetIdempotencyKey(), r.Msg)
	info, err := s.now().Sessions.CreateSession(ctx, names, budgetOf(r.Msg.GetBudget()), once)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CreateSessionResponse{Session: sessionOf(&info)}), nil
}

func (s *sessionService) GetSession(
	ctx context.Context, r *connect.Request[agentdv1.GetSessionRequest],
) (*connect.Response[agentdv1.GetSessionResponse], error) {
	info, err := s.now().Sessions.Session(ctx, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetSessionResponse{Session: sessionOf(&info)}), nil
}

func (s *sessionService) ListSessions(
	ctx context.Context, r *connect.Request[agentdv1.ListSessionsRequest],
) (*connect.Response[agentdv1.ListSessionsResponse], error) {
	f := index.SessionQuery{
		Labels:        r.Msg.GetLabels(),
		ClientRef:     r.Msg.GetClientRef(),
		LastIs:        statusesOf(r.Msg.GetTurnStatuses()),
		CreatedFrom:   timeOf(r.Msg.GetCreatedSince()),
		CreatedBefore: timeOf(r.Msg.GetCreatedBefore()),
		UpdatedFrom:   timeOf(r.Msg.GetUpdatedSince()),
		UpdatedBefore: timeOf(r.Msg.GetUpdatedBefore()),
	}
	for i, state := range r.Msg.GetStates() {
		archived := state == agentdv1.SessionState_SESSION_STATE_ARCHIVED
		switch {
		case i == 0:
			f.Archived = &archived
		case f.Archived != nil && *f.Archived != archived:
			f.Archived = nil // both
		}
	}
	infos, next, err := s.now().Sessions.ListSessions(ctx, f, r.Msg.GetPageToken(), pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListSessionsResponse{NextPageToken: next}
	for _, info := range infos {
		out.Sessions = append(out.Sessions, sessionOf(&info))
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) UpdateSession(
	ctx context.Context, r *connect.Request[agentdv1.UpdateSessionRequest],
) (*connect.Response[agentdv1.UpdateSessionResponse], error) {
	change := store.Change{Version: r.Msg.GetVersion(), Labels: r.Msg.GetLabels(), ClientRef: r.Msg.ClientRef}
	if r.Msg.State != nil {
		change.Archived = new(r.Msg.GetState() == agentdv1.SessionState_SESSION_STATE_ARCHIVED)
	}
	if b := r.Msg.GetBudget(); b != nil {
		change.Budget = new(budgetOf(b))
	}
	if r.Msg.Metadata != nil {
		text, e := metadataText(r.Msg.GetMetadata())
		if e != nil {
			return nil, e
		}
		change.Metadata = &text
	}
	info, err := s.now().Sessions.UpdateSession(ctx, r.Msg.GetSessionId(), change)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.UpdateSessionResponse{Session: sessionOf(&info)}), nil
}

func (s *sessionService) CompactSession(
	ctx context.Context, r *connect.Request[agentdv1.CompactSessionRequest],
) (*connect.Response[agentdv1.CompactSessionResponse], error) {
	pos, err := s.now().Sessions.CompactSession(ctx, r.Msg.GetSessionId(), r.Msg.GetFocus())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CompactSessionResponse{Seq: pos}), nil
}

func (s *sessionService) DeleteSession(
	ctx context.Context, r *connect.Request[agentdv1.DeleteSessionRequest],
) (*connect.Response[agentdv1.DeleteSessionResponse], error) {
	if err := s.now().Sessions.DeleteSession(ctx, r.Msg.GetSessionId()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.DeleteSessionResponse{}), nil
}

func (s *sessionService) ForkSession(
	ctx context.Context, r *connect.Request[agentdv1.ForkSessionRequest],
) (*connect.Response[agentdv1.ForkSessionResponse], error) {
	info, err := s.now().Sessions.ForkSession(ctx, session.ForkRequest{
		SessionID: r.Msg.GetSessionId(),
		At:        r.Msg.ThroughSeq,
		Names:     session.Names{Labels: r.Msg.GetLabels(), ClientRef: r.Msg.GetClientRef()},
		Once:      onceOf(r.Msg.GetIdempotencyKey(), r.Msg),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ForkSessionResponse{Session: sessionOf(&info)}), nil
}

// sessionOf translates a session.
func sessionOf(s *index.Session) *agentdv1.Session {
	out := &agentdv1.Session{
		Id: s.ID, State: agentdv1.SessionState_SESSION_STATE_ACTIVE, Labels: s.Labels,
		ClientRef: s.ClientRef, CreatedBy: s.Owner().ID,
		CreateTime: stamp(s.CreatedAt), UpdateTime: stamp(s.UpdatedAt), Usage: s.Usage.Proto(), Version: s.Version,
		ForkedFrom: s.ForkedFrom, ForkedThroughSeq: s.ForkedAt,
		LastTurnId: s.LastTurn, LastTurnStatus: turnStatuses[s.LastIs], LastSeq: s.LastPosition(), Purged: s.Purged > 0,
		DropToolPayloads: s.DropToolPayloads,
	}
	if s.Budget != (record.Budget{}) {
		out.Budget = s.Budget.Proto()
	}
	if s.Metadata != "" {
		out.Metadata = &structpb.Struct{}
		if json.Unmarshal([]byte(s.Metadata), out.GetMetadata()) != nil { // not reached: the server has written it
			out.Metadata = nil
		}
	}
	if name, version, ok := s.MadeWith(); ok {
		out.AgentRef = &agentdv1.AgentRef{Name: name, Version: version}
	}
	if s.Archived {
		out.State = agentdv1.SessionState_SESSION_STATE_ARCHIVED
	}
	return out
}

// metadataText returns a session's metadata as it is kept: JSON text without white space, "" for an empty object.
func metadataText(m *structpb.Struct) (string, *fault.Error) {
	if len(m.GetFields()) == 0 {
		return "", nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m.AsMap()); err != nil {
		return "", fault.Errorf(codeInvalid, "metadata: %v", err).Breaking("metadata", fault.RuleFormat)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	left := maxValues
	if _, e := jsonText("metadata", text, &left); e != nil {
		return "", e
	}
	return text, nil
}

func stamp(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

// timeOf is the time that a request names; zero for none.
func timeOf(at *timestamppb.Timestamp) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.AsTime()
}

// statusesOf returns each status once, in order: a page token is for one list,
// however its request is written.
func statusesOf(want []agentdv1.TurnStatus) []index.Status {
	var out []index.Status
	for is, name := range turnStatuses {
		if slices.Contains(want, name) {
			out = append(out, is)
		}
	}
	slices.Sort(out)
	return out
}

func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPage
	}
	return int(asked)
}

// onceOf distinguishes requests under the same key. Its result for a request must not
// change from one version to the next, since keys outlive versions.
func onceOf(key string, msg proto.Message) session.Once {
	msg = proto.Clone(msg)
	if field := msg.ProtoReflect().Descriptor().Fields().ByName("idempotency_key"); field != nil {
		msg.ProtoReflect().Clear(field) // a message in msg that has it has it always
	}
	var b bytes.Buffer
	data, err := protojson.Marshal(msg)
	if err == nil {
		err = json.Compact(&b, data) // protojson varies its spaces on purpose
	}
	if err != nil { // not reached: the message came off the wire
		return session.Once{Key: key, Content: err.Error()}
	}
	sum := sha256.Sum256(b.Bytes())
	return session.Once{Key: key, Content: hex.EncodeToString(sum[:])}
}
