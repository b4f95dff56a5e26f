package daemon_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// TestGoalTools: a model defers its goal by a day with schedule_next_turn, reads the prompt that it has asked for, and
// ends the goal with the done tool. What it asks wrongly it reads as an error.
func TestGoalTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{Logger: slog.New(slog.DiscardHandler), Scripts: map[string]string{
			"worker": "answers:\n" +
				"  - {when: {user: sort, step: 1}, calls: [{name: schedule_next_turn, args: {wake_in_sec: 864000}}]}\n" +
				"  - {when: {user: sort, step: 2}, calls: [{name: schedule_next_turn, args: {wake_in_sec: 86400, next_prompt: look again}}]}\n" +
				"  - {when: {user: look again, step: 1}, calls: [{name: finish, args: {state: almost}}]}\n" +
				"  - {when: {user: look again, step: 2}, calls: [{name: finish, args: {state: done, detail: all sorted}}]}\n" +
				"  - {when: {}, text: so be it}",
		}})
		c := agentdv1connect.NewGoalServiceClient(d.HTTPClient(), d.URL)
		g := call(t, c.Start, &agentdv1.StartGoalRequest{
			Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: llm("root", "scripted/worker")}, Goal: "sort it",
			DoneTool: &agentdv1.StartGoalRequest_DoneTool{Name: "finish"},
			Schedule: &agentdv1.StartGoalRequest_Schedule{MaxDefer: durationpb.New(48 * time.Hour)},
		}).GetGoal()
		now := func() *agentdv1.Goal {
			synctest.Wait()
			return call(t, c.Get, &agentdv1.GetGoalRequest{SessionId: g.GetSessionId()}).GetGoal()
		}
		_, err := c.Start(t.Context(), connect.NewRequest(&agentdv1.StartGoalRequest{
			Execute: &agentdv1.RunRequest_ExecuteRequest{
				Agent: llm("root", "scripted/worker", "report_done"), Tools: []*agentdv1.Tool{tool("report_done", "{}")},
			}, Goal: "x",
		}))
		if err == nil || details(t, err).GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			t.Errorf("a tool of the client that is the goal's, too: %v", err)
		}
		time.Sleep(time.Second)
		got := now()
		if wait := got.GetWaitUntil().AsTime().Sub(got.GetStartTime().AsTime()); got.GetWait() != agentdv1.GoalWait_GOAL_WAIT_TIMER ||
			got.GetTurns() != 1 || wait < 24*time.Hour-time.Second || wait > 24*time.Hour+time.Second {
			t.Fatalf("it waits as %v", got)
		}
		time.Sleep(24*time.Hour + time.Second)
		if got = now(); got.GetStatus() != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED || got.GetTurns() != 2 ||
			got.GetDoneDetail() != "all sorted" || got.GetFinalText() != "so be it" {
			t.Errorf("it ends as %v", got)
		}
	})
}
