package client

import (
	"context"
	"crypto/rand"
	"iter"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// GoalAction is what a caller does to a goal.
type GoalAction string

// What a caller may do to a goal.
const (
	GoalPause   GoalAction = "pause"   // no turn begins any more; the one under way finishes
	GoalResume  GoalAction = "resume"  // a goal that was paused goes on
	GoalStop    GoalAction = "stop"    // it ends, and so does its turn
	GoalProceed GoalAction = "proceed" // to GoalWaitHold: the next turn begins
	GoalRetry   GoalAction = "retry"   // to GoalWaitAsk: the next turn has the prompt of the one that has failed
	GoalSkip    GoalAction = "skip"    // to GoalWaitAsk: the next turn has the continuation prompt
	GoalAbort   GoalAction = "abort"   // to GoalWaitAsk and GoalWaitHold: the goal ends
)

// GetGoal returns the last goal of a session. A session without one is NOT_FOUND.
func (c *Client) GetGoal(ctx context.Context, sessionID string, opts ...RequestOption) (*GoalInfo, error) {
	resp, err := unary(ctx, c, opts, c.goals.Get, &agentdv1.GetGoalRequest{SessionId: sessionID})
	return goalInfoOf(resp.GetGoal()), err
}

// GoalFilter says which goals to list; a zero field does not matter.
type GoalFilter struct {
	// SessionID is the session.
	SessionID string
	// Statuses are how they are.
	Statuses []GoalStatus
	// PageSize is how many are asked for at a time, at most 1,000; 0 is 50.
	PageSize int
}

// ListGoals lists goals, newest first, and asks for the next page when it needs one.
func (c *Client) ListGoals(ctx context.Context, filter GoalFilter, opts ...RequestOption) iter.Seq2[*GoalInfo, error] {
	return sizedPages(filter.PageSize, func(size int32, token string) ([]*GoalInfo, string, error) {
		resp, err := unary(ctx, c, opts, c.goals.List, &agentdv1.ListGoalsRequest{
			SessionId: filter.SessionID, PageSize: size, PageToken: token,
			Statuses: mapped(filter.Statuses, func(s GoalStatus) agentdv1.GoalStatus {
				return agentdv1.GoalStatus(numberOf(string(s), "GOAL_STATUS_", agentdv1.GoalStatus_value))
			}),
		})
		return mapped(resp.GetGoals(), goalInfoOf), resp.GetNextPageToken(), err
	})
}

// ControlGoal does something to the goal of a session, and returns the goal as it is after that: of a stop when
// nothing of it runs any more. Who pauses, resumes or stops does so to the goals of all background agents below the
// session, too; the result is nil if it has only those. What the goal does not wait for is FAILED_PRECONDITION; to
// pause, resume or stop again is no error.
func (c *Client) ControlGoal(
	ctx context.Context, sessionID string, action GoalAction, opts ...RequestOption,
) (*GoalInfo, error) {
	resp, err := unary(ctx, c, opts, c.goals.Control, &agentdv1.ControlGoalRequest{
		SessionId: sessionID,
		Action:    agentdv1.GoalAction(numberOf(string(action), "GOAL_ACTION_", agentdv1.GoalAction_value)),
	})
	return goalInfoOf(resp.GetGoal()), err
}

// InjectMessage has the next turn of a session's goal read a text, ahead of its prompt, and returns how many wait: at
// most 256, beyond that the oldest is dropped. A session without a goal is FAILED_PRECONDITION. A request whose reply
// is lost is repeated, as [WithReconnect] says, and injects once.
func (c *Client) InjectMessage(
	ctx context.Context, sessionID, text string, opts ...RequestOption,
) (waiting int, err error) {
	req := &agentdv1.InjectRequest{SessionId: sessionID, Text: text, IdempotencyKey: rand.Text()}
	resp, err := again(ctx, c, func(ctx context.Context) (*agentdv1.InjectResponse, error) {
		return unary(ctx, c, opts, c.goals.Inject, req)
	})
	return int(resp.GetWaitingMessages()), err
}

// StartGoal has the server work towards a goal, turn by turn, until an agent says that it is reached or a limit ends
// it. It returns when the goal is recorded. A session that works on one already, or runs a turn, is SESSION_BUSY.
//
// The handle runs the tools of the goal's turns and asks what they ask, as [Client.Run] does for one turn: with opts,
// and the defaults of the client but for [WithTimeout], [WithOnBusy] and [WithOnDisconnect], which do not apply. A
// connection that breaks is set up again, as [WithReconnect] says. Where that fails for too long, the handle ends with
// UNAVAILABLE and the goal may go on: [Client.FollowGoal] is another handle.
//
// ctx is that of the handle, not of the request alone: when it ends, the goal is stopped, unless [WithOnLeave] says
// otherwise. Tools of a gate that would ask somebody where nobody is there fail before anything is sent; see
// [ToolSet.Unattended].
func (c *Client) StartGoal(ctx context.Context, spec GoalSpec, opts ...GoalOption) (*Goal, error) {
	return c.beginGoal(ctx, &spec, opts, func(ctx context.Context, run *Client, rc *runConfig,
		req *agentdv1.StartGoalRequest,
	) (*GoalInfo, bool, error) {
		info, err := startOnce(ctx, run, func(ctx context.Context) (*GoalInfo, error) {
			resp, err := unaryWith(ctx, run, rc, run.goals.Start, req)
			return goalInfoOf(resp.GetGoal()), err
		})
		return info, false, err
	})
}

// ResumeGoal goes on with the last goal of [GoalSpec].SessionID, which has ended, with the turns, tokens and cost from
// before: a limit counts them too, and its wall clock starts anew. Without a Goal in the spec that goes on which the
// session has. Of one that was completed the handle has the result at once, and nothing runs. A session without a goal
// begins one. One that has not ended is SESSION_BUSY: see [Client.FollowGoal]. Otherwise see [Client.StartGoal].
func (c *Client) ResumeGoal(ctx context.Context, spec GoalSpec, opts ...GoalOption) (*Goal, error) {
	return c.beginGoal(ctx, &spec, opts, func(ctx context.Context, run *Client, rc *runConfig,
		req *agentdv1.StartGoalRequest,
	) (*GoalInfo, bool, error) {
		var before string
		last, err := unaryWith(ctx, run, rc, run.goals.Get, &agentdv1.GetGoalRequest{SessionId: spec.SessionID})
		if err == nil {
			before = last.GetGoal().GetGoalId()
		}
		info, err := startOnce(ctx, run, func(ctx context.Context) (*GoalInfo, error) {
			resp, err := unaryWith(ctx, run, rc, run.goals.Resume, &agentdv1.ResumeGoalRequest{Goal: req})
			return goalInfoOf(resp.GetGoal()), err
		})
		return info, err == nil && info.ID == before, err
	})
}

// FollowGoal is a handle of the goal that a session has, whoever has started it: of the spec count SessionID,
// RetryPolicy, BeforeTurn and LeaveDeferred. It runs the tools of the client and of [WithTools] from the turn on that
// is under way. Of a goal that has ended it has the result. When ctx ends, the goal is left as it is, unless
// [WithOnLeave] says otherwise. Otherwise see [Client.StartGoal].
func (c *Client) FollowGoal(ctx context.Context, spec GoalSpec, opts ...GoalOption) (*Goal, error) {
	spec.Agent, spec.AgentRef, spec.Create = nil, AgentRef{}, false
	return c.beginGoal(ctx, &spec, opts, func(ctx context.Context, run *Client, rc *runConfig,
		_ *agentdv1.StartGoalRequest,
	) (*GoalInfo, bool, error) {
		rc.attach = true
		info, err := again(ctx, run, func(ctx context.Context) (*GoalInfo, error) {
			resp, err := unaryWith(ctx, run, rc, run.goals.Get, &agentdv1.GetGoalRequest{SessionId: spec.SessionID})
			return goalInfoOf(resp.GetGoal()), err
		})
		return info, err == nil && info.HasEnded(), err
	})
}
