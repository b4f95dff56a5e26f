package daemon_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestScheduledGoals: a schedule begins a goal as whoever has made it, and the run of another one in the same session
// waits until that has ended, also between two turns of it.
func TestScheduledGoals(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{DataDir: t.TempDir(), Authenticate: byHeader})
	c := clientOf(t, "ann@acme")
	schedules := agentdv1connect.NewScheduleServiceClient(c, d.URL())
	goals := agentdv1connect.NewGoalServiceClient(c, d.URL())
	session := "the-runs"
	create := func(id string, goal *agentdv1.StartGoalRequest) {
		t.Helper()
		goal.Execute = &agentdv1.RunRequest_ExecuteRequest{Agent: llm("root", "echo"), SessionId: &session}
		call(t, schedules.Create, &agentdv1.CreateScheduleRequest{
			Id: id, Timing: &agentdv1.CreateScheduleRequest_At{At: timestamppb.Now()}, Goal: goal,
		})
	}
	scheduled := func(id string, is func(*agentdv1.Schedule) bool) *agentdv1.Schedule {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			s := call(t, schedules.Get, &agentdv1.GetScheduleRequest{Id: id}).GetSchedule()
			if is(s) {
				return s
			}
			if time.Now().After(end) {
				t.Fatalf("%v", s)
			}
		}
	}
	create("holds", &agentdv1.StartGoalRequest{Goal: "tidy up", MaxTurns: new(int32(2)), HoldTurns: true})
	first := scheduled("holds", func(s *agentdv1.Schedule) bool { return s.GetRuns() == 1 })
	if first.GetLastError() != "" || first.GetNextTime() != nil || first.GetGoal().GetGoal() != "tidy up" {
		t.Errorf("%v", first)
	}
	create("waits", &agentdv1.StartGoalRequest{Goal: "tidy up more", MaxTurns: new(int32(1))})
	waits := scheduled("waits", func(s *agentdv1.Schedule) bool { return s.GetLastError() != "" })
	if waits.GetRuns() != 0 || waits.GetNextTime() == nil || !strings.Contains(waits.GetLastError(), session) {
		t.Errorf("%v", waits)
	}
	one := call(t, goals.Get, &agentdv1.GetGoalRequest{SessionId: session}).GetGoal()
	if one.GetGoal() != "tidy up" || one.GetWait() != agentdv1.GoalWait_GOAL_WAIT_HOLD {
		t.Errorf("the first goal is %v", one)
	}
	call(t, goals.Control, &agentdv1.ControlGoalRequest{SessionId: session, Action: agentdv1.GoalAction_GOAL_ACTION_STOP})
	scheduled("waits", func(s *agentdv1.Schedule) bool { return s.GetRuns() == 1 && s.GetLastError() == "" })
	all := call(t, goals.List, &agentdv1.ListGoalsRequest{SessionId: session}).GetGoals()
	if len(all) != 2 || all[0].GetGoal() != "tidy up more" || all[0].GetTurns() != 1 {
		t.Errorf("%v", all)
	}
	turns := call(t, speaking(t, d, "ann@acme").ListTurns, &agentdv1.ListTurnsRequest{SessionId: session}).GetTurns()
	if len(turns) != 1 || turns[0].GetCreatedBy() != "ann" {
		t.Errorf("turns %v", turns)
	}
	list := call(t, schedules.List, &agentdv1.ListSchedulesRequest{}).GetSchedules()
	if len(list) != 2 || list[0].GetGoal() == nil || list[0].GetExecute() != nil {
		t.Errorf("listed %v", list)
	}
	for name, req := range map[string]*agentdv1.CreateScheduleRequest{
		"goal.execute.initial_state_json": {Goal: &agentdv1.StartGoalRequest{Goal: "x", Execute: &agentdv1.RunRequest_ExecuteRequest{
			Agent: llm("root", "echo"), InitialStateJson: "[",
		}}},
	} {
		req.Timing = &agentdv1.CreateScheduleRequest_At{At: timestamppb.Now()}
		_, err := schedules.Create(t.Context(), connect.NewRequest(req))
		if e := details(t, err); len(e.GetViolations()) == 0 || e.GetViolations()[0].GetField() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
