package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ScheduleDefinition is what a server is to start, and when: one of Cron, Every and At.
type ScheduleDefinition struct {
	// ID is what the schedule is to be called: 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first. A
	// repeat with the same content makes no second one, other content is CONFLICT. Empty: the server names it.
	ID string
	// Cron is minute, hour, day of the month, month and day of the week, as in "30 2 * * 1-5", or @daily and the like;
	// Zone is the zone of these times, such as Europe/Berlin, UTC if it is empty.
	Cron, Zone string
	// Every is the time from one run to the next, from 10 seconds to a year; the first one is so long after now.
	Every time.Duration
	// At is the time of a schedule's one run.
	At time.Time

	// SessionID is the session of the runs; empty is one of the schedule's own, which the first run makes.
	SessionID string
	// Agent is the tree of the runs, or AgentRef one that the server keeps. A schedule of a SessionID that has run
	// before needs neither.
	Agent    *Agent
	AgentRef AgentRef
	// Tools have the tools of the tree besides the client's own. Only what they declare is sent: a client that attaches
	// to a run runs its tools.
	Tools []*ToolSet
	// Prompt is what each run is told.
	Prompt string
	// Goal has each run begin a goal in place of a turn, and Prompt is empty then: what is to be reached, and how far
	// each may go. Session and tree are those of the definition; what needs this program, RetryPolicy and BeforeTurn,
	// does not go with it.
	Goal *GoalSpec
	// Labels are those of the session, which the first run sets.
	Labels map[string]string
}

// Schedule is what a server starts by itself.
type Schedule struct {
	// ID is what it is called.
	ID string
	// Cron, Zone, Every and At are those of [ScheduleDefinition].
	Cron, Zone string
	Every      time.Duration
	At         time.Time
	// SessionID is the session of the runs.
	SessionID string
	// CreatedBy is who has made it, and CreateTime when.
	CreatedBy  string
	CreateTime time.Time
	// NextTime is the time of the next run, zero if there is none any more; LastTime that of the last one, zero before
	// the first, and LastTurnID its turn, "" if it was refused.
	NextTime, LastTime time.Time
	LastTurnID         string
	// LastError is why the last run was refused, or why the next one waits; "" if neither.
	LastError string
	// Runs is how many runs there were, refused ones included.
	Runs int64
	// StartsGoals is true when each run begins a goal.
	StartsGoals bool

	message *agentdv1.Schedule
}

// Proto returns the message that it was made from. Of a list it has no execute.
func (s *Schedule) Proto() *agentdv1.Schedule { return proto.CloneOf(s.message) }

func scheduleOf(m *agentdv1.Schedule) *Schedule {
	if m == nil {
		return nil
	}
	return &Schedule{
		ID: m.GetId(), Cron: m.GetCron().GetExpression(), Zone: m.GetCron().GetTimeZone(),
		Every: m.GetEvery().AsDuration(), At: timeOf(m.GetAt()), SessionID: m.GetSessionId(),
		CreatedBy: m.GetCreatedBy(), CreateTime: timeOf(m.GetCreateTime()), NextTime: timeOf(m.GetNextTime()),
		LastTime: timeOf(m.GetLastTime()), LastTurnID: m.GetLastTurnId(), LastError: m.GetLastError(),
		Runs: m.GetRuns(), StartsGoals: m.GetGoal() != nil, message: m,
	}
}

// CreateSchedule has the server start a prompt, or a goal, by itself, at times. What the runs do is in the session of
// the schedule: [Client.WatchSession] follows it, and [Client.Attach] runs the tools of a run.
func (c *Client) CreateSchedule(
	ctx context.Context, def ScheduleDefinition, opts ...RequestOption,
) (*Schedule, error) {
	ex := &agentdv1.RunRequest_ExecuteRequest{
		Agent: proto.CloneOf(def.Agent), AgentRef: def.AgentRef.Proto(), UserPrompt: def.Prompt, Labels: def.Labels,
	}
	if def.SessionID != "" {
		ex.SessionId = &def.SessionID
	}
	if def.Agent != nil {
		if err := checkDepth(def.Agent, 1); err != nil {
			return nil, err
		}
		available, err := toolsOf(append([]*ToolSet{c.tools}, def.Tools...))
		if err != nil {
			return nil, err
		}
		w := &treeWalk{available: available, attachments: c.cfg.attachments, used: make(map[string]*tool)}
		if err := w.visit(ex.GetAgent(), nil); err != nil {
			return nil, err
		}
		ex.Tools = w.declared()
	}
	req := &agentdv1.CreateScheduleRequest{Id: def.ID, Execute: ex}
	if def.Goal != nil {
		if err := def.Goal.checkScheduled(def.Prompt); err != nil {
			return nil, err
		}
		goal, err := def.Goal.proto(ex)
		if err != nil {
			return nil, err
		}
		req.Execute, req.Goal = nil, goal
	}
	given := 0
	if def.Cron != "" {
		given++
		req.Timing = &agentdv1.CreateScheduleRequest_Cron{
			Cron: &agentdv1.CronTiming{Expression: def.Cron, TimeZone: def.Zone},
		}
	}
	if def.Every != 0 {
		given++
		req.Timing = &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(def.Every)}
	}
	if !def.At.IsZero() {
		given++
		req.Timing = &agentdv1.CreateScheduleRequest_At{At: timestamppb.New(def.At)}
	}
	if given != 1 || def.Zone != "" && def.Cron == "" {
		return nil, errorf(ErrInvalidRequest,
			"client.ScheduleDefinition needs one of Cron, with a Zone or without, Every and At")
	}
	resp, err := unary(ctx, c, opts, c.schedules.Create, req)
	return scheduleOf(resp.GetSchedule()), err
}

// checkScheduled refuses what the runs of a schedule cannot have.
func (g *GoalSpec) checkScheduled(prompt string) error {
	switch {
	case prompt != "":
		return errorf(ErrInvalidRequest, "client.ScheduleDefinition has a Prompt and a Goal: give one of them")
	case g.SessionID != "", g.Create, g.Agent != nil, g.AgentRef != AgentRef{}:
		return errorf(ErrInvalidRequest, "client.ScheduleDefinition.Goal has a session or a tree: "+
			"name them in the definition")
	case g.RetryPolicy != nil, g.BeforeTurn != nil, g.LeaveDeferred:
		return errorf(ErrInvalidRequest, "client.ScheduleDefinition.Goal asks a program: "+
			"leave out RetryPolicy, BeforeTurn and LeaveDeferred")
	}
	return nil
}

// Schedule returns a schedule. An unknown one is NOT_FOUND.
func (c *Client) Schedule(ctx context.Context, id string, opts ...RequestOption) (*Schedule, error) {
	resp, err := unary(ctx, c, opts, c.schedules.Get, &agentdv1.GetScheduleRequest{Id: id})
	return scheduleOf(resp.GetSchedule()), err
}

// Schedules lists the schedules of the caller's tenant by their ids, and asks for the next page when it needs one.
func (c *Client) Schedules(ctx context.Context, opts ...RequestOption) iter.Seq2[*Schedule, error] {
	return sizedPages(0, func(size int32, token string) ([]*Schedule, string, error) {
		resp, err := unary(ctx, c, opts, c.schedules.List, &agentdv1.ListSchedulesRequest{
			PageSize: size, PageToken: token,
		})
		return mapped(resp.GetSchedules(), scheduleOf), resp.GetNextPageToken(), err
	})
}

// DeleteSchedule ends a schedule. A run that is under way continues, and the session stays.
func (c *Client) DeleteSchedule(ctx context.Context, id string, opts ...RequestOption) error {
	_, err := unary(ctx, c, opts, c.schedules.Delete, &agentdv1.DeleteScheduleRequest{Id: id})
	return err
}
