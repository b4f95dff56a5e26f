package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// worker is an engine for turns of goals: it notes their prompts, and does what the script says of a turn, by its number
// from 1. A turn that the script does not have says its number.
type worker struct {
	mu      sync.Mutex // protects the fields below
	prompts []string
	script  map[int]func(ctx context.Context, r *session.Run) error
}

func (w *worker) run(ctx context.Context, r *session.Run) error {
	w.mu.Lock()
	w.prompts = append(w.prompts, r.Spec().Prompt)
	n := len(w.prompts)
	does := w.script[n]
	w.mu.Unlock()
	if does != nil {
		return does(ctx, r)
	}
	return say(ctx, r, fmt.Sprintf("m-%s", r.TurnID()), root, fmt.Sprintf("turn %d", n))
}

func (w *worker) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.prompts)
}

// reports is a turn in which an agent says something of its goal.
func reports(said record.GoalSaid) func(ctx context.Context, r *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		if err := add(ctx, r, &record.Event{Path: root, Goal: &said}); err != nil {
			return err
		}
		return say(ctx, r, "m-"+r.TurnID(), root, "so be it")
	}
}

func done(detail string) func(ctx context.Context, r *session.Run) error {
	return reports(record.GoalSaid{Done: true, Detail: detail})
}

func fails(context.Context, *session.Run) error {
	return fault.Errorf(fault.Unavailable, "the model is away")
}

func (f *fixture) goal(req session.GoalRequest) *index.Goal {
	f.t.Helper()
	if req.Agent == nil && req.SessionID == "" || req.Create {
		req.Agent = tree()
		req.Tools = session.GoalRequest{}.Tools
		req.Request.Tools = []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}
	}
	if req.Goal == "" {
		req.Goal = "sort it"
	}
	g, err := f.m.StartGoal(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("start: %v", err)
	}
	return g
}

func (f *fixture) goalNow(id string) *index.Goal {
	f.t.Helper()
	g, err := f.m.Goal(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return g
}

// kindsOf is the log of a session in words, events left out.
func (f *fixture) kindsOf(id string) string {
	var out []string
	for _, rec := range f.log(id) {
		if rec.Kind != record.KindEvent {
			out = append(out, string(rec.Kind))
		}
	}
	return strings.Join(out, " ")
}

func (f *fixture) control(id string, action agentdv1.GoalAction) *index.Goal {
	f.t.Helper()
	stand, err := f.m.ControlGoal(f.t.Context(), id, action)
	if err != nil {
		f.t.Fatalf("%v: %v", action, err)
	}
	return stand[0]
}

// A goal is a chain of turns of one session, each of which ends in the append that starts the next, until an agent
// reports that it is done.
func TestGoal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		begun := make(chan struct{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			1: func(ctx context.Context, r *session.Run) error {
				<-begun
				return say(ctx, r, "m-"+r.TurnID(), root, "turn 1")
			},
			3: done("sorted"),
		}}
		f.on(w.run)
		g := f.goal(session.GoalRequest{Request: session.Request{InitialState: map[string]any{"k": "v"}}})
		close(begun)
		if g.Status != agentdv1.GoalStatus_GOAL_STATUS_RUNNING || g.Turn == "" || g.Text != "sort it" {
			t.Errorf("it begins as %+v", g)
		}
		synctest.Wait()
		g = f.goalNow(g.SessionID)
		if g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED || g.Reason != agentdv1.GoalReason_GOAL_REASON_COMPLETED ||
			g.Totals != (record.GoalTotals{Turns: 3, Input: 9, Output: 6}) || g.Final != "so be it" || g.Detail != "sorted" || g.Turn != "" {
			t.Errorf("it ends as %+v", g)
		}
		if got := w.said(); !slices.Equal(got, []string{"sort it", "continue", "continue"}) {
			t.Errorf("prompts %q", got)
		}
		if got, want := f.kindsOf(g.SessionID), "goal_started turn_started turn_ended goal_checkpointed turn_started turn_ended "+
			"goal_checkpointed turn_started turn_ended goal_checkpointed goal_ended"; got != want {
			t.Errorf("the log has %s", got)
		}
		var starts []record.Record
		for _, rec := range f.log(g.SessionID) {
			if rec.Kind == record.KindTurnStarted {
				starts = append(starts, rec)
			}
		}
		for i, rec := range starts { // the state is for the first turn
			if has := strings.Contains(string(rec.Data), `"k":"v"`); has != (i == 0) {
				t.Errorf("turn %d starts with %s", i+1, rec.Data)
			}
		}
		all, err := now(t, f.watchSession(g.SessionID, ""))
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, p := range all {
			if ev := p.Message.GetGoal(); ev != nil {
				seen = append(seen, strings.TrimPrefix(fmt.Sprintf("%T", ev.GetEvent()), "*agentdv1.GoalEvent_"))
				if p.Cursor == "" || ev.GetSessionId() != g.SessionID || p.Message.GetTurnId() != "" { // no turn is under way
					t.Errorf("event %v", p)
				}
			}
		}
		if !slices.Equal(seen, []string{"Started", "Checkpointed", "Checkpointed", "Checkpointed", "Ended"}) {
			t.Errorf("watchers see %q", seen)
		}
		for _, p := range all { // reading goes on behind each event
			if p.Cursor != "" {
				if _, _, err := f.m.SessionEvents(t.Context(), g.SessionID, p.Cursor, 10, nil); err != nil {
					t.Fatalf("behind %v: %v", p.Message, err)
				}
			}
		}
	})
}

// Each limit ends a goal before its next turn, with its reason.
func TestGoalLimits(t *testing.T) {
	type reason = agentdv1.GoalReason
	for name, c := range map[string]struct {
		limits record.GoalLimits
		turns  int64
		why    reason
	}{
		"turns":  {record.GoalLimits{Turns: 2}, 2, agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED},
		"input":  {record.GoalLimits{Input: 7}, 3, agentdv1.GoalReason_GOAL_REASON_MAX_TOKENS_EXCEEDED},
		"output": {record.GoalLimits{Output: 2}, 1, agentdv1.GoalReason_GOAL_REASON_MAX_TOKENS_EXCEEDED},
		"cost":   {record.GoalLimits{Cost: 2_500_000}, 3, agentdv1.GoalReason_GOAL_REASON_MAX_COST_EXCEEDED},
		"time":   {record.GoalLimits{Wall: 15 * 24 * time.Hour}, 3, agentdv1.GoalReason_GOAL_REASON_WALLCLOCK_EXCEEDED},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{TurnTimeout: 30 * 24 * time.Hour})
				f.on(func(ctx context.Context, r *session.Run) error {
					time.Sleep(7 * 24 * time.Hour)
					return add(ctx, r, &record.Event{MessageID: "m-" + r.TurnID(), Path: root, Text: "on",
						Usage: &record.Usage{Prompt: 3, Completion: 2, Total: 5, Calls: 1, Cost: 1_000_000}})
				})
				g := f.goal(session.GoalRequest{Limits: c.limits})
				time.Sleep(40 * 24 * time.Hour)
				g = f.goalNow(g.SessionID)
				if g.Reason != c.why || g.Totals.Turns != c.turns || g.Status != agentdv1.GoalStatus_GOAL_STATUS_FAILED {
					t.Errorf("it ends as %+v", g)
				}
				if took := time.Duration(c.turns) * 7 * 24 * time.Hour; g.Took != took {
					t.Errorf("it took %v, want %v", g.Took, took)
				}
			})
		})
	}
}

// What is left of the goal is the budget of the next turn.
func TestGoalLeavesABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		var left []record.Budget
		f.on(func(ctx context.Context, r *session.Run) error {
			left = append(left, r.Spec().Budget)
			if len(left) == 3 {
				return done("")(ctx, r)
			}
			return add(ctx, r, &record.Event{MessageID: "m-" + r.TurnID(), Path: root, Text: "on",
				Usage: &record.Usage{Prompt: 30, Completion: 20, Total: 50, Calls: 1, Cost: 4}})
		})
		f.goal(session.GoalRequest{
			Request: session.Request{Budget: record.Budget{ModelCalls: 7, Tokens: 800}},
			Limits:  record.GoalLimits{Input: 500, Output: 400, Cost: 10, PerTurn: time.Hour},
		})
		synctest.Wait()
		want := []record.Budget{
			{ModelCalls: 7, Tokens: 800, Cost: 10, Wall: time.Hour}, {ModelCalls: 7, Tokens: 800, Cost: 6, Wall: time.Hour},
			{ModelCalls: 7, Tokens: 800, Cost: 2, Wall: time.Hour},
		}
		if !slices.Equal(left, want) {
			t.Errorf("budgets %+v, want %+v", left, want)
		}
	})
}

// A turn that uses up what was left of the goal ends it with the reason of the limit, whatever the policy.
func TestGoalSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			for i := range 9 {
				over, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "echo"}, nil)
				if err != nil {
					return err
				}
				err = add(ctx, r, &record.Event{MessageID: fmt.Sprint(r.TurnID(), i), Path: root, Text: "on",
					Usage: &record.Usage{Prompt: 1, Completion: 1, Total: 2, Calls: 1, Cost: 4}})
				over(false)
				if err != nil {
					return err
				}
			}
			return nil
		})
		g := f.goal(session.GoalRequest{Limits: record.GoalLimits{Cost: 10}, OnFailure: agentdv1.StartGoalRequest_ON_FAILURE_RETRY})
		synctest.Wait()
		g = f.goalNow(g.SessionID)
		if g.Reason != agentdv1.GoalReason_GOAL_REASON_MAX_COST_EXCEEDED || g.Totals.Turns != 1 || g.Totals.Cost != 12 {
			t.Errorf("it ends as %+v", g)
		}
	})
}

// What follows a turn that has failed.
func TestGoalFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			policy  agentdv1.StartGoalRequest_OnFailure
			prompts []string
			why     agentdv1.GoalReason
		}{
			"abort": {agentdv1.StartGoalRequest_ON_FAILURE_ABORT, []string{"sort it", "continue"}, agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED},
			"retry": {agentdv1.StartGoalRequest_ON_FAILURE_RETRY, []string{"sort it", "continue", "continue", "continue"}, agentdv1.GoalReason_GOAL_REASON_COMPLETED},
			"skip":  {agentdv1.StartGoalRequest_ON_FAILURE_SKIP, []string{"sort it", "continue", "continue", "continue"}, agentdv1.GoalReason_GOAL_REASON_COMPLETED},
		} {
			f := newFixture(t, memory(t), limits.Limits{})
			w := &worker{script: map[int]func(context.Context, *session.Run) error{2: fails, 3: fails, 4: done("")}}
			f.on(w.run)
			begun := time.Now()
			g := f.goal(session.GoalRequest{OnFailure: c.policy})
			time.Sleep(time.Minute)
			g = f.goalNow(g.SessionID)
			if g.Reason != c.why || !slices.Equal(w.said(), c.prompts) {
				t.Errorf("%s: %q, %+v", name, w.said(), g)
			}
			if took := g.Ended.Sub(begun); name != "abort" && (took < time.Second || took > 2*time.Second) {
				t.Errorf("%s: two failures in a row took %v", name, took)
			}
			if name == "abort" && g.Message != "the model is away" {
				t.Errorf("%s: it says %q", name, g.Message)
			}
		}
		// The first turn that fails is asked again as it was.
		f := newFixture(t, memory(t), limits.Limits{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{1: fails, 2: done("")}}
		f.on(w.run)
		f.goal(session.GoalRequest{OnFailure: agentdv1.StartGoalRequest_ON_FAILURE_RETRY})
		synctest.Wait()
		if got := w.said(); !slices.Equal(got, []string{"sort it", "sort it"}) {
			t.Errorf("prompts %q", got)
		}
	})
}

// A goal that asks, or holds before each turn, waits 30 seconds.
func TestGoalWaitsForCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{2: fails, 4: fails, 6: done("")}}
		f.on(w.run)
		g := f.goal(session.GoalRequest{Hold: true, OnFailure: agentdv1.StartGoalRequest_ON_FAILURE_ASK})
		id := g.SessionID
		if g.Wait != agentdv1.GoalWait_GOAL_WAIT_HOLD || g.Turn != "" || len(w.said()) > 0 {
			t.Fatalf("it begins as %+v", g)
		}
		if _, err := f.m.ControlGoal(t.Context(), id, agentdv1.GoalAction_GOAL_ACTION_SKIP); fault.As(err).Code != fault.Precondition {
			t.Errorf("skip without a failure: %v", err)
		}
		for i, says := range []agentdv1.GoalAction{
			agentdv1.GoalAction_GOAL_ACTION_PROCEED, agentdv1.GoalAction_GOAL_ACTION_PROCEED, // 2 fails
			agentdv1.GoalAction_GOAL_ACTION_RETRY, agentdv1.GoalAction_GOAL_ACTION_PROCEED, // 3
			agentdv1.GoalAction_GOAL_ACTION_PROCEED, // 4 fails
			agentdv1.GoalAction_GOAL_ACTION_SKIP, agentdv1.GoalAction_GOAL_ACTION_PROCEED,
			agentdv1.GoalAction_GOAL_ACTION_PROCEED,
		} {
			time.Sleep(29 * time.Second)
			f.control(id, says)
			synctest.Wait()
			if g = f.goalNow(id); i < 7 && g.Wait == 0 {
				t.Fatalf("after %d answers it is %+v", i+1, g)
			}
		}
		if got := w.said(); !slices.Equal(got, []string{"sort it", "continue", "continue", "continue", "continue", "continue"}) ||
			g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED {
			t.Errorf("prompts %q, %+v", got, g)
		}
		// Nobody answers.
		for _, g := range []*index.Goal{f.goal(session.GoalRequest{Hold: true}), func() *index.Goal {
			w.script = map[int]func(context.Context, *session.Run) error{7: fails}
			return f.goal(session.GoalRequest{OnFailure: agentdv1.StartGoalRequest_ON_FAILURE_ASK})
		}()} {
			time.Sleep(31 * time.Second)
			got := f.goalNow(g.SessionID)
			if got.Reason != agentdv1.GoalReason_GOAL_REASON_RETRY_POLICY_ABORTED || got.Took > 31*time.Second {
				t.Errorf("%+v", got)
			}
		}
	})
}

// An agent defers its next turn by weeks; the goal goes on by itself, also when the server has been started again.
func TestGoalDeferred(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{PurgeAfter: 24 * time.Hour})
			if err := f.m.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			wake := time.Now().Add(21 * 24 * time.Hour).UTC()
			w := &worker{script: map[int]func(context.Context, *session.Run) error{
				1: reports(record.GoalSaid{Wake: wake, Prompt: "look again"}), 2: done("")}}
			f.on(w.run)
			g := f.goal(session.GoalRequest{})
			synctest.Wait()
			if got := f.goalNow(g.SessionID); got.Wait != agentdv1.GoalWait_GOAL_WAIT_TIMER || !got.Until.Equal(wake) {
				t.Fatalf("it waits as %+v", got)
			}
			time.Sleep(20 * 24 * time.Hour)
			if restarts {
				f.stop()
				f = newFixture(t, f.store, limits.Limits{PurgeAfter: 24 * time.Hour})
				f.on(w.run)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.said(); len(got) != 1 {
				t.Fatalf("prompts %q", got)
			}
			time.Sleep(24*time.Hour + time.Second)
			if got := w.said(); !slices.Equal(got, []string{"sort it", "look again"}) {
				t.Errorf("prompts %q", got)
			}
			if got := f.goalNow(g.SessionID); got.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED || got.Took < 21*24*time.Hour {
				t.Errorf("it ends as %+v", got)
			}
		})
	}
}

// The time of the goal is over while it waits for a later one.
func TestGoalDeferredTooFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{1: reports(record.GoalSaid{Wake: time.Now().Add(100 * time.Hour)})}}
		f.on(w.run)
		g := f.goal(session.GoalRequest{Limits: record.GoalLimits{Wall: 50 * time.Hour}})
		time.Sleep(51 * time.Hour)
		if got := f.goalNow(g.SessionID); got.Reason != agentdv1.GoalReason_GOAL_REASON_WALLCLOCK_EXCEEDED || got.Totals.Turns != 1 {
			t.Errorf("it ends as %+v", got)
		}
	})
}

// A pause lets the turn under way finish and none begin; a resume goes on. A stop is hard, also while paused.
func TestGoalPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		hold := make(chan struct{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			1: func(ctx context.Context, r *session.Run) error {
				<-hold
				return say(ctx, r, "m-"+r.TurnID(), root, "first")
			},
			2: func(ctx context.Context, _ *session.Run) error { <-ctx.Done(); return context.Cause(ctx) },
		}}
		f.on(w.run)
		g := f.goal(session.GoalRequest{})
		id := g.SessionID
		for range 2 {
			g = f.control(id, agentdv1.GoalAction_GOAL_ACTION_PAUSE)
		}
		if g.Status != agentdv1.GoalStatus_GOAL_STATUS_PAUSED || g.Turn == "" {
			t.Errorf("paused it is %+v", g)
		}
		close(hold)
		time.Sleep(time.Hour)
		if g = f.goalNow(id); g.Turn != "" || g.Totals.Turns != 1 || len(w.said()) != 1 {
			t.Fatalf("the turn has ended, and it is %+v", g)
		}
		if _, err := f.m.Inject(t.Context(), id, "by the way", ""); err != nil {
			t.Fatal(err)
		}
		// It is paused for others that start the server again, too.
		f.stop()
		f = newFixture(t, f.store, limits.Limits{})
		f.on(w.run)
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if len(w.said()) != 1 {
			t.Fatal("a paused goal has gone on")
		}
		f.control(id, agentdv1.GoalAction_GOAL_ACTION_RESUME)
		synctest.Wait()
		if got := w.said(); len(got) != 2 || got[1] != "[Inbox]\n- by the way\n\n---\n\ncontinue" {
			t.Errorf("prompts %q", got)
		}
		for range 2 {
			g = f.control(id, agentdv1.GoalAction_GOAL_ACTION_STOP)
		}
		if g.Status != agentdv1.GoalStatus_GOAL_STATUS_STOPPED || g.Reason != agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED || g.Totals.Turns != 2 {
			t.Errorf("stopped it is %+v", g)
		}
		if _, err := f.m.ControlGoal(t.Context(), id, agentdv1.GoalAction_GOAL_ACTION_RESUME); fault.As(err).Code != fault.Precondition {
			t.Errorf("to resume it then: %v", err)
		}

		other := f.goal(session.GoalRequest{Hold: true})
		f.control(other.SessionID, agentdv1.GoalAction_GOAL_ACTION_PAUSE)
		time.Sleep(time.Hour)
		if g = f.goalNow(other.SessionID); g.Status != agentdv1.GoalStatus_GOAL_STATUS_PAUSED {
			t.Errorf("paused it is %+v", g)
		}
		if g = f.control(other.SessionID, agentdv1.GoalAction_GOAL_ACTION_STOP); g.Status != agentdv1.GoalStatus_GOAL_STATUS_STOPPED {
			t.Errorf("stopped it is %+v", g)
		}
	})
}

// Of 300 messages the newest 256 are delivered once, in order.
func TestGoalInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		hold := make(chan struct{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			1: func(context.Context, *session.Run) error { <-hold; return nil }, 3: done("")}}
		f.on(w.run)
		id := f.goal(session.GoalRequest{}).SessionID
		for i := range 300 {
			n, err := f.m.Inject(t.Context(), id, fmt.Sprintf("message %d", i), fmt.Sprint(i))
			if err != nil || n != min(i+1, 256) {
				t.Fatalf("%d: %d wait, %v", i, n, err)
			}
		}
		if n, err := f.m.Inject(t.Context(), id, "message 299", "299"); err != nil || n != 256 {
			t.Fatalf("again: %d wait, %v", n, err)
		}
		close(hold)
		synctest.Wait()
		var want strings.Builder
		want.WriteString("[Inbox]\n")
		for i := 44; i < 300; i++ {
			fmt.Fprintf(&want, "- message %d\n", i)
		}
		want.WriteString("\n---\n\ncontinue")
		if got := w.said(); len(got) != 3 || got[1] != want.String() || got[2] != "continue" {
			t.Errorf("prompts %.300q", got)
		}
		for text, code := range map[string]agentdv1.ErrorCode{"": fault.Invalid, strings.Repeat("x", 64<<10+1): fault.LimitExceeded} {
			if _, err := f.m.Inject(t.Context(), id, text, ""); fault.As(err).Code != code {
				t.Errorf("%.10q: %v", text, err)
			}
		}
		f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "hi") })
		plain := f.start(session.Request{})
		<-plain.Done()
		if _, err := f.m.Inject(t.Context(), plain.SessionID(), "x", ""); fault.As(err).Code != fault.Precondition {
			t.Errorf("a session without a goal: %v", err)
		}
	})
}

// A goal whose limit was 2 goes on and ends at 3; one that is completed is returned, and nothing runs.
func TestGoalResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		more := make(chan struct{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{3: func(ctx context.Context, r *session.Run) error {
			<-more
			return done("yes")(ctx, r)
		}}}
		f.on(w.run)
		g := f.goal(session.GoalRequest{Limits: record.GoalLimits{Turns: 2}})
		id := g.SessionID
		synctest.Wait()
		first := f.goalNow(id)
		if first.Reason != agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED || first.Totals.Turns != 2 {
			t.Fatalf("it ends as %+v", first)
		}
		resume := func(l record.GoalLimits) *index.Goal {
			t.Helper()
			g, err := f.m.ResumeGoal(t.Context(), session.GoalRequest{Request: session.Request{SessionID: id}, Limits: l})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return g
		}
		same := resume(record.GoalLimits{Turns: 2})
		if same.Reason != agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED || same.Totals.Turns != 2 || len(w.said()) != 2 || same.ID == first.ID {
			t.Errorf("under the same limit it is %+v", same)
		}
		again := session.GoalRequest{
			Request: session.Request{SessionID: id, Once: session.Once{Key: "k", Content: "c"}}, Limits: record.GoalLimits{Turns: 9},
		}
		begun, err := f.m.ResumeGoal(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := f.m.ResumeGoal(t.Context(), again); err != nil || same.ID != begun.ID {
			t.Errorf("a repeat, while it goes on, is %+v, %v", same, err)
		}
		again.Once.Content = "another"
		if _, err := f.m.ResumeGoal(t.Context(), again); code(err) != fault.Conflict {
			t.Errorf("another request under its key: %v", err)
		}
		close(more)
		synctest.Wait()
		last := f.goalNow(id)
		if last.Reason != agentdv1.GoalReason_GOAL_REASON_COMPLETED || last.Totals.Turns != 3 || last.Totals.Input != 9 || last.Detail != "yes" {
			t.Errorf("it ends as %+v", last)
		}
		if got := w.said(); !slices.Equal(got, []string{"sort it", "continue", "continue"}) {
			t.Errorf("prompts %q", got)
		}
		if again := resume(record.GoalLimits{Turns: 9}); again.ID != last.ID || len(w.said()) != 3 {
			t.Errorf("a completed goal was resumed: %+v", again)
		}
		goals, _, err := f.m.ListGoals(t.Context(), index.GoalQuery{SessionID: id}, "", 10)
		if err != nil || len(goals) != 3 || goals[0].ID != last.ID || goals[2].ID != first.ID {
			t.Errorf("goals %+v, %v", goals, err)
		}
		failed, next, err := f.m.ListGoals(t.Context(), index.GoalQuery{Statuses: []agentdv1.GoalStatus{agentdv1.GoalStatus_GOAL_STATUS_FAILED}}, "", 1)
		if err != nil || len(failed) != 1 || next == "" || failed[0].ID != same.ID {
			t.Errorf("goals %+v, %q, %v", failed, next, err)
		}
	})
}

// A second driver is refused by the name of the first.
func TestGoalHasOneDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, _ *session.Run) error { <-ctx.Done(); return context.Cause(ctx) })
		g := f.goal(session.GoalRequest{})
		again := session.GoalRequest{Request: session.Request{SessionID: g.SessionID}, Goal: "more"}
		_, err1 := f.m.StartGoal(t.Context(), again)
		_, err2 := f.m.ResumeGoal(t.Context(), again)
		_, err3 := f.m.Start(t.Context(), session.Request{SessionID: g.SessionID, Prompt: "hi"})
		for _, err := range []error{err1, err2, err3} {
			if e := fault.As(err); e.Code != fault.Busy || !strings.Contains(e.Message, f.m.Holder()) {
				t.Errorf("got %v", err)
			}
		}
		if parts := strings.Split(f.m.Holder(), "/"); len(parts) != 3 {
			t.Errorf("holder %q", f.m.Holder())
		}
		f.control(g.SessionID, agentdv1.GoalAction_GOAL_ACTION_STOP)
	})
}

// What another caller has queued runs first and is no turn of the goal. A prompt that interrupts takes the place of the
// goal's turn, and the goal goes on.
func TestGoalGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		hold := make(chan struct{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			1: func(context.Context, *session.Run) error { <-hold; return nil },
			3: func(ctx context.Context, _ *session.Run) error { <-ctx.Done(); return context.Cause(ctx) },
			5: done(""),
		}}
		f.on(w.run)
		id := f.goal(session.GoalRequest{}).SessionID
		f.start(session.Request{SessionID: id, Prompt: "aside", OnBusy: enqueue})
		close(hold)
		synctest.Wait()
		f.start(session.Request{SessionID: id, Prompt: "stop that", OnBusy: agentdv1.OnBusy_ON_BUSY_INTERRUPT})
		synctest.Wait()
		if got := w.said(); !slices.Equal(got, []string{"sort it", "aside", "continue", "stop that", "continue"}) {
			t.Errorf("prompts %q", got)
		}
		if g := f.goalNow(id); g.Totals.Turns != 3 || g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED {
			t.Errorf("it ends as %+v", g)
		}
	})
}

// A caller that cancels the goal's turn, archives or deletes its session ends the goal; a fork has none.
func TestGoalStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		waits := func(ctx context.Context, _ *session.Run) error { <-ctx.Done(); return context.Cause(ctx) }
		f.on(waits)
		g := f.goal(session.GoalRequest{})
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: g.SessionID})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.m.Goal(t.Context(), fork.ID); fault.As(err).Code != fault.NotFound {
			t.Errorf("the fork has a goal: %v", err)
		}
		if _, err := f.m.Inject(t.Context(), fork.ID, "x", ""); fault.As(err).Code != fault.Precondition {
			t.Errorf("the fork takes a message: %v", err)
		}
		if err := f.m.CancelTurn(t.Context(), g.SessionID, g.Turn, "enough"); err != nil {
			t.Fatal(err)
		}
		if g = f.goalNow(g.SessionID); g.Reason != agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED || g.Totals.Turns != 1 {
			t.Errorf("it ends as %+v", g)
		}
		gone := f.goal(session.GoalRequest{})
		if err := f.m.DeleteSession(t.Context(), gone.SessionID); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		f.on(func(context.Context, *session.Run) error { <-hold; return nil })
		kept := f.goal(session.GoalRequest{})
		if _, err := f.m.UpdateSession(t.Context(), kept.SessionID, store.Change{Archived: new(true)}); err != nil {
			t.Fatal(err)
		}
		close(hold)
		synctest.Wait()
		if g = f.goalNow(kept.SessionID); g.Reason != agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED || g.Totals.Turns != 1 {
			t.Errorf("archived it ends as %+v", g)
		}
	})
}

// A server that starts again resumes the goal's turn, and the goal goes on from there.
func TestGoalSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		w := &worker{script: map[int]func(context.Context, *session.Run) error{
			2: func(ctx context.Context, _ *session.Run) error { <-ctx.Done(); return context.Cause(ctx) },
			4: done(""),
		}}
		f.on(w.run)
		id := f.goal(session.GoalRequest{}).SessionID
		synctest.Wait()
		f.stop()
		f = newFixture(t, f.store, limits.Limits{})
		f.on(w.run)
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if g := f.goalNow(id); g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED || g.Totals.Turns != 3 {
			t.Errorf("it ends as %+v", g)
		}
	})
}

// A request that is repeated under its key starts one goal. What a goal cannot have is refused.
func TestGoalRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on((&worker{}).run)
		for _, hold := range []bool{false, true} {
			req := session.GoalRequest{Request: session.Request{Once: session.Once{Key: fmt.Sprint("k", hold), Content: "c"}}, Hold: hold, Limits: record.GoalLimits{Turns: 1}}
			first, again := f.goal(req), f.goal(req)
			if first.SessionID != again.SessionID || first.ID != again.ID {
				t.Errorf("%+v and %+v", first, again)
			}
		}
		for field, change := range map[string]func(*session.GoalRequest){
			"goal":                  func(r *session.GoalRequest) { r.Goal = " " },
			"execute.user_prompt":   func(r *session.GoalRequest) { r.Prompt = "x" },
			"execute.turn_id":       func(r *session.GoalRequest) { r.TurnID = "x" },
			"execute.on_busy":       func(r *session.GoalRequest) { r.OnBusy = enqueue },
			"execute.on_disconnect": func(r *session.GoalRequest) { r.OnDisconnect.Cancel = true },
			"execute.fork":          func(r *session.GoalRequest) { r.Fork = true },
		} {
			req := session.GoalRequest{Request: session.Request{Agent: tree()}, Goal: "x"}
			change(&req)
			_, err := f.m.StartGoal(t.Context(), req)
			if e := fault.As(err); e.Code != fault.Invalid || len(e.Violations) != 1 || e.Violations[0].Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := f.m.ResumeGoal(t.Context(), session.GoalRequest{}); fault.As(err).Code != fault.Invalid {
			t.Errorf("without a session: %v", err)
		}
		f.check = func(*record.Spec) error { return fault.Errorf(fault.Invalid, "no price") }
		if _, err := f.m.StartGoal(t.Context(), session.GoalRequest{Request: session.Request{Agent: tree()}, Goal: "x"}); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a tree that cannot run: %v", err)
		}
	})
}
