package server

import (
	"context"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// schedules keeps what the server starts by itself. *schedule.Registry implements it.
type schedules interface {
	Create(ctx context.Context, req *agentdv1.CreateScheduleRequest) (*agentdv1.Schedule, error)
	Get(ctx context.Context, id string) (*agentdv1.Schedule, error)
	List(ctx context.Context, token string, limit int) (all []*agentdv1.Schedule, next string, err error)
	Delete(ctx context.Context, id string) error
}

// scheduleService implements agentd.v1.ScheduleService.
type scheduleService struct{ *Server }

// schedules returns what keeps schedules.
func (s *scheduleService) schedules() (schedules, error) {
	if all := s.now().Schedules; all != nil {
		return all, nil
	}
	return nil, fault.Errorf(codePrecondition, "this server keeps no schedules")
}

func (s *scheduleService) Create(
	ctx context.Context, r *connect.Request[agentdv1.CreateScheduleRequest],
) (*connect.Response[agentdv1.CreateScheduleResponse], error) {
	all, err := s.schedules()
	if err != nil {
		return nil, err
	}
	ex, at := r.Msg.GetExecute(), ""
	if goal := r.Msg.GetGoal(); goal != nil {
		ex, at = goal.GetExecute(), "goal."
	}
	if _, e := requestOf(ex, nil); e != nil { // what no turn takes
		return nil, e.Within(at)
	}
	made, err := all.Create(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CreateScheduleResponse{Schedule: made}), nil
}

func (s *scheduleService) Get(
	ctx context.Context, r *connect.Request[agentdv1.GetScheduleRequest],
) (*connect.Response[agentdv1.GetScheduleResponse], error) {
	all, err := s.schedules()
	if err != nil {
		return nil, err
	}
	found, err := all.Get(ctx, r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetScheduleResponse{Schedule: found}), nil
}

func (s *scheduleService) List(
	ctx context.Context, r *connect.Request[agentdv1.ListSchedulesRequest],
) (*connect.Response[agentdv1.ListSchedulesResponse], error) {
	all, err := s.schedules()
	if err != nil {
		return nil, err
	}
	found, next, err := all.List(ctx, r.Msg.GetPageToken(), pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ListSchedulesResponse{Schedules: found, NextPageToken: next}), nil
}

func (s *scheduleService) Delete(
	ctx context.Context, r *connect.Request[agentdv1.DeleteScheduleRequest],
) (*connect.Response[agentdv1.DeleteScheduleResponse], error) {
	all, err := s.schedules()
	if err != nil {
		return nil, err
	}
	if err := all.Delete(ctx, r.Msg.GetId()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.DeleteScheduleResponse{}), nil
}

// StartTurn starts a turn for the principal of the context, as CreateTurn does for a caller, at whichever server has
// the session, and returns its id. Its errors are *fault.Error. It is for what a server does by itself.
func (s *Server) StartTurn(ctx context.Context, ex *agentdv1.RunRequest_ExecuteRequest) (string, error) {
	resp, err := s.own.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	if err == nil {
		return resp.Msg.GetTurn().GetId(), nil
	}
	return "", refusalOfOwn(ctx, err)
}

// StartGoal begins a goal as StartTurn starts a turn, and returns the id of the turn that it runs, "" if it runs none.
func (s *Server) StartGoal(ctx context.Context, goal *agentdv1.StartGoalRequest) (string, error) {
	resp, err := s.ownGoals.Start(ctx, connect.NewRequest(goal))
	if err == nil {
		return resp.Msg.GetGoal().GetTurnId(), nil
	}
	return "", refusalOfOwn(ctx, err)
}

// refusalOfOwn is why the server did not start what it was to start by itself.
func refusalOfOwn(ctx context.Context, err error) error {
	_, e := FaceEnv{}.Error(err)
	out := fault.Errorf(e.GetCode(), "%s", e.GetMessage())
	out.RetryAfter = e.GetRetryAfter().AsDuration()
	if ctx.Err() != nil && principal.Of(ctx).ID != "" {
		out = fault.Errorf(codeUnavailable, "the turn did not start in time")
	}
	return out
}
