package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// goalService implements agentd.v1.GoalService: it translates, the sessions do the rest.
type goalService struct{ *Server }

// defaultTurns is how many turns a goal makes that does not say so.
const defaultTurns = 50

func (s *goalService) Start(
	ctx context.Context, r *connect.Request[agentdv1.StartGoalRequest],
) (*connect.Response[agentdv1.StartGoalResponse], error) {
	req, err := s.goalRequest(ctx, r.Msg, r.Header())
	if err != nil {
		return nil, err
	}
	g, err := s.now().Sessions.StartGoal(ctx, *req)
	if err != nil {
		return nil, inGoal(err)
	}
	return connect.NewResponse(&agentdv1.StartGoalResponse{Goal: s.goalOf(g)}), nil
}

func (s *goalService) Resume(
	ctx context.Context, r *connect.Request[agentdv1.ResumeGoalRequest],
) (*connect.Response[agentdv1.ResumeGoalResponse], error) {
	req, err := s.goalRequest(ctx, r.Msg.GetGoal(), r.Header())
	if err != nil {
		return nil, err
	}
	g, err := s.now().Sessions.ResumeGoal(ctx, *req)
	if err != nil {
		return nil, inGoal(err)
	}
	return connect.NewResponse(&agentdv1.ResumeGoalResponse{Goal: s.goalOf(g)}), nil
}

func (s *goalService) Get(
	ctx context.Context, r *connect.Request[agentdv1.GetGoalRequest],
) (*connect.Response[agentdv1.GetGoalResponse], error) {
	g, err := s.now().Sessions.Goal(ctx, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetGoalResponse{Goal: s.goalOf(g)}), nil
}

func (s *goalService) List(
	ctx context.Context, r *connect.Request[agentdv1.ListGoalsRequest],
) (*connect.Response[agentdv1.ListGoalsResponse], error) {
	q := index.GoalQuery{SessionID: r.Msg.GetSessionId(), Statuses: slices.Clone(r.Msg.GetStatuses())}
	slices.Sort(q.Statuses) // a page token is for one list, however its request is written
	q.Statuses = slices.Compact(q.Statuses)
	goals, next, err := s.now().Sessions.ListGoals(ctx, q, r.Msg.GetPageToken(), pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListGoalsResponse{NextPageToken: next}
	for _, g := range goals {
		listed := s.goalOf(g)
		listed.Holder = ""
		out.Goals = append(out.Goals, listed)
	}
	return connect.NewResponse(out), nil
}

func (s *goalService) Control(
	ctx context.Context, r *connect.Request[agentdv1.ControlGoalRequest],
) (*connect.Response[agentdv1.ControlGoalResponse], error) {
	// It counts even if its client goes away right after.
	ctx = context.WithoutCancel(ctx)
	stand, err := s.now().Sessions.ControlGoal(ctx, r.Msg.GetSessionId(), r.Msg.GetAction())
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ControlGoalResponse{}
	for _, g := range stand {
		if g.SessionID == r.Msg.GetSessionId() {
			out.Goal = s.goalOf(g)
		} else {
			below := s.goalOf(g)
			below.Holder = "" // another server may drive it
			out.Below = append(out.Below, below)
		}
	}
	return connect.NewResponse(out), nil
}

// ControlGoal implements session.Below.
func (s *Server) ControlGoal(ctx context.Context, address, sessionID string, action agentdv1.GoalAction) error {
	req := connect.NewRequest(&agentdv1.ControlGoalRequest{SessionId: sessionID, Action: action})
	err := s.carry(ctx, nil, req.Header())
	if err == nil {
		_, err = s.goalsAt(address).Control(ctx, req)
	}
	return atOwner(err)
}

// Inject implements session.Below.
func (s *Server) Inject(ctx context.Context, address, sessionID, text, key string) error {
	req := connect.NewRequest(&agentdv1.InjectRequest{SessionId: sessionID, Text: text, IdempotencyKey: key})
	err := s.carry(ctx, nil, req.Header())
	if err == nil {
		_, err = s.goalsAt(address).Inject(ctx, req)
	}
	return atOwner(err)
}

// goalsAt returns the goals of the server at an address.
func (s *Server) goalsAt(address string) agentdv1connect.GoalServiceClient {
	return agentdv1connect.NewGoalServiceClient(s.now().ReplicaClient, replicaURL(address))
}

// atOwner returns the error of a call of another server.
func atOwner(err error) error {
	if err == nil {
		return nil
	}
	return faultFrom(err)
}

func (s *goalService) Inject(
	ctx context.Context, r *connect.Request[agentdv1.InjectRequest],
) (*connect.Response[agentdv1.InjectResponse], error) {
	// A message counts even if its client goes away right after.
	ctx = context.WithoutCancel(ctx)
	n, err := s.now().Sessions.Inject(ctx, r.Msg.GetSessionId(), r.Msg.GetText(), r.Msg.GetIdempotencyKey())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.InjectResponse{WaitingMessages: int32(n)}), nil
}

// goalRequest translates what starts a goal.
func (s *Server) goalRequest(
	ctx context.Context, r *agentdv1.StartGoalRequest, h http.Header,
) (*session.GoalRequest, error) {
	if waits := s.now().GoalsWaitFor; waits != nil {
		if why := waits(); why != "" {
			return nil, fault.Errorf(codeUnavailable, "%s", why).After(retryLater)
		}
	}
	ex := r.GetExecute()
	req, e := requestOf(ex, h)
	if e != nil {
		return nil, e
	}
	if e := mayStart(principal.Of(ctx), ex, &req); e != nil {
		return nil, e
	}
	if key := ex.GetIdempotencyKey(); key != "" {
		req.Once = onceOf(key, r)
	}
	out := &session.GoalRequest{
		Request: req, Goal: r.GetGoal(), Continuation: r.GetContinuationPrompt(), Hold: r.GetHoldTurns(),
		OnFailure: r.GetOnFailure(),
		Tools: record.GoalTools{
			Done: r.GetDoneTool().GetName(), DoneText: r.GetDoneTool().GetDescription(),
			Schedules: r.GetSchedule() != nil, MaxDefer: r.GetSchedule().GetMaxDefer().AsDuration(),
		},
		Limits: record.GoalLimits{
			Turns: defaultTurns, Input: r.GetMaxInputTokens(), Output: r.GetMaxOutputTokens(),
			Cost: record.BudgetUSD(r.GetMaxCost()), Wall: r.GetMaxWallclock().AsDuration(),
			PerTurn: r.GetPerTurnTimeout().AsDuration(),
		},
	}
	if r.MaxTurns != nil {
		out.Limits.Turns = int64(r.GetMaxTurns())
	}
	return out, nil
}

// inGoal is why a goal was not started: its fields are those of StartGoalRequest.
func inGoal(err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		for _, v := range e.Violations {
			if v.Field == "goal" || strings.HasPrefix(v.Field, "execute.") || strings.HasPrefix(v.Field, "done_tool.") {
				return err
			}
		}
	}
	return inExecute(err)
}

// goalOf translates a goal.
func (s *Server) goalOf(g *index.Goal) *agentdv1.Goal {
	out := &agentdv1.Goal{
		SessionId: g.SessionID, GoalId: g.ID, Goal: g.Text, Status: g.Status, Reason: g.Reason,
		Turns: g.Totals.Turns, InputTokens: g.Totals.Input, OutputTokens: g.Totals.Output,
		CostUsd: g.Totals.Cost.Dollars(), UnpricedCalls: g.Totals.Unpriced, FinalText: g.Final, DoneDetail: g.Detail,
		TurnId: g.Turn, Wait: g.Wait, WaitUntil: stamp(g.Until),
		WaitingMessages: int32(g.Waiting),
		Message:         g.Message, Cursor: g.Cursor,
		StartTime: stamp(g.Started), EndTime: stamp(g.Ended), Duration: durationpb.New(g.Took),
	}
	if p := g.Parent; p != nil {
		out.ParentSessionId, out.Name, out.Branch, out.Depth = p.Session, p.Name, p.Branch, int32(p.Depth)
	}
	if g.Ended.IsZero() {
		out.Holder, out.Duration = s.now().Sessions.Holder(), durationpb.New(s.now().Sessions.Since(g.Started))
	}
	return out
}
