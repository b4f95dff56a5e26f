package client

import (
	"context"
	"iter"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/newid"
)

// Session is one conversation on a server, of many turns. [Client.NewSession] begins
// one, [Client.Session] names one that there is. It holds no connection and no
// goroutine, and its methods may be called concurrently; two turns at a time are what
// [WithOnBusy] is about.
type Session struct {
	client *Client
	id     string
	opts   []SendOption // of each turn

	mu     sync.Mutex // protects the fields below
	create bool       // the server may not have the session yet
	turn   string     // the turn of the last event that was yielded
	seq    int64      // the position of that event
	open   bool       // no end of that turn was yielded
}

// NewSession begins a session for an agent, under a name that it makes up. Nothing is
// sent: the first turn makes the session. opts hold for each of its turns.
func (c *Client) NewSession(agent *Agent, opts ...SendOption) *Session {
	return c.SessionOrNew(newid.Session(time.Now()), append([]SendOption{WithAgent(agent)}, opts...)...)
}

// Session is the session of an id, whoever has made it. Nothing is sent. Its turns run
// the tree and the tools of the turn before, unless [WithAgent] names another tree.
// opts hold for each turn that it starts.
func (c *Client) Session(id string, opts ...SendOption) *Session {
	return &Session{client: c, id: id, opts: opts}
}

// SessionOrNew is [Client.Session] for a session that may not exist: if the server has none
// of this id, the first turn makes it.
func (c *Client) SessionOrNew(id string, opts ...SendOption) *Session {
	s := c.Session(id, opts...)
	s.create = true
	return s
}

// WithAgent sets the tree of a session's turns, or of one turn.
func WithAgent(agent *Agent) SendOption {
	return option{useRun, func(c *runConfig) { c.agent, c.agentRef = agent, nil }}
}

// ID names the session.
func (s *Session) ID() string { return s.id }

// Stream starts a turn and yields what happens until it ends, as [Client.Run] does.
func (s *Session) Stream(ctx context.Context, prompt string, opts ...SendOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		run, end, err := s.client.withServers(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer end()
		req, rc, err := s.prepare(run, prompt, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		run.yieldRun(ctx, req, rc, s.noting(yield))
	}
}

// Send starts a turn and returns the whole of it, as [Client.Do] does.
func (s *Session) Send(ctx context.Context, prompt string, opts ...SendOption) (*Result, error) {
	return Collect(s.Stream(ctx, prompt, opts...))
}

// Start starts a turn and returns: it runs on the server, whoever watches. Nobody
// runs its tool calls, nor answers what it asks people, until somebody attaches. [Turn].Warnings
// has what of the request was left out.
func (s *Session) Start(ctx context.Context, prompt string, opts ...SendOption) (*Turn, error) {
	run, end, err := s.client.withServers(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	req, rc, err := s.prepare(run, prompt, opts)
	if err != nil {
		return nil, err
	}
	resp, err := unaryWith(ctx, s.client, rc, s.client.sessions.CreateTurn,
		&agentdv1.CreateTurnRequest{Execute: req.GetExecute()})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.create = false
	turn := turnOf(resp.GetTurn())
	if turn != nil {
		turn.Warnings = warningsOf(resp.GetWarnings())
	}
	return turn, nil
}

// Attach follows the session's last turn, as [Client.Attach] does. Of a turn that this
// Session has left before its end it yields what comes after the last event that it
// has yielded; [WithTurnID] and [WithAfterSeq] say otherwise.
func (s *Session) Attach(ctx context.Context, opts ...AttachOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		var all []AttachOption
		for _, o := range s.opts {
			if o, ok := o.(option); ok && o.uses&useAttach != 0 {
				all = append(all, o)
			}
		}
		s.mu.Lock()
		if s.open {
			turn, seq := s.turn, s.seq
			all = append(all, option{useAttach, func(c *runConfig) { c.turnID, c.after = turn, &seq }})
		}
		s.mu.Unlock()
		run, end, err := s.client.withServers(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer end()
		req, rc, err := run.prepareAttach(s.id, append(all, opts...))
		if err != nil {
			yield(nil, err)
			return
		}
		run.yieldRun(ctx, req, rc, s.noting(yield))
	}
}

// SendAs is [DoAs] for a turn of a session. It sets no schema: the session's agent has
// to have one, see [OutputSchemaOf].
func SendAs[T any](ctx context.Context, s *Session, prompt string, opts ...SendOption) (T, *Result, error) {
	result, err := s.Send(ctx, prompt, opts...)
	return decoded[T](result, err)
}

// prepare makes the request for a turn, which run is to have.
func (s *Session) prepare(run *Client, prompt string, opts []SendOption) (*agentdv1.RunRequest, *runConfig, error) {
	if s.id == "" {
		return nil, nil, errorf(ErrInvalidRequest, "client.Session needs the id of a session")
	}
	s.mu.Lock()
	create := s.create
	s.mu.Unlock()
	return run.prepare(nil, prompt, func(rc *runConfig) {
		sendOptions(s.opts)(rc)
		sendOptions(opts)(rc)
		rc.sessionID, rc.create = s.id, create
	})
}

// noting has the session know what it yields.
func (s *Session) noting(yield func(*Event, error) bool) func(*Event, error) bool {
	return func(event *Event, err error) bool {
		if event != nil {
			s.note(event)
		}
		return yield(event, err)
	}
}

func (s *Session) note(event *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.create = false
	if event.Seq > 0 && event.TurnID != "" {
		s.turn, s.seq = event.TurnID, event.Seq
		s.open = event.End == nil
	}
}

// request returns the options of a request that is no run.
func (s *Session) request(opts []RequestOption) []RequestOption {
	var all []RequestOption
	for _, o := range s.opts {
		if o, ok := o.(option); ok && o.uses&useRequest != 0 {
			all = append(all, o)
		}
	}
	return append(all, opts...)
}

// State returns the session's state as its last turn has left it so far; see
// [StateUpdate] for the types of values. It reads that turn's events. A session without turns has no state.
func (s *Session) State(ctx context.Context, opts ...RequestOption) (map[string]any, error) {
	view := newStateView()
	for m, err := range s.lastTurnEvents(ctx, opts) {
		switch {
		case err != nil:
			return nil, err
		case m.GetStateUpdate() != nil:
			view.apply(m.GetStateUpdate())
		}
	}
	return view.all(), nil
}

// lastTurnEvents are what has happened in the session's last turn.
func (s *Session) lastTurnEvents(ctx context.Context, opts []RequestOption) iter.Seq2[*agentdv1.RunResponse, error] {
	return func(yield func(*agentdv1.RunResponse, error) bool) {
		info, err := s.Info(ctx, opts...)
		if err != nil {
			yield(nil, err)
			return
		}
		if info.LastTurnID != "" {
			s.turnEvents(ctx, info.LastTurnID, nil, opts)(yield)
		}
	}
}

// TurnEvents yields what has happened in a turn of the session so far, after a position
// in the session, nil: from the turn's beginning; with an empty id in the last turn. It asks for
// the next page when it needs one. Unlike a run it yields the error of a turn that failed as
// an event.
func (s *Session) TurnEvents(
	ctx context.Context, turnID string, after *int64, opts ...RequestOption,
) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for m, err := range s.turnEvents(ctx, turnID, after, opts) {
			if err != nil {
				yield(nil, err)
				return
			}
			if event := s.placed(m, ""); event != nil && !yield(event, nil) {
				return
			}
		}
	}
}

// turnEvents yields the messages of TurnEvents.
func (s *Session) turnEvents(
	ctx context.Context, turnID string, after *int64, opts []RequestOption,
) iter.Seq2[*agentdv1.RunResponse, error] {
	return func(yield func(*agentdv1.RunResponse, error) bool) {
		req := &agentdv1.ListTurnEventsRequest{SessionId: s.id, TurnId: turnID, AfterSeq: after}
		for more := true; more; {
			resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.ListTurnEvents, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range resp.GetEvents() {
				if !yield(m, nil) {
					return
				}
			}
			req.AfterSeq = new(resp.GetNextAfterSeq())
			more = resp.GetMore() && len(resp.GetEvents()) > 0
		}
	}
}

// Cancel cancels the turn that this Session has yielded events of last, or if that is
// over the session's last one, and returns when nothing of it runs any more. A turn
// that is over stays as it is. The reason, of at most 4,096 bytes, stands in its end.
func (s *Session) Cancel(ctx context.Context, reason string, opts ...RequestOption) (*Turn, error) {
	turn, err := s.lastTurn(ctx, opts)
	if err != nil {
		return nil, err
	}
	return s.CancelTurn(ctx, turn, reason, opts...)
}

// CancelTurn cancels one turn, or keeps one that waits from starting; see Cancel.
func (s *Session) CancelTurn(ctx context.Context, turnID, reason string, opts ...RequestOption) (*Turn, error) {
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.CancelTurn,
		&agentdv1.CancelTurnRequest{SessionId: s.id, TurnId: turnID, Reason: reason})
	return turnOf(resp.GetTurn()), err
}

// CancelTool cancels one tool call of the turn that Cancel would cancel: the model sees
// a canceled tool, and the turn continues.
func (s *Session) CancelTool(ctx context.Context, callID string, opts ...RequestOption) (*Turn, error) {
	turn, err := s.lastTurn(ctx, opts)
	if err != nil {
		return nil, err
	}
	return s.CancelTurnTool(ctx, turn, callID, opts...)
}

// CancelTurnTool cancels one tool call of one turn; see CancelTool.
func (s *Session) CancelTurnTool(ctx context.Context, turnID, callID string, opts ...RequestOption) (*Turn, error) {
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.CancelToolCall,
		&agentdv1.CancelToolCallRequest{SessionId: s.id, TurnId: turnID, ToolCallId: callID})
	return turnOf(resp.GetTurn()), err
}

// lastTurn names the turn that this session is about now.
func (s *Session) lastTurn(ctx context.Context, opts []RequestOption) (string, error) {
	s.mu.Lock()
	turn, open := s.turn, s.open
	s.mu.Unlock()
	if open {
		return turn, nil
	}
	info, err := s.Info(ctx, opts...)
	if err != nil {
		return "", err
	}
	if info.LastTurnID == "" {
		return "", errorf(ErrNotFound, "session %s has no turn", s.id)
	}
	return info.LastTurnID, nil
}

// Resolve is [Client.Resolve] for this session.
func (s *Session) Resolve(
	ctx context.Context, interactionID string, said *Resolution, opts ...RequestOption,
) (*Interaction, error) {
	return s.client.Resolve(ctx, s.id, interactionID, said, s.request(opts)...)
}

// ToolResult is the result of a tool call, sent outside of a run; see [Session.SubmitToolResults].
type ToolResult struct {
	// CallID and ToolName are those of the call.
	CallID, ToolName string
	// Output is what the model sees, unless Error says why the tool failed.
	Output, Error string
	// Parts are what it sees behind Output.
	Parts []Part
	// State are keys of the session's state to set; nil removes one.
	State map[string]any
}

// SubmitToolResults sends results of tool calls without a stream, such as from a job
// that runs for hours. Each counts for itself: refused are those that were not taken,
// by call. A call that has a result keeps it.
func (s *Session) SubmitToolResults(
	ctx context.Context, turnID string, results []ToolResult, opts ...RequestOption,
) (refused map[string]*Error, err error) {
	req := &agentdv1.SubmitToolResultsRequest{SessionId: s.id, TurnId: turnID}
	for _, r := range results {
		m := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: r.CallID, ToolName: r.ToolName}
		if m.Result = (&agentdv1.RunRequest_ToolCallResponse_Output{Output: r.Output}); r.Error != "" {
			m.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: r.Error}
		}
		if m.Parts, err = checkParts(r.Parts); err != nil {
			return nil, errorf(ErrInvalidRequest, "the result of call %s: %w", r.CallID, err)
		}
		if r.State != nil {
			if m.StateDeltaJson, err = stateObject(r.State); err != nil {
				return nil, errorf(ErrInvalidRequest, "the state of call %s: %w", r.CallID, err)
			}
		}
		req.Results = append(req.Results, m)
	}
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.SubmitToolResults, req)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.GetRefused() {
		if refused == nil {
			refused = make(map[string]*Error)
		}
		refused[r.GetToolCallId()] = fromResponse(r.GetError())
	}
	return refused, nil
}
