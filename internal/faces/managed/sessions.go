package managed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A session of the protocol is a session that this face has made: it has the label with the id of its agent, by which
// lists find it, and its note in the metadata.

const (
	labelAgent   = "managed-agents.agent"
	labelVersion = "managed-agents.version"

	maxSessionPage = 100
)

// sessionNote is the metadata of a session.
type sessionNote struct {
	Title       *string           `json:"title,omitempty"`
	Environment string            `json:"environment"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Agent       agentRef          `json:"agent"`
	Archived    *time.Time        `json:"archived,omitempty"`
}

// ours returns the note of a session, or that there is no such session.
func ours(s *agentdv1.Session) (*sessionNote, error) {
	note := noteOf[sessionNote](s.GetMetadata())
	if note == nil || s.GetLabels()[labelAgent] == "" {
		return nil, missingf("there is no session %.80q that this protocol has made", s.GetId())
	}
	return note, nil
}

// session returns a session and its note.
func (f *face) session(ctx context.Context, id string) (*agentdv1.Session, *sessionNote, error) {
	resp, err := f.env.Sessions.GetSession(ctx, connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: id}))
	if err != nil {
		return nil, nil, err
	}
	note, err := ours(resp.Msg.GetSession())
	return resp.Msg.GetSession(), note, err
}

// chosen is the agent of a new session.
type chosen struct {
	of  agentRef           // as the client names it
	ref *agentdv1.AgentRef // what runs
}

// chooseAgent reads which agent a session is to have.
func (f *face) chooseAgent(ctx context.Context, in *input) (*chosen, error) {
	ref := agentRef{Type: "agent"}
	var with *input
	if raw := in.raw("agent"); kindOf(raw) == "a string" {
		ref.ID = in.must("agent", maxName)
	} else if a := in.object("agent"); a != nil {
		kind := a.one("type", "agent", "agent_with_overrides")
		ref.ID, ref.Version = a.must("id", maxName), a.number("version", 1)
		if kind == "agent_with_overrides" {
			with = a
		}
		if with == nil {
			_ = a.done() // in keeps the error
		}
	} else {
		in.failf("agent", "is missing, want the id of an agent")
	}
	if err := in.err(); err != nil {
		return nil, err
	}
	got, err := f.agent(ctx, ref.ID, ref.Version)
	if f.isCode(err, notFound) {
		return nil, missingf("agent: there is no agent %.80q, or no such version of it", ref.ID)
	}
	if err != nil {
		return nil, err
	}
	ref.Version = got.GetVersion()
	out := &chosen{ref, &agentdv1.AgentRef{Name: ref.ID, Version: ref.Version}}
	if with == nil {
		return out, nil
	}
	return out, f.override(ctx, out, got, with)
}

// override stores an agent with what a session changes of it, apart from its versions.
func (f *face) override(ctx context.Context, c *chosen, base *agentdv1.RegisteredAgent, in *input) error {
	if noteOf[agentNote](base.GetMetadata()) == nil {
		in.failf("id", "is %.80q, which was not made by this protocol and takes no overrides", c.of.ID)
	}
	if base.GetArchiveTime() != nil {
		in.failf("id", "is %.80q, which is archived", c.of.ID)
	}
	d := definitionOf(base)
	d.readOverrides(in)
	in.unsupported("mcp_servers", "skills")
	if err := in.done(); err != nil {
		return err
	}
	b, err := f.build(ctx, &d)
	if err != nil {
		return err
	}
	b.note.Of = &c.of
	sum := sha256.Sum256(marshal([]any{c.of, d.model, d.system, d.tools, b.note}))
	req := b.request("agent_of_session_"+hex.EncodeToString(sum[:12]), metadataOf(b.note))
	resp, err := f.env.Sessions.ApplyAgent(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	c.ref = &agentdv1.AgentRef{Name: req.GetName(), Version: resp.Msg.GetAgent().GetVersion()}
	return nil
}

func (f *face) createSession(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	note := sessionNote{Environment: in.must("environment_id", maxName), Metadata: in.metadata(nil)}
	if !in.absent("title") {
		title := in.text("title", 1024)
		note.Title = &title
	} else {
		in.raw("title")
	}
	budget := in.budget("budget")
	initial, err := readEvents(in, "initial_events")
	if err != nil {
		return nil, err
	}
	for i := range initial {
		if initial[i].kind != "user.message" {
			return nil, badf("%s.type is %q: a session begins with messages of its user",
				initial[i].at, initial[i].kind)
		}
	}
	in.unsupported("resources", "vault_ids")
	in.raw("agent")
	if err := in.done(); err != nil {
		return nil, err
	}
	env, _, err := f.environment(ctx, note.Environment)
	if err != nil {
		return nil, err
	}
	if !env.Archived.IsZero() {
		return nil, badf("environment_id is %.80q, which is archived", note.Environment)
	}
	agent, err := f.chooseAgent(ctx, in)
	if err != nil {
		return nil, err
	}
	note.Agent = agent.of
	req := &agentdv1.CreateSessionRequest{
		Labels: map[string]string{
			labelAgent: agent.of.ID, labelVersion: strconv.FormatInt(agent.of.Version, 10),
		},
		AgentRef: agent.ref, Metadata: metadataOf(note), IdempotencyKey: r.Header.Get("Idempotency-Key"),
	}
	if budget != nil {
		req.Budget = budget.proto()
	}
	resp, err := f.env.Sessions.CreateSession(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	s := resp.Msg.GetSession()
	if len(initial) > 0 {
		if _, err := f.post(ctx, s, initial, req.GetIdempotencyKey()); err != nil {
			_, _ = f.env.Sessions.DeleteSession(ctx, // of no use without them
				connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: s.GetId()}))
			return nil, err
		}
		if s, _, err = f.session(ctx, s.GetId()); err != nil {
			return nil, err
		}
	}
	return f.newShelf().object(ctx, s, &note)
}

func (f *face) getSession(r *http.Request) (any, error) {
	if err := queryOf(r).done(); err != nil {
		return nil, err
	}
	s, note, err := f.session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return f.newShelf().object(r.Context(), s, note)
}

// changeSession changes a session and its note, once more if it was changed meanwhile.
func (f *face) changeSession(
	ctx context.Context, id string, change func(*sessionNote, *agentdv1.UpdateSessionRequest) error,
) (any, error) {
	for try := 1; ; try++ {
		s, note, err := f.session(ctx, id)
		if err != nil {
			return nil, err
		}
		version := s.GetVersion()
		req := &agentdv1.UpdateSessionRequest{SessionId: id, Version: &version}
		if err := change(note, req); err != nil {
			return nil, err
		}
		req.Metadata = metadataOf(note)
		resp, err := f.env.Sessions.UpdateSession(ctx, connect.NewRequest(req))
		if err == nil {
			return f.newShelf().object(ctx, resp.Msg.GetSession(), note)
		}
		if !f.isCode(err, conflict) || try == maxTries {
			return nil, err
		}
	}
}

func (f *face) updateSession(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	return f.changeSession(r.Context(), id, func(note *sessionNote, req *agentdv1.UpdateSessionRequest) error {
		if in.has("title") {
			title := in.text("title", 1024)
			if note.Title = &title; in.isNull("title") {
				note.Title = nil
			}
		}
		note.Metadata = in.metadata(note.Metadata)
		if budget := in.budget("budget"); in.has("budget") {
			req.Budget = budget.proto()
		}
		in.unsupported("agent", "vault_ids")
		return in.done()
	})
}

func (f *face) archiveSession(r *http.Request) (any, error) {
	id := r.PathValue("id")
	return f.changeSession(r.Context(), id, func(note *sessionNote, req *agentdv1.UpdateSessionRequest) error {
		if note.Archived == nil {
			now := time.Now().UTC()
			note.Archived = &now
		}
		req.State = agentdv1.SessionState_SESSION_STATE_ARCHIVED.Enum()
		return nil
	})
}

func (f *face) deleteSession(r *http.Request) (any, error) {
	s, _, err := f.session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	_, err = f.env.Sessions.DeleteSession(r.Context(),
		connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: s.GetId()}))
	if err != nil {
		return nil, err
	}
	return deletedObject{s.GetId(), "session_deleted"}, nil
}

// shelf makes objects of sessions for one request, and reads each agent once.
type shelf struct {
	*face
	agents map[string]*agentdv1.RegisteredAgent
}

func (f *face) newShelf() *shelf { return &shelf{f, map[string]*agentdv1.RegisteredAgent{}} }

// agentOf returns what a session runs; nil if it is gone.
func (s *shelf) agentOf(ctx context.Context, ref *agentdv1.AgentRef) (*agentdv1.RegisteredAgent, error) {
	key := ref.GetName() + "@" + strconv.FormatInt(ref.GetVersion(), 10)
	if a, ok := s.agents[key]; ok {
		return a, nil
	}
	a, err := s.agent(ctx, ref.GetName(), ref.GetVersion())
	if err != nil && !s.isCode(err, notFound) {
		return nil, err
	}
	s.agents[key] = a
	return a, nil
}

// body is the agent of a session as an object. Of one that is gone it has the id and the version.
func (s *shelf) body(ctx context.Context, of *agentdv1.Session, note *sessionNote) (agentBody, error) {
	a, err := s.agentOf(ctx, of.GetAgentRef())
	if err != nil {
		return agentBody{}, err
	}
	if a == nil {
		return (&definition{}).body(note.Agent.ID, note.Agent.Version), nil
	}
	return sessionAgent(a), nil
}

// object is a session as an object.
func (s *shelf) object(ctx context.Context, of *agentdv1.Session, note *sessionNote) (*sessionObject, error) {
	out := &sessionObject{
		ID: of.GetId(), Type: "session", EnvironmentID: note.Environment, Title: note.Title, Metadata: note.Metadata,
		Budget: budgetOf(of.GetBudget()), Usage: usageOf(of.GetUsage()),
		Resources: []struct{}{}, VaultIDs: []struct{}{}, OutcomeEvaluations: []struct{}{},
		CreatedAt: stampText(of.GetCreateTime()), UpdatedAt: stampText(of.GetUpdateTime()),
	}
	if note.Archived != nil {
		out.ArchivedAt = timeText(*note.Archived)
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	out.Stats.DurationSeconds = max(0, time.Since(of.GetCreateTime().AsTime()).Seconds())
	var err error
	if out.Agent, err = s.body(ctx, of, note); err != nil {
		return nil, err
	}
	if out.Status, err = s.statusNow(ctx, of); err != nil {
		return nil, err
	}
	out.Stats.ActiveSeconds, err = s.activeSeconds(ctx, of)
	return out, err
}

// statusNow is what the events of the last turn say: a client that has read of a change finds it here.
func (f *face) statusNow(ctx context.Context, s *agentdv1.Session) (string, error) {
	if s.GetPurged() {
		return statusTerminated, nil
	}
	switch s.GetLastTurnStatus() {
	case agentdv1.TurnStatus_TURN_STATUS_PENDING, agentdv1.TurnStatus_TURN_STATUS_RUNNING,
		agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT:
	default:
		return statusIdle, nil
	}
	state := &fold{sessionID: s.GetId()}
	err := f.eachOfTurn(ctx, s.GetId(), s.GetLastTurnId(), nil, func(e *agentdv1.RunResponse) bool {
		state.add(e)
		return true
	})
	if f.isCode(err, notFound) { // it has ended, and its session is purged or deleted
		return statusIdle, nil
	}
	return state.status(), err
}

// eachOfTurn calls do with the events of a turn behind a seq, as far as there are any, until it returns false.
func (f *face) eachOfTurn(
	ctx context.Context, sessionID, turnID string, after *int64, do func(*agentdv1.RunResponse) bool,
) error {
	for {
		resp, err := f.env.Sessions.ListTurnEvents(ctx, connect.NewRequest(&agentdv1.ListTurnEventsRequest{
			SessionId: sessionID, TurnId: turnID, AfterSeq: after,
		}))
		if err != nil {
			return err
		}
		for _, e := range resp.Msg.GetEvents() {
			if !do(e) {
				return nil
			}
		}
		if !resp.Msg.GetMore() {
			return nil
		}
		next := resp.Msg.GetNextAfterSeq()
		after = &next
	}
}

// eachTurn calls do with the turns of a session, the newest first, until it returns false.
func (f *face) eachTurn(ctx context.Context, sessionID string, do func(*agentdv1.Turn) bool) error {
	req := &agentdv1.ListTurnsRequest{SessionId: sessionID, PageSize: 1000}
	for {
		resp, err := f.env.Sessions.ListTurns(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		for _, t := range resp.Msg.GetTurns() {
			if !do(t) {
				return nil
			}
		}
		if req.PageToken = resp.Msg.GetNextPageToken(); req.GetPageToken() == "" {
			return nil
		}
	}
}

// activeSeconds is how long turns of a session have taken, the time in which they waited included.
func (f *face) activeSeconds(ctx context.Context, s *agentdv1.Session) (sum float64, err error) {
	if s.GetLastTurnId() == "" {
		return 0, nil
	}
	err = f.eachTurn(ctx, s.GetId(), func(t *agentdv1.Turn) bool {
		sum += t.GetDuration().AsDuration().Seconds()
		return true
	})
	return sum, err
}

// tick is more than the least part of a time that a store keeps.
const tick = time.Microsecond

// sinceBefore is a span as lists of sessions take it, or a little longer.
func (s span) sinceBefore() (since, before *timestamppb.Timestamp) {
	from, to := s.gte, s.lt
	if !s.gt.IsZero() && !s.gt.Before(from) {
		from = s.gt
	}
	if !s.lte.IsZero() && (to.IsZero() || s.lte.Before(to)) {
		to = s.lte.Add(tick)
	}
	if !from.IsZero() {
		since = timestamppb.New(from)
	}
	if !to.IsZero() {
		before = timestamppb.New(to)
	}
	return since, before
}
