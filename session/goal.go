package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/goal"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A goal is a chain of turns that the manager starts, see package goal. A turn of it that ends is followed by the next
// one in Session.Finish. When it has waited, or when the process has died between, advance has it go on: a timer calls
// that (wakeGoal), Recover does, or adoptOne for a session that is due.

// GoalRequest asks for a goal.
type GoalRequest struct {
	// Request is what each turn runs, and in which session; without a prompt. Its state and seeds are for the first
	// turn.
	Request
	// Goal is the prompt of the first turn, and Continuation that of the others; "" is "continue".
	Goal, Continuation string
	// Tools, Limits, OnFailure and Hold are those of record.GoalStarted. Tools.Done "" is report_done, and an OnFailure
	// of 0 is ABORT.
	Tools     record.GoalTools
	Limits    record.GoalLimits
	OnFailure agentdv1.StartGoalRequest_OnFailure
	Hold      bool
}

const (
	// DoneTool is the name of the tool that ends a goal, unless the goal has another one.
	DoneTool = "report_done"
	// continuePrompt is the prompt of a turn when nothing else is to be said.
	continuePrompt = "continue"
	// maxInjected bounds the text of a message, in bytes.
	maxInjected = 64 << 10
)

// StartGoal begins a goal, durably before it returns, and returns how it stands. It refuses a session that works on one
// or runs a turn. The goal does not depend on ctx. A request whose key has started one before returns that one. An
// error that a client may see is of type *fault.Error; that holds for the methods below too.
func (m *Manager) StartGoal(ctx context.Context, req GoalRequest) (*index.Goal, error) {
	if strings.TrimSpace(req.Goal) == "" {
		return nil, fault.Errorf(fault.Invalid, "goal is empty: say what is to be reached").
			Breaking("goal", fault.RuleRequired)
	}
	return m.startGoal(ctx, req, &record.GoalStarted{Prompt: req.Goal})
}

// startGoal is StartGoal for the beginning of a record.
func (m *Manager) startGoal(ctx context.Context, req GoalRequest, begin *record.GoalStarted) (*index.Goal, error) {
	if err := checkGoal(&req); err != nil {
		return nil, err
	}
	begin.Goal, begin.Continuation = req.Goal, cmp.Or(req.Continuation, continuePrompt)
	begin.Prompt = cmp.Or(begin.Prompt, begin.Continuation)
	begin.Tools, begin.Limits, begin.Hold = req.Tools, req.Limits, req.Hold
	begin.Tools.Done = cmp.Or(begin.Tools.Done, DoneTool)
	begin.OnFailure = cmp.Or(req.OnFailure, agentdv1.StartGoalRequest_ON_FAILURE_ABORT)
	begin.By = principal.Of(ctx).ID
	for _, text := range []*string{&begin.Goal, &begin.Prompt, &begin.Continuation} {
		*text = logjson.Readable(*text)
	}
	turn := req.Request
	turn.Prompt, turn.goal = begin.Prompt, begin
	left := record.Budget{Cost: begin.Limits.Cost, Wall: begin.Limits.PerTurn} // what Check is to know of it
	asked := turn.Budget
	turn.Budget = asked.Least(left)
	begin.Turn.Budget = asked
	t, err := m.Start(ctx, turn)
	repeated, again := errors.AsType[*Repeated](err)
	held, holds := errors.AsType[*noTurn](err)
	var id string
	switch {
	case again:
		id = repeated.SessionID
	case holds:
		id = held.sessionID
	case err != nil:
		return nil, err
	default:
		id = t.SessionID()
	}
	return m.Goal(ctx, id)
}

// noTurn is how Manager.start ends for a goal that waits, or has ended, before its first turn.
type noTurn struct{ sessionID string } //nolint:errname // a result that is returned as an error

func (*noTurn) Error() string { return "session: the goal begins without a turn" }

// begins completes the beginning of a goal with what each of its turns runs.
func (req *Request) begins(started *record.TurnStarted) *record.GoalStarted {
	if req.goal == nil {
		return nil
	}
	begin := *req.goal
	budget := begin.Turn.Budget
	begin.Turn = *started
	begin.Turn.Budget, begin.Turn.Prompt, begin.Turn.Trace = budget, "", tracecontext.Context{}
	if len(started.State)+len(started.Temp)+len(started.Seed) > 0 {
		begin.First = &record.GoalFirst{State: started.State, Temp: started.Temp, Seed: started.Seed}
	}
	begin.Turn.State, begin.Turn.Temp, begin.Turn.Seed = nil, nil, nil
	return &begin
}

// checkGoal refuses what a goal cannot have.
func checkGoal(req *GoalRequest) error {
	refuse := func(field, why string) error {
		return fault.Errorf(fault.Invalid, "execute.%s: %s", field, why).
			Breaking("execute."+field, fault.RuleExcluded)
	}
	switch {
	case req.Prompt != "":
		return refuse("user_prompt", "the prompt of a goal is its goal: leave user_prompt empty")
	case len(req.Parts) > 0:
		return refuse("user_parts", "a goal begins with its text alone: leave user_parts empty")
	case req.TurnID != "":
		return refuse("turn_id", "the server names the turns of a goal: leave turn_id out")
	case req.OnBusy > agentdv1.OnBusy_ON_BUSY_REJECT:
		return refuse("on_busy", "a goal begins in a session that runs no turn: leave on_busy out")
	case req.OnDisconnect.Cancel:
		return refuse("on_disconnect", "a goal goes on without clients: leave on_disconnect out, or stop the goal")
	case req.Fork:
		return refuse("fork", "fork the session first (ForkSession), and start the goal in the fork")
	case req.Limits.Turns < 0, req.Limits.Input < 0, req.Limits.Output < 0, req.Limits.Cost < 0, req.Limits.Wall < 0,
		req.Limits.PerTurn < 0, req.Tools.MaxDefer < 0:
		return fault.Errorf(fault.Invalid, "a limit of a goal must not be negative")
	}
	return nil
}

// ResumeGoal goes on with the last goal of a session that has ended, with what that one has used. One that was
// completed is returned as it is, and nothing runs. A session without a goal begins one.
func (m *Manager) ResumeGoal(ctx context.Context, req GoalRequest) (*index.Goal, error) {
	if req.SessionID == "" {
		return nil, fault.Errorf(fault.Invalid, "execute.session_id is missing: name the session whose goal goes on").
			Breaking("execute.session_id", fault.RuleRequired)
	}
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	g := ref.Value.Goal()
	m.release(ref)
	switch {
	case g.IsOpen():
		if req.Once.Key != "" { // it may be the one that this request has begun
			err = m.madeBefore(ctx, principal.Of(ctx).Key()+scopeTurn, req.Once)
		}
		if _, again := errors.AsType[*Repeated](err); again {
			return m.Goal(ctx, req.SessionID)
		}
		return nil, cmp.Or(err, ref.Value.ErrWorks())
	case g.Seq == 0:
		return m.StartGoal(ctx, req)
	case g.Status() == agentdv1.GoalStatus_GOAL_STATUS_COMPLETED:
		return m.Goal(ctx, req.SessionID)
	}
	begin := &record.GoalStarted{Resumed: true, Totals: g.Totals}
	switch {
	case g.Totals.Turns == 0:
		begin.Prompt = cmp.Or(req.Goal, g.F.Goal)
	case req.Goal != "" && req.Goal != g.F.Goal:
		begin.Prompt = req.Goal
	}
	req.Goal = cmp.Or(req.Goal, g.F.Goal)
	req.Continuation = cmp.Or(req.Continuation, g.F.Continuation)
	return m.startGoal(ctx, req, begin)
}

// Goal returns the last goal of a session. That it has none is NOT_FOUND.
func (m *Manager) Goal(ctx context.Context, sessionID string) (*index.Goal, error) {
	key, err := m.keyOf(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	g, err := m.lists.Goal(ctx, key)
	return m.seenGoal(g), err
}

// seenGoal returns a goal as callers see it.
func (*Manager) seenGoal(g *index.Goal) *index.Goal {
	if g == nil {
		return nil
	}
	out := *g
	out.SessionID = tenant.ID(g.SessionID)
	if g.Parent != nil {
		parent := *g.Parent
		parent.Session = tenant.ID(parent.Session)
		out.Parent = &parent
	}
	if g.Seq > 1 { // no turn runs where a goal begins
		out.Cursor = render.Place{At: position.LastOf(g.Seq - 1), From: g.Seq}.Cursor(out.SessionID)
	}
	return &out
}

// Holder names this process as the one that drives goals, HOST/PID/RANDOM.
func (m *Manager) Holder() string { return m.store.Holder }

// Since returns how long it is since a time of a record.
func (m *Manager) Since(at time.Time) time.Duration { return max(m.store.Stamp().Sub(at), 0) }

// ListGoals returns goals of the caller's tenant as ListSessions returns sessions.
func (m *Manager) ListGoals(
	ctx context.Context, q index.GoalQuery, page string, limit int,
) (goals []*index.Goal, next string, err error) {
	q.Tenant, q.Maker = reach(ctx)
	if q.SessionID, err = m.keyOf(ctx, scoped(ctx, q.SessionID)); err != nil {
		return nil, "", err
	}
	goals, next, err = m.lists.ListGoals(ctx, q, page, limit)
	for i, g := range goals {
		goals[i] = m.seenGoal(g)
	}
	return goals, next, err
}

// Inject has the next turn of a session's goal read a message, and returns how many wait. A repeat under the same key
// injects nothing.
func (m *Manager) Inject(ctx context.Context, sessionID, text, key string) (waiting int, err error) {
	switch {
	case strings.TrimSpace(text) == "":
		return 0, fault.Errorf(fault.Invalid, "text is empty").Breaking("text", fault.RuleRequired)
	case len(text) > maxInjected:
		return 0, fault.Errorf(fault.LimitExceeded,
			"text has %d bytes, at most %d are allowed", len(text), maxInjected).
			Breaking("text", fault.RuleRange).Over("message_bytes", maxInjected, len(text))
	}
	ref, err := m.acquire(ctx, sessionID)
	if err != nil {
		return 0, err
	}
	defer m.release(ref)
	return ref.Value.Inject(ctx, text, key)
}

// controlGoal is ControlGoal for the session's own goal.
func (m *Manager) controlGoal(
	ctx context.Context, ref *sessionRef, action agentdv1.GoalAction,
) (_ *index.Goal, err error) {
	if action == agentdv1.GoalAction_GOAL_ACTION_STOP {
		err = m.stopGoal(ctx, ref.Value)
	} else {
		_, err = ref.Value.TellGoal(ctx, func(g *goal.State, now time.Time) (record.Kind, any, error) {
			return told(ctx, ref.Value.ID(), g, action, now)
		})
	}
	if err != nil {
		return nil, err
	}
	_ = m.advance(ctx, ref) // what is recorded stands, and a timer tries again
	return m.Goal(ctx, ref.Value.ID())
}

// told returns the fact of what a caller does to a goal; nil for what is so already.
func told(
	ctx context.Context, id string, g *goal.State, action agentdv1.GoalAction, now time.Time,
) (record.Kind, any, error) {
	refuse := func(format string, args ...any) (record.Kind, any, error) {
		return "", nil, fault.Errorf(fault.Precondition, "session %q: "+format, append([]any{id}, args...)...)
	}
	by := principal.Of(ctx).ID
	switch {
	case g.Seq == 0:
		return refuse("it has no goal")
	case !g.IsOpen():
		return refuse("its goal has ended (%s): ResumeGoal goes on with it", words(g.Status()))
	case action == agentdv1.GoalAction_GOAL_ACTION_PAUSE:
		if g.Paused {
			return "", nil, nil
		}
		return record.KindGoalPaused, &record.GoalPaused{ID: g.F.ID, By: by}, nil
	case action == agentdv1.GoalAction_GOAL_ACTION_RESUME:
		if !g.Paused {
			return "", nil, nil
		}
		return record.KindGoalResumed, &record.GoalResumed{ID: g.F.ID, Action: action, By: by}, nil
	case g.Paused:
		return refuse("its goal is paused: resume it first")
	}
	holds := g.Wait == agentdv1.GoalWait_GOAL_WAIT_HOLD
	asks := g.Wait == agentdv1.GoalWait_GOAL_WAIT_ASK
	switch action {
	case agentdv1.GoalAction_GOAL_ACTION_PROCEED:
		if !holds {
			return refuse("its goal does not hold before a turn, so there is nothing to proceed with")
		}
	case agentdv1.GoalAction_GOAL_ACTION_RETRY, agentdv1.GoalAction_GOAL_ACTION_SKIP:
		if !asks {
			return refuse("its goal does not ask what follows a turn that has failed")
		}
	case agentdv1.GoalAction_GOAL_ACTION_ABORT:
		if !asks && !holds {
			return refuse("its goal waits for no answer: stop it")
		}
		why := cmp.Or(g.Failure, "a caller has aborted it")
		return record.KindGoalEnded, g.Over(agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED, why, by, now), nil
	default:
		return "", nil, fault.Errorf(fault.Invalid, "action %v is unknown", action).
			Breaking("action", fault.RuleRange)
	}
	return record.KindGoalResumed, &record.GoalResumed{ID: g.F.ID, Action: action, By: by}, nil
}

// words is a status or a reason as people read it.
func words(is fmt.Stringer) string {
	text := strings.TrimPrefix(strings.TrimPrefix(is.String(), "GOAL_STATUS_"), "GOAL_REASON_")
	return strings.ToLower(text)
}

// goalStopped is the reason of the end of a turn whose goal was stopped.
const goalStopped = "its goal was stopped"

// stopGoal ends the goal and its turn.
func (m *Manager) stopGoal(ctx context.Context, s *live.Session) error {
	for {
		turn := ""
		_, err := s.TellGoal(ctx, func(g *goal.State, now time.Time) (record.Kind, any, error) {
			switch turn = g.Turn; {
			case g.Seq == 0:
				return "", nil, fault.Errorf(fault.Precondition, "session %q has no goal", s.ID())
			case !g.IsOpen(), turn != "":
				return "", nil, nil
			}
			over := g.Over(agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED, "", principal.Of(ctx).ID, now)
			return record.KindGoalEnded, over, nil
		})
		if err != nil || turn == "" {
			return err
		}
		// The end of the turn ends the goal, with what the turn has used.
		if err := m.cancelTurn(ctx, s.Key(), turn, goalStopped); err != nil {
			return err
		}
	}
}

// advance has the session's goal go on if it can now. Whoever calls it uses ref. What it cannot do now is tried again.
func (m *Manager) advance(ctx context.Context, ref *sessionRef) error {
	s := ref.Value
	m.tendChildrenNow(ctx, s)
	wait, due := s.GoalDue()
	if !due {
		return nil
	}
	if wait > 0 {
		m.wakeLater(s.Key(), wait)
		return nil
	}
	payer := tenant.Of(s.Key())
	if err := m.admit(payer, false); err != nil {
		return err
	}
	defer m.turns.Done()
	defer m.admitted(payer)
	if err := s.Reserve(); err != nil {
		if isBusy(err) { // the end of that turn goes on with it
			return nil
		}
		return err
	}
	next, err := s.StepGoal(context.WithoutCancel(ctx))
	if next == nil {
		s.Unreserve()
	}
	if err != nil {
		return err
	}
	if next != nil {
		m.launchNext(ctx, ref, next)
	}
	return nil
}

// awaitGoal sets the timer of a goal that waits, and returns how long it does; false for none.
func (m *Manager) awaitGoal(s *live.Session) (wait time.Duration, due bool) {
	if wait, due = s.GoalDue(); due {
		m.wakeLater(s.Key(), max(wait, refusal.Later)) // who has it go on at once does so itself
	}
	return wait, due
}

// advanceDue is advance for a user of a session that is about to leave it. With Owners, each that leaves says anew when
// the session is due: a goal whose session is read all the time would not go on otherwise.
func (m *Manager) advanceDue(ref *sessionRef) {
	if m.owners == nil {
		return
	}
	s, ok := ref.Now()
	if !ok {
		return
	}
	if wait, due := s.GoalDue(); due && wait == 0 {
		_ = m.advance(context.Background(), ref) // awaitGoal says when it is tried again
	}
}

// goalLook bounds the time of a timer: the clock of the machine may be set, and the machine may sleep.
const goalLook = time.Hour

// wake is a timer that calls wakeGoal.
type wake struct {
	at    time.Time
	timer *time.Timer
}

// wakeLater has wakeGoal be called after a wait, or before if that is to be already.
func (m *Manager) wakeLater(key string, wait time.Duration) {
	wait = min(wait, goalLook)
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &wake{at: time.Now().Add(wait)}
	before := m.wakes[key]
	if m.draining || before != nil && !w.at.Before(before.at) {
		return
	}
	if before != nil {
		before.timer.Stop()
	}
	m.wakes[key] = w
	w.timer = time.AfterFunc(wait, func() { m.wakeGoal(key, w) })
}

// wakeGoal has a goal go on whose time has come. With Owners that is for the server that has the session in memory:
// otherwise they offer it.
func (m *Manager) wakeGoal(key string, w *wake) {
	if !m.admitWake(key, w) {
		return // another timer does it, or the next server
	}
	defer m.turns.Done()
	if m.owners != nil && m.sessionInMemory(key) == nil {
		return
	}
	ctx := context.Background()
	ref, err := m.acquireKey(ctx, key)
	if err == nil {
		defer m.release(ref)
		err = m.advance(ctx, ref)
	}
	switch {
	case err == nil, refusal.IsGone(err), isElsewhere(err):
		return
	case !errors.Is(err, errNoRoom):
		m.log.LogAttrs(ctx, slog.LevelWarn, "a goal that could go on waits", slog.String("session", key),
			slog.String("error", err.Error()))
	}
	if ref == nil {
		m.wakeLater(key, refusal.Later) // else its release does
	}
}

// admitWake forgets the timer that has fired, and counts the caller in m.turns. It reports false in a server that
// stops, and for a timer that was set anew.
func (m *Manager) admitWake(key string, w *wake) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wakes[key] != w || m.draining {
		return false
	}
	delete(m.wakes, key)
	m.turns.Add(1)
	return true
}

// recoverGoals sets timers for the goals of which no turn is under way. It is for a server that owns all sessions.
func (m *Manager) recoverGoals(ctx context.Context) error {
	q := store.RowQuery{Kind: store.RowGoal, Statuses: []string{index.GoalRunning}, Limit: live.ReadPage}
	for {
		rows, err := m.store.Rows(ctx, q)
		if err != nil {
			return fmt.Errorf("session: find goals: %w", err)
		}
		for _, row := range rows {
			g, err := index.ReadGoal(row)
			if err != nil {
				return err
			}
			if g.Turn == "" {
				m.wakeLater(row.SessionID, max(g.Until.Sub(m.store.Stamp()), 0))
			}
		}
		if q.IsLast(rows) {
			return nil
		}
		q.After = &rows[len(rows)-1]
	}
}

// keepsGoal reports whether a session has a goal that has not ended.
func (m *Manager) keepsGoal(ctx context.Context, key string) (bool, error) {
	rows, err := m.store.Rows(ctx, store.RowQuery{
		Kind: store.RowGoal, SessionID: key, Statuses: []string{index.GoalRunning, index.GoalPaused}, Limit: 1,
	})
	return len(rows) > 0, err
}
