package gestalt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

const (
	// MaxTurns is how many turns may be under way at once, maxOfSession how many of one session.
	MaxTurns, maxOfSession = 1000, 16
	// maxRequest is the size of the largest request for a turn, in bytes; the daemon has the same.
	maxRequest = 4 << 20
	// cancelWait is how often a cancel looks whether the daemon knows the turn by now.
	cancelWait = 20 * time.Millisecond
)

// checkTurn refuses a request for a turn that could not run.
func (p *Provider) checkTurn(req *gestaltv1.CreateTurnRequest) error {
	switch req.GetToolSource() {
	case gestaltv1.AgentToolSourceMode_AGENT_TOOL_SOURCE_MODE_UNSPECIFIED,
		gestaltv1.AgentToolSourceMode_AGENT_TOOL_SOURCE_MODE_MCP_CATALOG:
	default:
		return invalidf("tool_source is %d: want MCP_CATALOG (2), or none", req.GetToolSource())
	}
	for i, tool := range req.GetTools() {
		if tool.GetId() == "" || tool.GetName() == "" {
			return invalidf("tools[%d]: want id and name", i)
		}
	}
	known := p.now().trees
	ex, err := known.request(req)
	if err != nil {
		return err
	}
	ex.Tools = known.stubs(ex.GetAgent())
	if err := known.check(ex.GetAgent(), ex.GetTools()); err != nil {
		return invalidf("%w", err)
	}
	if size := proto.Size(ex); size > maxRequest {
		return exhaustedf("the turn has %d bytes, want at most %d", size, maxRequest)
	}
	for _, broken := range p.broken.Broken(&agentdv1.CreateTurnRequest{Execute: ex}, 1) {
		return invalidf("the turn cannot run: %s", broken)
	}
	return nil
}

// CreateTurn records a turn and returns. It runs in the background.
func (p *Provider) CreateTurn(
	ctx context.Context, r *connect.Request[gestaltv1.CreateTurnRequest],
) (*connect.Response[gestaltv1.AgentTurn], error) {
	req := r.Msg
	subject, err := subjectOf(req.GetSubject())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkID("turn_id", req.GetTurnId()), checkKey(req.GetIdempotencyKey())); err != nil {
		return nil, first(err)
	}
	session, err := p.session(ctx, subject, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	said := proto.CloneOf(req)
	said.IdempotencyKey, said.Subject, said.RunGrant = "", nil, ""
	t := &Turn{
		ID: req.GetTurnId(), SessionID: session.ID, Subject: subject, Key: req.GetIdempotencyKey(),
		Trace: r.Header().Get("traceparent"), Phase: Waiting, Created: time.Now(),
	}
	if t.Content, err = contentOf(said); err != nil {
		return nil, err
	}
	said.Model = cmp.Or(said.GetModel(), p.modelOf(session))
	if t.Request, err = proto.Marshal(said); err != nil {
		return nil, invalidf("the request cannot be encoded: %w", err)
	}
	switch known, err := p.store.SameTurn(ctx, t); {
	case err != nil && !errors.Is(err, ErrNone):
		return nil, p.stored(ctx, err)
	case err == nil:
		return p.sameTurn(ctx, t, known)
	}
	if err := p.mayTurn(ctx, session, said); err != nil {
		return nil, err
	}
	return p.addTurn(ctx, t, req.GetRunGrant())
}

// mayTurn refuses a turn that a session does not take.
func (p *Provider) mayTurn(ctx context.Context, session *Session, req *gestaltv1.CreateTurnRequest) error {
	s, err := p.daemonSession(ctx, session)
	switch {
	case err != nil:
		return p.passed(ctx, err)
	case s.GetState() == agentdv1.SessionState_SESSION_STATE_ARCHIVED:
		return preconditionf("session %q is archived: set its state to ACTIVE first", session.ID)
	case s.GetPurged():
		return preconditionf("the log of session %q is no longer kept: make another session", session.ID)
	}
	return p.checkTurn(req)
}

// sameTurn is the turn that a request has made which the host repeats.
func (p *Provider) sameTurn(ctx context.Context, t, known *Turn) (*connect.Response[gestaltv1.AgentTurn], error) {
	repeated := t.Key != "" && known.Key == t.Key && known.SessionID == t.SessionID && known.Subject == t.Subject
	if !repeated && (known.Subject != t.Subject || known.SessionID != t.SessionID || known.Content != t.Content) {
		return nil, existsf("turn %q was made by another request", t.ID)
	}
	return p.turnNow(ctx, known)
}

func (p *Provider) addTurn(ctx context.Context, t *Turn, grant string) (*connect.Response[gestaltv1.AgentTurn], error) {
	begin, err := p.admit(t)
	if err != nil {
		return nil, err
	}
	known, err := p.store.AddTurn(ctx, t, grant, maxOfSession)
	begin(err == nil && known == nil)
	switch {
	case errors.Is(err, ErrTooMany):
		return nil, exhaustedf("session %q has %d turns that are not over, the most that it may have", t.SessionID,
			maxOfSession)
	case err != nil:
		return nil, p.stored(ctx, err)
	case known != nil:
		return p.sameTurn(ctx, t, known)
	}
	out := p.turnOf(t)
	return connect.NewResponse(out), nil
}

// turn returns a turn of a subject.
func (p *Provider) turn(ctx context.Context, subject, id string) (*Turn, error) {
	t, err := p.store.Turn(ctx, id)
	switch {
	case errors.Is(err, ErrNone), err == nil && t.Subject != subject:
		return nil, notFoundf("there is no turn %.200q", id)
	case err != nil:
		return nil, p.stored(ctx, err)
	}
	return t, nil
}

// turnOf is what the store has of a turn: all there is of one that the daemon does not know.
func (p *Provider) turnOf(t *Turn) *gestaltv1.AgentTurn {
	said := &gestaltv1.CreateTurnRequest{}
	p.decode(t.Request, said)
	out := &gestaltv1.AgentTurn{
		Id: t.ID, SessionId: t.SessionID, ProviderName: p.name(), Model: said.GetModel(),
		Status:   turnRunning,
		Messages: said.GetMessages(), CreatedBy: said.GetCreatedBy(), CreatedAt: stamp(t.Created),
		ExecutionRef: said.GetExecutionRef(),
	}
	switch {
	case t.Phase == Failed || t.Phase == Canceled:
		out.Status = turnFailed
		if t.Phase == Canceled {
			out.Status = turnCanceled
		}
		out.StatusMessage, out.CompletedAt = t.Message, stamp(t.Ended)
	case t.Queued:
		out.Status = turnPending
	}
	if !t.Queued {
		out.StartedAt = stamp(t.Created)
	}
	return out
}

// statuses are those of the daemon.
var statuses = map[agentdv1.TurnStatus]gestaltv1.AgentExecutionStatus{
	agentdv1.TurnStatus_TURN_STATUS_PENDING:            turnPending,
	agentdv1.TurnStatus_TURN_STATUS_RUNNING:            turnRunning,
	agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT: turnRunning,
	agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT:  turnWaiting,
	agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED:          turnSucceeded,
	agentdv1.TurnStatus_TURN_STATUS_FAILED:             turnFailed,
	agentdv1.TurnStatus_TURN_STATUS_CANCELED:           turnCanceled,
}

const (
	turnPending   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_PENDING
	turnRunning   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_RUNNING
	turnWaiting   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_WAITING_FOR_INPUT
	turnSucceeded = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_SUCCEEDED
	turnFailed    = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_FAILED
	turnCanceled  = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_CANCELED
)

// isOver reports whether a turn of the daemon has ended.
func isOver(s agentdv1.TurnStatus) bool {
	switch s {
	case agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED, agentdv1.TurnStatus_TURN_STATUS_FAILED,
		agentdv1.TurnStatus_TURN_STATUS_CANCELED:
		return true
	default:
		return false
	}
}

// daemonTurn returns what the daemon has of a turn.
func (p *Provider) daemonTurn(ctx context.Context, t *Turn) (*agentdv1.Turn, error) {
	reply, err := p.sessions.GetTurn(ctx, as(t.Subject, &agentdv1.GetTurnRequest{SessionId: t.SessionID, TurnId: t.ID}))
	if err != nil {
		return nil, err
	}
	return reply.Msg.GetTurn(), nil
}

// whole puts together what the store and the daemon have of a turn. Of one that is over all events have numbers.
func (p *Provider) whole(ctx context.Context, t *Turn) (*gestaltv1.AgentTurn, error) {
	out := p.turnOf(t)
	if t.Phase != Running && t.Phase != Over {
		return out, nil
	}
	d, err := p.daemonTurn(ctx, t)
	if missing(err) && t.Phase == Running { // it is being made
		return out, nil
	}
	if err != nil {
		return nil, p.passed(ctx, err)
	}
	if isOver(d.GetStatus()) {
		if err := p.number(ctx, t); err != nil {
			return nil, err
		}
	}
	return out, fill(out, t, d)
}

// fill adds what the daemon has of a turn.
func fill(out *gestaltv1.AgentTurn, t *Turn, d *agentdv1.Turn) error {
	out.Status, out.OutputText = statuses[d.GetStatus()], d.GetOutputText()
	out.StatusMessage, out.CompletedAt = d.GetStatusMessage(), d.GetEndTime()
	if t.Queued {
		out.StartedAt = d.GetStartTime()
	}
	if text := d.GetStructuredOutput(); text != "" {
		var err error
		out.StructuredOutput, err = object(text)
		return err
	}
	return nil
}

// object is JSON text as an object: another value is that of the key value.
func object(text string) (*structpb.Struct, error) {
	v := &structpb.Value{}
	if err := protojson.Unmarshal([]byte(text), v); err != nil {
		return nil, connect.NewError(connect.CodeInternal, errors.New("the output of the turn is no JSON"))
	}
	if s := v.GetStructValue(); s != nil {
		return s, nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{"value": v}}, nil
}

func (p *Provider) turnNow(ctx context.Context, t *Turn) (*connect.Response[gestaltv1.AgentTurn], error) {
	out, err := p.whole(ctx, t)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// GetTurn returns a turn as it is now.
func (p *Provider) GetTurn(
	ctx context.Context, r *connect.Request[gestaltv1.GetTurnRequest],
) (*connect.Response[gestaltv1.AgentTurn], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	t, err := p.turn(ctx, subject, r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	return p.turnNow(ctx, t)
}

// ListTurns lists the turns of a session, the newest first.
func (p *Provider) ListTurns(
	ctx context.Context, r *connect.Request[gestaltv1.ListTurnsRequest],
) (*connect.Response[gestaltv1.ListTurnsResponse], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err == nil {
		err = checkLimit(r.Msg.GetLimit())
	}
	if err != nil {
		return nil, err
	}
	status := r.Msg.GetStatus()
	if gestaltv1.AgentExecutionStatus_name[int32(status)] == "" {
		return nil, invalidf("status is %d: want PENDING (1) to WAITING_FOR_INPUT (6), or none", status)
	}
	session, err := p.session(ctx, subject, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	out := &gestaltv1.ListTurnsResponse{}
	for offset := 0; ; offset += listPage {
		rows, err := p.store.Turns(ctx, session.ID, offset, listPage)
		if err != nil {
			return nil, p.stored(ctx, err)
		}
		for _, row := range rows {
			if ids := r.Msg.GetTurnIds(); len(ids) > 0 && !slices.Contains(ids, row.ID) {
				continue
			}
			one, err := p.whole(ctx, row)
			if err != nil {
				return nil, err
			}
			if status != 0 && one.GetStatus() != status {
				continue
			}
			if r.Msg.GetSummaryOnly() {
				one.Messages, one.OutputText, one.StructuredOutput = nil, "", nil
			}
			if out.Turns = append(out.Turns, one); len(out.Turns) == most(r.Msg.GetLimit()) {
				return connect.NewResponse(out), nil
			}
		}
		if len(rows) < listPage {
			return connect.NewResponse(out), nil
		}
	}
}

// CancelTurn cancels a turn and returns it when nothing of it runs any more. One that is over stays as it is.
func (p *Provider) CancelTurn(
	ctx context.Context, r *connect.Request[gestaltv1.CancelTurnRequest],
) (*connect.Response[gestaltv1.AgentTurn], error) {
	subject, err := subjectOf(r.Msg.GetSubject())
	if err != nil {
		return nil, err
	}
	for {
		t, err := p.turn(ctx, subject, r.Msg.GetTurnId())
		if err != nil {
			return nil, err
		}
		switch t.Phase {
		case Waiting:
			t.Message = r.Msg.GetReason()
			ended, err := p.endBefore(ctx, t, Canceled, Waiting)
			if err != nil {
				return nil, p.stored(ctx, err)
			}
			if ended {
				return p.turnNow(ctx, t)
			}
		case Running:
			_, err := p.sessions.CancelTurn(ctx, as(subject, &agentdv1.CancelTurnRequest{
				SessionId: t.SessionID, TurnId: t.ID, Reason: r.Msg.GetReason(),
			}))
			switch {
			case err == nil:
				if err := p.over(ctx, t); err != nil {
					return nil, err
				}
				return p.turnNow(ctx, t)
			case !missing(err):
				return nil, p.passed(ctx, err)
			}
		default:
			return p.turnNow(ctx, t)
		}
		// The turn is about to be made, or to fail.
		select {
		case <-time.After(cancelWait):
		case <-ctx.Done():
			return nil, ended(ctx.Err())
		}
	}
}

// over notes that the daemon has ended a turn, of which all events have numbers then, and removes its grant.
func (p *Provider) over(ctx context.Context, t *Turn) error {
	if err := p.number(ctx, t); err != nil {
		return err
	}
	t.Phase = Over
	if _, err := p.store.EndTurn(ctx, t, Running, nil); err != nil {
		return p.stored(ctx, err)
	}
	return nil
}

// endBefore ends a turn that has never run, with its events. It reports false, and leaves t as it was but for its
// message, if the turn is no longer in the phase from.
func (p *Provider) endBefore(ctx context.Context, t *Turn, phase, from Phase) (bool, error) {
	done := *t
	done.Phase, done.Ended = phase, time.Now()
	kind, data := "turn.failed", map[string]string{"error": t.Message}
	if phase == Canceled {
		kind, data = "turn.canceled", map[string]string{"reason": t.Message}
	}
	n := &numbering{p: p, t: &done}
	n.add(&gestaltv1.AgentTurnEvent{
		Type: "turn.started", Visibility: visiblePublic, CreatedAt: stamp(t.Created),
		Display: &gestaltv1.AgentTurnDisplay{Kind: "status", Phase: "started", Ref: "turn:" + t.ID},
	}, "")
	end := &gestaltv1.AgentTurnEvent{
		Type: kind, Visibility: visiblePublic, CreatedAt: timestamppb.New(done.Ended), Data: texts(data),
		Display: &gestaltv1.AgentTurnDisplay{
			Kind: "status", Phase: string(phase), Label: "turn", Ref: "turn:" + t.ID, Text: t.Message,
		},
	}
	n.add(end, "")
	was, err := p.store.EndTurn(ctx, &done, from, n.events())
	if was {
		*t = done
		p.follows(t, false)
	}
	return was, err
}
