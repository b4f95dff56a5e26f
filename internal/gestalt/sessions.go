package gestalt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

const (
	// maxListed is how many objects a list has at most, also where the host sets no limit.
	maxListed = 500
	// listPage is how many rows are read at once.
	listPage = 100
	// maxKey is how long an idempotency key may be, in bytes, and maxSubject the id of a subject.
	maxKey, maxSubject = 256, 256
	// kept begins the keys of a session's metadata that an update does not remove.
	kept = "__gestalt.lifecycle."
)

// goodID matches the ids that a session or a turn may have.
var goodID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

func checkID(field, id string) error {
	if !goodID.MatchString(id) {
		return invalidf("%s is %.200q: want 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first",
			field, id)
	}
	return nil
}

func checkKey(key string) error {
	if len(key) > maxKey {
		return invalidf("idempotency_key has %d bytes, want at most %d", len(key), maxKey)
	}
	return nil
}

func checkLimit(limit int32) error {
	if limit < 0 {
		return invalidf("limit is %d, want at least 0", limit)
	}
	return nil
}

// most is how many objects are listed for a limit.
func most(limit int32) int {
	if limit == 0 || limit > maxListed {
		return maxListed
	}
	return int(limit)
}

// subjectOf is for whom the host asks.
func subjectOf(s *gestaltv1.AgentSubjectContext) (string, error) {
	id := s.GetSubjectId()
	if id == "" || len(id) > maxSubject || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", invalidf("subject.subject_id is %.300q: want 1 to %d bytes without control characters",
			id, maxSubject)
	}
	return id, nil
}

// contentOf is the SHA-256 of a request, in hexadecimal digits.
func contentOf(m proto.Message) (string, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "", invalidf("the request cannot be encoded: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// CreateSession makes a session under the host's id.
func (p *Provider) CreateSession(
	ctx context.Context, r *connect.Request[gestaltv1.CreateSessionRequest],
) (*connect.Response[gestaltv1.AgentSession], error) {
	req := r.Msg
	subject, err := subjectOf(req.GetSubject())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkID("session_id", req.GetSessionId()), checkKey(req.GetIdempotencyKey())); err != nil {
		return nil, first(err)
	}
	if _, err := p.now().trees.tree(req.GetModel()); err != nil {
		return nil, err
	}
	said := proto.CloneOf(req)
	said.IdempotencyKey, said.Subject = "", nil
	content, err := contentOf(said)
	if err != nil {
		return nil, err
	}
	request, err := proto.Marshal(said)
	if err != nil {
		return nil, invalidf("the request cannot be encoded: %w", err)
	}
	at := time.Now()
	row := &Session{
		ID: req.GetSessionId(), Subject: subject, Key: req.GetIdempotencyKey(), Content: content, Request: request,
		Created: at, Updated: at,
	}
	known, err := p.store.AddSession(ctx, row)
	switch {
	case err != nil:
		return nil, p.stored(ctx, err)
	case known != nil && known.Subject != subject, known != nil && known.ID == row.ID && known.Content != content:
		return nil, existsf("session %q was made by another request", row.ID)
	case known != nil:
		row = known
	}
	return p.makeSession(ctx, row, known == nil)
}

// makeSession has the daemon make a session of a row. It may have it already.
func (p *Provider) makeSession(
	ctx context.Context, row *Session, fresh bool,
) (*connect.Response[gestaltv1.AgentSession], error) {
	if !fresh {
		switch s, err := p.daemonSession(ctx, row); {
		case err == nil:
			return connect.NewResponse(p.sessionOf(row, s)), nil
		case !missing(err):
			return nil, p.passed(ctx, err)
		}
	}
	said := p.saidOf(row)
	reply, err := p.sessions.CreateSession(ctx, as(row.Subject, &agentdv1.CreateSessionRequest{
		SessionId: row.ID, ClientRef: said.GetClientRef(), Metadata: said.GetMetadata(),
	}))
	if err != nil {
		if fresh && ctx.Err() == nil && connect.CodeOf(err) != connect.CodeUnavailable {
			if err := p.store.RemoveSession(ctx, row.ID); err != nil {
				return nil, p.stored(ctx, err)
			}
		}
		if codes[codeOf(err)] == connect.CodeResourceExhausted { // such as metadata that is too large
			return nil, invalidf("%s", textOf(err))
		}
		return nil, p.passed(ctx, err)
	}
	return connect.NewResponse(p.sessionOf(row, reply.Msg.GetSession())), nil
}

// first is the first one of errors that were joined, since each has a code of its own.
func first(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()[0]
	}
	return err
}

// session returns a session of a subject.
func (p *Provider) session(ctx context.Context, subject, id string) (*Session, error) {
	row, err := p.store.Session(ctx, id)
	switch {
	case errors.Is(err, ErrNone), err == nil && row.Subject != subject:
		return nil, notFoundf("there is no session %.200q", id)
	case err != nil:
		return nil, p.stored(ctx, err)
	}
	return row, nil
}

// daemonSession returns what the daemon has of a session.
func (p *Provider) daemonSession(ctx context.Context, row *Session) (*agentdv1.Session, error) {
	reply, err := p.sessions.GetSession(ctx, as(row.Subject, &agentdv1.GetSessionRequest{SessionId: row.ID}))
	if err != nil {
		return nil, err
	}
	return reply.Msg.GetSession(), nil
}

// sessionOf puts together what the store and the daemon have of a session.
func (p *Provider) sessionOf(row *Session, s *agentdv1.Session) *gestaltv1.AgentSession {
	said := p.saidOf(row)
	state := gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ACTIVE
	if s.GetState() == agentdv1.SessionState_SESSION_STATE_ARCHIVED {
		state = gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ARCHIVED
	}
	return &gestaltv1.AgentSession{
		Id: row.ID, ProviderName: p.name(), Model: p.modelOf(row),
		ClientRef: s.GetClientRef(), State: state, Metadata: s.GetMetadata(), CreatedBy: said.GetCreatedBy(),
		CreatedAt: stamp(row.Created), UpdatedAt: stamp(row.Updated), LastTurnAt: stamp(row.Turned),
	}
}

// saidOf is the request that made a session.
func (p *Provider) saidOf(row *Session) *gestaltv1.CreateSessionRequest {
	said := &gestaltv1.CreateSessionRequest{}
	p.decode(row.Request, said)
	return said
}

// modelOf is the agent, or the model, of the turns of a session that name none.
func (p *Provider) modelOf(row *Session) string {
	return cmp.Or(p.saidOf(row).GetModel(), p.now().trees.chosen.GetName())
}

// stamp is a time as the host has it, nil for none.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// GetSession returns a session.
func (p *Provider) GetSession(
	ctx context.Context, r *connect.Request[gestaltv1.GetSessionRequest],
) (*connect.Response[gestaltv1.AgentSession], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	row, err := p.session(ctx, subject, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	s, err := p.daemonSession(ctx, row)
	if err != nil {
		return nil, p.passed(ctx, err)
	}
	return connect.NewResponse(p.sessionOf(row, s)), nil
}

// ListSessions lists the sessions of a subject, those first that were used last.
func (p *Provider) ListSessions(
	ctx context.Context, r *connect.Request[gestaltv1.ListSessionsRequest],
) (*connect.Response[gestaltv1.ListSessionsResponse], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err == nil {
		err = checkLimit(r.Msg.GetLimit())
	}
	if err != nil {
		return nil, err
	}
	state, out := r.Msg.GetState(), &gestaltv1.ListSessionsResponse{}
	if gestaltv1.AgentSessionState_name[int32(state)] == "" {
		return nil, invalidf("state is %d: want ACTIVE (1) or ARCHIVED (2), or none", state)
	}
	for offset := 0; ; offset += listPage {
		rows, err := p.store.Sessions(ctx, subject, offset, listPage)
		if err != nil {
			return nil, p.stored(ctx, err)
		}
		for _, row := range rows {
			if ids := r.Msg.GetSessionIds(); len(ids) > 0 && !slices.Contains(ids, row.ID) {
				continue
			}
			s, err := p.daemonSession(ctx, row)
			if missing(err) { // it is being made
				continue
			}
			if err != nil {
				return nil, p.passed(ctx, err)
			}
			one := p.sessionOf(row, s)
			if state != 0 && one.GetState() != state {
				continue
			}
			if out.Sessions = append(out.Sessions, one); len(out.Sessions) == most(r.Msg.GetLimit()) {
				return connect.NewResponse(out), nil
			}
		}
		if len(rows) < listPage {
			return connect.NewResponse(out), nil
		}
	}
}

// UpdateSession changes what is given, and leaves the rest.
func (p *Provider) UpdateSession(
	ctx context.Context, r *connect.Request[gestaltv1.UpdateSessionRequest],
) (*connect.Response[gestaltv1.AgentSession], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	change := &agentdv1.UpdateSessionRequest{SessionId: r.Msg.GetSessionId(), Metadata: r.Msg.GetMetadata()}
	if ref := r.Msg.GetClientRef(); ref != "" {
		change.ClientRef = &ref
	}
	switch state := r.Msg.GetState(); state {
	case gestaltv1.AgentSessionState_AGENT_SESSION_STATE_UNSPECIFIED:
	case gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ACTIVE:
		change.State = agentdv1.SessionState_SESSION_STATE_ACTIVE.Enum()
	case gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ARCHIVED:
		change.State = agentdv1.SessionState_SESSION_STATE_ARCHIVED.Enum()
	default:
		return nil, invalidf("state is %d: want ACTIVE (1) or ARCHIVED (2), or none", state)
	}
	row, err := p.session(ctx, subject, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	s, err := p.update(ctx, row, change)
	switch {
	case codes[codeOf(err)] == connect.CodeResourceExhausted:
		return nil, invalidf("%s", textOf(err))
	case err != nil:
		return nil, p.passed(ctx, err)
	}
	at := time.Now()
	if err := p.store.UpdateSession(ctx, row.ID, at); err != nil {
		return nil, p.stored(ctx, err)
	}
	row.Updated = at
	return connect.NewResponse(p.sessionOf(row, s)), nil
}

// update has the daemon change a session. What the host keeps in its metadata stays: if somebody else changes it
// meanwhile, it is read again.
func (p *Provider) update(
	ctx context.Context, row *Session, change *agentdv1.UpdateSessionRequest,
) (*agentdv1.Session, error) {
	given := change.GetMetadata()
	for {
		if given != nil {
			s, err := p.daemonSession(ctx, row)
			if err != nil {
				return nil, err
			}
			change.Version = new(s.GetVersion())
			change.Metadata = withKept(given, s.GetMetadata())
		}
		reply, err := p.sessions.UpdateSession(ctx, as(row.Subject, change))
		if err == nil {
			return reply.Msg.GetSession(), nil
		}
		if codeOf(err) != agentdv1.ErrorCode_ERROR_CODE_CONFLICT || ctx.Err() != nil {
			return nil, err
		}
	}
}

// withKept is new metadata with what of the old is the host's.
func withKept(given, old *structpb.Struct) *structpb.Struct {
	out := proto.CloneOf(given)
	for key, value := range old.GetFields() {
		if _, said := given.GetFields()[key]; !said && strings.HasPrefix(key, kept) {
			if out.Fields == nil {
				out.Fields = map[string]*structpb.Value{}
			}
			out.Fields[key] = value
		}
	}
	return out
}

// compact is JSON text without white space.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}
