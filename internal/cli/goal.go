package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Work has the daemon work towards a goal, and follows its turns to its end as Follow does with one. Of prompt count
// what each turn runs, and where; of spec the goal and its limits. With resume the goal of the session goes on: one
// that has not ended is followed as it is. When ctx ends, the goal is left as it is. Its errors are *Error.
func (t *Turn) Work(
	ctx context.Context, prompt Prompt, spec client.GoalSpec, resume bool,
) (*client.GoalResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &work{turn: t, ctx: ctx, fail: cancel, children: t.below(ctx)}
	defer w.children.over()
	defer w.over()
	opts := []client.GoalOption{
		client.WithProgress(w.see), client.WithFailureEvents(), client.WithOnLeave(client.OnLeaveDetach),
	}
	for _, o := range prompt.options() {
		opts = append(opts, o.(client.GoalOption)) // each is about a turn, whoever starts it
	}
	for _, set := range t.toolSets() {
		if set != nil {
			opts = append(opts, client.WithTools(set))
		}
	}
	if t.Person != nil {
		opts = append(opts, client.WithPrompter(w))
	}
	spec.SessionID, spec.Agent = prompt.Session, prompt.Agent
	spec.Create = prompt.Create && prompt.Session != "" && !resume
	begin := t.Conn.StartGoal
	if resume {
		last, err := Call(ctx, t.Conn, func(ctx context.Context) (*client.GoalInfo, error) {
			return t.Conn.GetGoal(ctx, prompt.Session)
		})
		switch {
		case errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrSessionNotFound):
		case err != nil:
			return nil, err
		}
		if begin = t.Conn.ResumeGoal; err == nil && !last.HasEnded() {
			begin = t.Conn.FollowGoal
			t.Note("the goal has not ended, and goes on as it was started")
		}
	}
	goal, err := begin(ctx, spec, opts...)
	if err != nil {
		return nil, w.explain(err)
	}
	t.session.Store(new(goal.SessionID()))
	t.goal.Store(goal)
	close(t.begun())
	<-goal.Done()
	result, err := goal.Wait(ctx)
	if err != nil {
		return nil, w.explain(err)
	}
	return result, nil
}

// Stop stops the goal of Work, as soon as there is one; Work then returns by itself. It may be called from any
// goroutine.
func (t *Turn) Stop(ctx context.Context) error {
	select {
	case <-t.begun():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := Call(ctx, t.Conn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.goal.Load().Stop(ctx)
	})
	return err
}

// work follows the turns of a goal. see is called by one goroutine.
type work struct {
	turn  *Turn
	ctx   context.Context //nolint:containedctx // of the call of Work
	fail  context.CancelCauseFunc
	n     int               // the turn that is seen
	tools map[string]string // names of the tools that were called in it, by call

	children *below
}

// see shows an event of a turn.
func (w *work) see(n int, event *client.Event) {
	t := w.turn
	if n != w.n {
		w.over()
		w.n, w.tools = n, map[string]string{}
		t.session.Store(&event.SessionID)
		t.asked.Store(newQuestions(w.ctx, t))
	}
	w.children.see(event)
	asked := t.asked.Load()
	switch d := event.Data.(type) {
	case *client.ConnectionLost:
		t.connected(false)
		t.Note("%v; trying again", t.Conn.lost(d.Err))
		return
	case *client.ConnectionRestored:
		t.connected(true)
		return
	case *client.ConnectionAbandoned:
		return
	case *client.End:
		asked.close()
	}
	message := event.Proto()
	if !t.react(event, asked, w.tools) || message == nil {
		return
	}
	if e := message.GetError(); e != nil {
		t.Note("turn %d has failed: %s", w.n, e.GetMessage())
	}
	if err := asked.show(message); err != nil {
		w.fail(&Error{Message: fmt.Sprintf("write: %v", err), Err: err})
	}
}

// over takes back what the turn that was seen last asks.
func (w *work) over() {
	if asked := w.turn.asked.Load(); asked != nil {
		asked.close()
	}
}

// Prompt asks the person of the turn that is seen.
func (w *work) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	asked := w.turn.asked.Load()
	if asked == nil {
		return nil, io.EOF // the interaction stays open
	}
	return asked.Prompt(ctx, in)
}

// explain says why there is no result; what has ended the context counts.
func (w *work) explain(err error) error {
	cause := context.Cause(w.ctx)
	if e, ok := errors.AsType[*Error](cause); ok {
		return e
	}
	if cause != nil {
		return &Error{Message: "interrupted", Err: cause}
	}
	return w.turn.Conn.explain(err)
}

// goalRow are the columns of a goal in a list.
func (p *Printer) goalRow(g *agentdv1.Goal) []string {
	return []string{
		g.GetSessionId(), goalState(g), number(g.GetTurns()), number(g.GetInputTokens() + g.GetOutputTokens()),
		goalCost(g), ago(p.Now, g.GetStartTime()), g.GetGoal(),
	}
}

// goalState is how a goal is, and what it waits for or why it has ended.
func goalState(g *agentdv1.Goal) string {
	state := word(g.GetStatus(), "GOAL_STATUS_")
	switch {
	case g.GetReason() != 0 && g.GetReason() != agentdv1.GoalReason_GOAL_REASON_COMPLETED:
		return state + ": " + word(g.GetReason(), "GOAL_REASON_")
	case g.GetWait() != 0:
		return state + ", waits: " + word(g.GetWait(), "GOAL_WAIT_")
	default:
		return state
	}
}

func goalCost(g *agentdv1.Goal) string {
	if g.GetUnpricedCalls() > 0 && g.GetCostUsd() == 0 {
		return "price unknown"
	}
	return dollars(g.GetCostUsd())
}

// Goals lists goals.
func (p *Printer) Goals(goals []*agentdv1.Goal) error {
	return list(p, goals, []string{"SESSION", "STATE", "TURNS", "TOKENS", "COST", "STARTED", "GOAL"}, p.goalRow)
}

// Goal shows one goal.
func (p *Printer) Goal(g *agentdv1.Goal) error {
	if p.JSON {
		return WriteJSON(p.Out, g)
	}
	facts := []fact{
		{"session", g.GetSessionId()},
		{"goal", g.GetGoal()},
		{"state", goalState(g)},
		{"turns", number(g.GetTurns())},
		{"tokens", fmt.Sprintf("%s in, %s out", number(g.GetInputTokens()), number(g.GetOutputTokens()))},
		{"cost", goalCost(g)},
		{"took", duration(g.GetDuration().AsDuration())},
		{"started", exact(p.Now, g.GetStartTime())},
		{"ended", exact(p.Now, g.GetEndTime())},
		{"turn", g.GetTurnId()},
		{"holder", g.GetHolder()},
		{"said last", g.GetFinalText()},
		{"done", g.GetDoneDetail()},
		{"message", g.GetMessage()},
	}
	if g.GetWaitUntil() != nil {
		facts = append(facts, fact{"waits until", exact(p.Now, g.GetWaitUntil())})
	}
	if n := g.GetWaitingMessages(); n > 0 {
		facts = append(facts, fact{"messages", number(int64(n))})
	}
	return describe(p.Out, facts)
}
