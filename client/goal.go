package client

import (
	"context"
	"errors"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/backoff"
)

// Goal is a handle of a goal that a server works on: it runs the tools of the goal's turns and answers what the goal
// asks its owner. [Client.StartGoal] makes one. Its methods may be called concurrently. It has two goroutines, which
// end with the goal, with the context that it was made with, or when the server cannot be reached for too long.
type Goal struct {
	c    *Client
	rc   *runConfig // that each turn's is made from
	spec *GoalSpec
	info *GoalInfo // as it was when the handle was made
	// follows is true when turns that were over before are not this handle's.
	follows bool

	inbox chan struct{}
	done  chan struct{} // closed when result and err are set

	mu     sync.Mutex // protects status
	status GoalStatus

	result *GoalResult
	err    error
}

// GoalResult is how a goal has ended, or with the reason deferred why its handle has.
type GoalResult struct {
	// SessionID and GoalID name it.
	SessionID, GoalID string
	// Reason is why it has ended, and Status how it is.
	Reason GoalReason
	Status GoalStatus
	// FinalText is what the last turn said last, and DoneDetail what was said with the done tool.
	FinalText, DoneDetail string
	// Turns are its turns, and the others what they have used, with those from before it was resumed. CostUSD is
	// without calls whose price is not known.
	Turns                     int
	InputTokens, OutputTokens int64
	CostUSD                   float64
	// Duration is how long it took.
	Duration time.Duration
	// NextWake is when the next turn of a deferred goal begins.
	NextWake time.Time
	// Message says more about the reason; may be empty.
	Message string
	// Err is the error of BeforeTurn that has ended it, or what its last turn has failed with; nil for neither.
	Err error
}

// goalStep is what the goroutine that serves a goal has to do next: a turn, an answer, or the end.
type goalStep struct {
	n      int    // of a turn: its number
	turn   string // "" for none
	before int64  // the position before the turn
	wait   *GoalEvent
	end    *GoalEvent
}

// maxGoalSteps is how many steps wait for the goroutine that serves before the one that watches does.
const maxGoalSteps = 64

// beginGoal makes a handle of the goal that begin starts or finds. over says that nothing of it is to be served.
func (c *Client) beginGoal(
	ctx context.Context, spec *GoalSpec, opts []GoalOption,
	begin func(context.Context, *Client, *runConfig, *agentdv1.StartGoalRequest) (info *GoalInfo, over bool, err error),
) (*Goal, error) {
	run, end, err := c.withServers(ctx)
	if err != nil {
		return nil, err
	}
	g := &Goal{
		c: run, spec: spec, inbox: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err = g.begin(ctx, opts, begin); err != nil || g.result != nil {
		end()
		return g.unless(err)
	}
	go func() { // ends with the goal, or with ctx
		defer end()
		defer close(g.done)
		g.run(ctx)
	}()
	return g, nil
}

func (g *Goal) unless(err error) (*Goal, error) {
	if err != nil {
		return nil, err
	}
	close(g.done)
	return g, nil
}

// begin sends the request.
func (g *Goal) begin(
	ctx context.Context, opts []GoalOption,
	begin func(context.Context, *Client, *runConfig, *agentdv1.StartGoalRequest) (*GoalInfo, bool, error),
) error {
	execute, rc, err := g.c.prepare(g.spec.Agent, "", func(rc *runConfig) {
		rc.timeout, rc.onBusy, rc.onDisconnect, rc.grace = 0, 0, 0, 0
		for _, o := range opts {
			o.applyGoal(rc)
		}
		rc.sessionID, rc.create = g.spec.SessionID, g.spec.Create
		if ref := g.spec.AgentRef.Proto(); ref != nil {
			rc.agentRef = ref
		}
		if what := rc.notOfGoals(); what != "" {
			rc.failf(errorf(ErrInvalidRequest, "client.%s is for one turn, and a goal has many", what))
		}
	})
	if err != nil {
		return err
	}
	for _, set := range slices.Concat([]*ToolSet{g.c.tools}, rc.tools) {
		if err := set.checkUnattended(); err != nil {
			return errorf(ErrInvalidRequest, "a goal works on its own: %w", err)
		}
	}
	for _, set := range g.c.cfg.attachments {
		if err := set.checkUnattended(); err != nil {
			return errorf(ErrInvalidRequest, "a goal works on its own: %w", err)
		}
	}
	req, err := g.spec.proto(execute.GetExecute())
	if err != nil {
		return err
	}
	g.rc = rc
	info, over, err := begin(ctx, g.c, rc, req)
	if err != nil {
		return err
	}
	g.info, g.status, g.follows = info, info.Status, rc.attach
	if over {
		g.result = info.result()
	}
	return nil
}

// notOfGoals names an option that a goal cannot have; "" for none.
func (c *runConfig) notOfGoals() string {
	switch {
	case c.timeout != 0:
		return "WithTimeout"
	case c.turnID != "":
		return "WithTurnID"
	case c.control != nil:
		return "WithControl"
	case c.onBusy != 0:
		return "WithOnBusy"
	case c.onDisconnect != 0:
		return "WithOnDisconnect"
	case len(c.parts) > 0:
		return "WithParts"
	default:
		return ""
	}
}

// ID names the goal, and SessionID its session.
func (g *Goal) ID() string { return g.info.ID }

// SessionID is the session of the goal.
func (g *Goal) SessionID() string { return g.info.SessionID }

// Status is how the goal is, as far as the handle has heard.
func (g *Goal) Status() GoalStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

func (g *Goal) setStatus(s GoalStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = s
}

// Pause has no turn of the goal begin any more; the one that is under way finishes. To pause again is no error.
func (g *Goal) Pause(ctx context.Context) error { return g.control(ctx, GoalPause) }

// Resume has a goal go on that was paused.
func (g *Goal) Resume(ctx context.Context) error { return g.control(ctx, GoalResume) }

// Stop ends the goal and its turn, also while it is paused, and returns when nothing of it runs any more at the server.
// To stop one that has ended is no error.
func (g *Goal) Stop(ctx context.Context) error { return g.control(ctx, GoalStop) }

// Inject has the next turn of the goal read a text, as [Client.InjectMessage] does.
func (g *Goal) Inject(ctx context.Context, text string) error {
	_, err := g.c.InjectMessage(ctx, g.info.SessionID, text, g.headers())
	return err
}

// InboxArrived receives a signal when a message for the goal's next turn has come; several that have come meanwhile are
// one. It is never closed.
func (g *Goal) InboxArrived() <-chan struct{} { return g.inbox }

// Done is closed when the goal, or the handle, has ended, and nothing of it runs in this program any more.
func (g *Goal) Done() <-chan struct{} { return g.done }

// Wait waits for the end and returns how the goal has ended. It fails when ctx ends, and when the handle has ended and
// the goal has not: then the error says why.
func (g *Goal) Wait(ctx context.Context) (*GoalResult, error) {
	select {
	case <-g.done:
	default:
		select {
		case <-g.done:
		case <-ctx.Done():
			return nil, fromContext(ctx)
		}
	}
	if g.err != nil {
		return nil, g.err
	}
	return new(*g.result), nil
}

// headers are those of the goal's options, for requests.
func (g *Goal) headers() RequestOption {
	return option{useRequest, func(rc *runConfig) { rc.header = g.rc.header.Clone() }}
}

// control does something to the goal; a lost connection is tried again.
func (g *Goal) control(ctx context.Context, action GoalAction) error {
	_, err := again(ctx, g.c, func(ctx context.Context) (*GoalInfo, error) {
		return g.c.ControlGoal(ctx, g.info.SessionID, action, g.headers())
	})
	return err
}

// now returns the goal as it is; nil if the session has another one meanwhile.
func (g *Goal) now(ctx context.Context) (*GoalInfo, error) {
	info, err := again(ctx, g.c, func(ctx context.Context) (*GoalInfo, error) {
		return g.c.GetGoal(ctx, g.info.SessionID, g.headers())
	})
	if err != nil || info.ID != g.info.ID {
		return nil, err
	}
	return info, nil
}

// run serves the goal to its end.
func (g *Goal) run(outer context.Context) {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	steps := make(chan goalStep, maxGoalSteps)
	watched := make(chan *Error, 1)
	go func() { // ends with the goal, or with ctx
		defer close(steps)
		watched <- g.watch(ctx, steps)
	}()
	s := &goalServer{Goal: g}
	for step := range steps {
		if s.over() {
			continue
		}
		s.take(ctx, step)
		if s.over() {
			cancel() // and what else was seen does not matter
		}
	}
	failure := <-watched
	switch {
	case s.result != nil:
		g.result = s.result
		g.setStatus(s.result.Status)
	case outer.Err() != nil:
		g.leave(outer)
	case s.err != nil:
		g.err = s.err
	default:
		failure.SessionID = g.info.SessionID
		g.err = failure
	}
}

// stopTime bounds how long a handle whose context has ended waits for the end of its goal.
const stopTime = 10 * time.Second

// leave ends a handle whose context has ended.
func (g *Goal) leave(outer context.Context) {
	g.err = fromContext(outer)
	if !g.rc.cancelsOnLeave() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(outer), stopTime)
	defer cancel()
	info, err := g.c.ControlGoal(ctx, g.info.SessionID, GoalStop, g.headers())
	if err == nil && info.ID == g.info.ID && info.HasEnded() {
		g.setStatus(info.Status)
		g.result, g.err = info.result(), nil
		g.result.Err = fromContext(outer)
	}
}

// watch sees what happens to the goal, and says what there is to do. It returns why it has ended before the goal, nil
// if it has not.
func (g *Goal) watch(ctx context.Context, steps chan<- goalStep) *Error {
	waits := GoalWait("")
	tell := func(step goalStep) bool {
		select {
		case steps <- step:
			return step.end == nil
		case <-ctx.Done():
			return false
		}
	}
	see := func(event *Event, _ error) bool {
		switch d := event.Data.(type) {
		case *TurnStarted:
			if d.GoalID != g.info.ID || event.Seq <= 0 || g.follows && d.GoalTurn <= g.info.Turns {
				return true
			}
			waits = ""
			return tell(goalStep{n: d.GoalTurn, turn: event.TurnID, before: event.Seq - 1})
		case *GoalEvent:
			if d.Kind == GoalEventMessage {
				select {
				case g.inbox <- struct{}{}:
				default:
				}
				return true
			}
			if d.GoalID != g.info.ID {
				return true
			}
			switch d.Kind {
			case GoalEventStarted, GoalEventMessage, GoalEventChildSpawned, GoalEventChildReported:
			case GoalEventCheckpointed:
				waits = d.Wait
				return tell(goalStep{wait: d})
			case GoalEventPaused:
				g.setStatus(GoalPaused)
			case GoalEventResumed:
				g.setStatus(GoalRunning)
				if d.Action == string(GoalResume) && waits == GoalWaitAsk { // which nobody could answer before
					return tell(goalStep{wait: &GoalEvent{GoalID: d.GoalID, Kind: d.Kind, Wait: waits}})
				}
			case GoalEventEnded:
				return tell(goalStep{end: d})
			}
		}
		return true
	}
	w := &watch{
		session: g.c.Session(g.info.SessionID), rc: &runConfig{header: g.rc.header}, cursor: g.info.Cursor, yield: see,
		out: outage{policy: g.c.cfg.reconnect}, unserved: make(map[string]bool),
	}
	return w.follow(ctx)
}

// goalServer does what there is to do for a goal. One goroutine has it.
type goalServer struct {
	*Goal
	result   *GoalResult
	err      *Error // why there is no result
	failed   error  // of the last turn, or of BeforeTurn
	failures int    // turns in a row that have failed
}

func (s *goalServer) over() bool { return s.result != nil || s.err != nil }

func (s *goalServer) take(ctx context.Context, step goalStep) {
	switch {
	case step.turn != "":
		s.serve(ctx, step)
	case step.end != nil:
		e := step.end
		s.result = &GoalResult{
			SessionID: s.info.SessionID, GoalID: e.GoalID, Reason: e.Reason, Status: e.Status, FinalText: e.FinalText,
			DoneDetail: e.DoneDetail, Turns: e.Turns, InputTokens: e.InputTokens, OutputTokens: e.OutputTokens,
			CostUSD: e.CostUSD, Duration: e.Duration, Message: e.Message, Err: s.failed,
		}
	default:
		s.checkpoint(ctx, step.wait)
	}
}

// serve runs the tools of a turn to its end.
func (s *goalServer) serve(ctx context.Context, step goalStep) {
	rc := *s.rc
	rc.attach, rc.turnID, rc.sessionID, rc.fork = true, step.turn, s.info.SessionID, false
	rc.after, rc.onLeave, rc.failureEvents = &step.before, OnLeaveDetach, true
	attach := &agentdv1.AttachRequest{
		SessionId: rc.sessionID, TurnId: rc.turnID, AfterSeq: rc.after, ToolNames: rc.offered,
	}
	s.failed = nil
	req := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: attach}}
	abandoned := false
	s.c.yieldRun(ctx, req, &rc, func(event *Event, err error) bool {
		switch {
		case err == nil:
			if _, is := event.Data.(*ConnectionAbandoned); is {
				abandoned = true
			}
			if s.rc.goalProgress != nil {
				s.rc.goalProgress(step.n, event)
			}
		case abandoned:
			s.err, _ = errors.AsType[*Error](err)
		case ctx.Err() == nil:
			s.failed = err
		}
		return true
	})
}

// checkpoint does what a goal waits for, if it still does.
func (s *goalServer) checkpoint(ctx context.Context, at *GoalEvent) {
	switch {
	case at.EndedTurn != "" && at.Failure != "":
		if s.failures++; s.failed == nil {
			s.failed = errorf(ErrInternal, "%s", at.Failure) // the turn was over before this handle
		}
	case at.EndedTurn != "":
		s.failures = 0
	}
	switch {
	case at.Wait == GoalWaitHold && s.spec.BeforeTurn != nil:
	case at.Wait == GoalWaitAsk && s.spec.RetryPolicy != nil:
	case at.Wait == GoalWaitTimer && s.spec.LeaveDeferred && !(s.follows && at.Turns <= s.info.Turns):
	default:
		return
	}
	info, err := s.now(ctx)
	if err != nil {
		s.err, _ = errors.AsType[*Error](err)
		return
	}
	if info == nil || info.Wait != at.Wait || at.Kind == GoalEventCheckpointed && info.Turns != at.Turns {
		return // it has gone on
	}
	var action GoalAction
	switch at.Wait {
	case GoalWaitTimer:
		s.result = info.result()
		s.result.Reason, s.result.NextWake = GoalReasonDeferred, info.WaitUntil
		return
	case GoalWaitHold:
		action = GoalProceed
		if err := s.spec.BeforeTurn(ctx, info.Turns+1); err != nil {
			action, s.failed = GoalAbort, err
		}
	default:
		action = GoalAction(s.spec.RetryPolicy(s.failed, max(s.failures, 1)))
		if action != GoalRetry && action != GoalSkip {
			action = GoalAbort
		}
	}
	// What it does not wait for any more it has gone on without.
	if err := s.control(ctx, action); err != nil && !errors.Is(err, ErrPrecondition) {
		s.err, _ = errors.AsType[*Error](err)
	}
}

// result is that of a goal which has ended.
func (g *GoalInfo) result() *GoalResult {
	return &GoalResult{
		SessionID: g.SessionID, GoalID: g.ID, Reason: g.Reason, Status: g.Status, FinalText: g.FinalText,
		DoneDetail: g.DoneDetail, Turns: g.Turns, InputTokens: g.InputTokens, OutputTokens: g.OutputTokens,
		CostUSD: g.CostUSD, Duration: g.Duration, Message: g.Message,
	}
}

// again makes a request that may be made twice, until it has a reply, as long as [WithReconnect] says.
func again[T any](ctx context.Context, c *Client, request func(context.Context) (T, error)) (T, error) {
	return tried(ctx, c, request, func(*Error) bool { return true })
}

// startOnce is again for a request that starts something once by its key: that a server cannot be reached, or refuses
// it for the time being, is tried again with [ReconnectPolicy].Dial alone.
func startOnce[T any](ctx context.Context, c *Client, request func(context.Context) (T, error)) (T, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	return tried(ctx, c, request, func(e *Error) bool {
		return c.cfg.reconnect.Dial || sent.Load() && e.Err != nil && !connect.IsWireError(e.Err)
	})
}

func tried[T any](
	ctx context.Context, c *Client, request func(context.Context) (T, error), more func(*Error) bool,
) (T, error) {
	out := outage{policy: c.cfg.reconnect}
	for {
		v, err := request(ctx)
		failure, is := errors.AsType[*Error](err)
		if !is || ctx.Err() != nil || out.policy.Off {
			return v, err
		}
		lost := lostCode(failure.Code)
		if failure.Err != nil {
			lost = lostStream(failure.Err)
		}
		if !lost || !more(failure) {
			return v, err
		}
		wait, left := out.next(time.Now(), failure.RetryAfter)
		if !left {
			return v, err
		}
		if backoff.Wait(ctx, wait) != nil {
			return v, err
		}
	}
}
