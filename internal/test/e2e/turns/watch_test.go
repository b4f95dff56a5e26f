package turns

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
)

// TestQuietWatch has a stream of WatchTurn be quiet for much longer than a message
// may wait for its reader: it stays open, with heartbeats, and ends with its turn.
func TestQuietWatch(t *testing.T) {
	for wire, opts := range harness.Protocols {
		t.Run(wire, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := agentdtest.Start(t, agentdtest.Config{
					Scripts: map[string]string{"tools": ruleScripts["tools"]},
				}, testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: time.Hour}))
				c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL, opts...)
				created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{
					Execute: harness.StartTurn(harness.ScriptedAgent("root", "tools", "one", "two"), "one", "two").GetExecute(),
				}))
				if err != nil {
					t.Fatal(err)
				}
				turn := created.Msg.GetTurn()
				watch, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), ToolNames: []string{"one", "two"}}))
				if err != nil {
					t.Fatal(err)
				}
				beats := 0
				var end *agentdv1.RunResponse_EndResponse
				for watch.Receive() {
					m := watch.Msg().GetEvent()
					if m.GetHeartbeat() != nil {
						beats++
					}
					if m.GetEnd() != nil {
						end = m.GetEnd()
					}
					if call := m.GetToolCall(); call != nil {
						time.Sleep(10 * time.Minute)
						if _, err := c.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
							SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{harness.ToolResult(call.GetToolCallId(), "late").GetToolCallResponse()},
						})); err != nil {
							t.Error(err)
						}
					}
				}
				if err := watch.Err(); err != nil || !end.GetCompleted() || beats < 60 {
					t.Errorf("%d heartbeats, end %v, error %v", beats, end, err)
				}
				_ = watch.Close()
			})
		})
	}
}

// TestWatchQueuedTurn has a turn that had to wait be followed from its beginning,
// while it runs and when it is over: each time it begins with the prompt.
func TestWatchQueuedTurn(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"tools": ruleScripts["tools"]}})
	c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
	create := func(ex *agentdv1.RunRequest_ExecuteRequest) *agentdv1.Turn {
		t.Helper()
		created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
		if err != nil {
			t.Fatal(err)
		}
		return created.Msg.GetTurn()
	}
	ex := harness.StartTurn(harness.ScriptedAgent("root", "tools", "one", "two"), "one", "two").GetExecute()
	first := create(ex)
	// Without a client that can be asked the first would give way.
	attended, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: first.GetSessionId(), ToolNames: []string{"one", "two"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = attended.Close() }()
	for attended.Receive() && attended.Msg().GetEvent().GetToolCall() == nil {
	}
	second := create(&agentdv1.RunRequest_ExecuteRequest{SessionId: &first.SessionId, UserPrompt: "then", OnBusy: agentdv1.OnBusy_ON_BUSY_ENQUEUE})
	if _, err := c.CancelTurn(t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: first.GetSessionId(), TurnId: first.GetId()})); err != nil {
		t.Fatal(err)
	}
	watch := func(after *int64, until func(*agentdv1.RunResponse) bool) (kinds []string) {
		t.Helper()
		stream, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: second.GetSessionId(), TurnId: second.GetId(), AfterSeq: after}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			m := stream.Msg().GetEvent()
			if m.GetTurnId() != second.GetId() {
				t.Errorf("an event of another turn: %v", m)
			}
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", m.GetResponse()), "*agentdv1.RunResponse_"))
			if until(m) {
				break
			}
		}
		return kinds
	}
	notice := func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced().GetToolName() == "two" }
	running := watch(nil, notice)
	if len(running) == 0 || running[0] != "TurnQueued" {
		t.Errorf("a turn that runs begins with %v", running)
	}
	if _, err := c.CancelTurn(t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: second.GetSessionId(), TurnId: second.GetId()})); err != nil {
		t.Fatal(err)
	}
	whole := watch(nil, harness.IsEnd)
	if len(whole) < len(running) || !slices.Equal(whole[:len(running)], running) {
		t.Errorf("a turn that is over is told as %v, while it ran as %v", whole, running)
	}
	got, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: second.GetSessionId(), TurnId: second.GetId()}))
	if err != nil {
		t.Fatal(err)
	}
	if after := watch(&got.Msg.GetTurn().AfterSeq, harness.IsEnd); !slices.Equal(after, whole) {
		t.Errorf("after its after_seq a turn is told as %v, without as %v", after, whole)
	}
	listed, err := c.ListTurnEvents(t.Context(), connect.NewRequest(&agentdv1.ListTurnEventsRequest{SessionId: second.GetSessionId(), TurnId: second.GetId()}))
	if err != nil {
		t.Fatal(err)
	}
	if len(listed.Msg.GetEvents()) != len(whole) {
		t.Errorf("%d events are listed, %d watched", len(listed.Msg.GetEvents()), len(whole))
	}
}

// TestSubmitAgain has results be sent again, as by a client that has lost the
// reply: also when the turn is over, and when the next one runs, what was recorded
// is no mistake, and anything else changes nothing.
func TestSubmitAgain(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"tools": ruleScripts["tools"]}})
	c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
	ex := harness.StartTurn(harness.ScriptedAgent("root", "tools", "one", "two"), "one", "two").GetExecute()
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	if err != nil {
		t.Fatal(err)
	}
	turn := created.Msg.GetTurn()
	follow := func() {
		t.Helper()
		stream, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			if n := len(turn.GetPendingToolCalls()); n < 2 && stream.Msg().GetEvent().GetToolCallAnnounced() != nil {
				n := stream.Msg().GetEvent().GetToolCallAnnounced()
				turn.PendingToolCalls = append(turn.PendingToolCalls, &agentdv1.RunResponse_ToolCallRequest{ToolCallId: n.GetToolCallId()})
				if len(turn.GetPendingToolCalls()) == 2 {
					return
				}
			}
		}
	}
	turn.PendingToolCalls = nil
	follow()
	submit := func(one, two string) []*agentdv1.RefusedToolResult {
		t.Helper()
		req := &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}
		for i, out := range []string{one, two} {
			req.Results = append(req.Results, harness.ToolResult(turn.GetPendingToolCalls()[i].GetToolCallId(), out).GetToolCallResponse())
		}
		resp, err := c.SubmitToolResults(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Msg.GetRefused()
	}
	check := func(when string) {
		t.Helper()
		if refused := submit("first", "second"); len(refused) != 0 {
			t.Errorf("%s, the same again is refused: %v", when, refused)
		}
		if refused := submit("first", "another"); len(refused) != 1 || !strings.Contains(refused[0].GetError().GetMessage(), "too late") {
			t.Errorf("%s, of the same and another result are refused: %v", when, refused)
		}
	}
	if refused := submit("first", "second"); len(refused) != 0 {
		t.Fatalf("refused: %v", refused)
	}
	follow() // to its end
	check("when the turn is over")
	next, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{
		Execute: &agentdv1.RunRequest_ExecuteRequest{SessionId: &turn.SessionId, UserPrompt: "again"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	check("while the next turn runs")
	if _, err := c.CancelTurn(t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: turn.GetSessionId(), TurnId: next.Msg.GetTurn().GetId()})); err != nil {
		t.Error(err)
	}
}

// TestWatchLeft has clients leave a quiet stream of WatchTurn, by themselves and
// because their time is over. That is no fault of the daemon's, and the turn goes
// on.
func TestWatchLeft(t *testing.T) {
	for wire, opts := range harness.Protocols {
		t.Run(wire, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := agentdtest.Start(t, agentdtest.Config{
					Scripts: map[string]string{"tools": ruleScripts["tools"]},
					Logger:  slog.New(harness.Alarm{T: t}),
				})
				c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL, opts...)
				created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{
					Execute: harness.StartTurn(harness.ScriptedAgent("root", "tools", "one", "two"), "one", "two").GetExecute(),
				}))
				if err != nil {
					t.Fatal(err)
				}
				id := created.Msg.GetTurn().GetSessionId()
				for want, limit := range map[connect.Code]func(context.Context) (context.Context, context.CancelFunc){
					connect.CodeDeadlineExceeded: func(ctx context.Context) (context.Context, context.CancelFunc) {
						return context.WithTimeout(ctx, time.Second)
					},
					connect.CodeCanceled: func(ctx context.Context) (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithCancel(ctx)
						time.AfterFunc(time.Second, cancel)
						return ctx, cancel
					},
				} {
					ctx, cancel := limit(t.Context())
					stream, err := c.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id}))
					if err != nil {
						t.Fatal(err)
					}
					for stream.Receive() {
					}
					if got := connect.CodeOf(stream.Err()); got != want {
						t.Errorf("the stream ended with %v, want %v", stream.Err(), want)
					}
					_ = stream.Close()
					cancel()
				}
				got, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
				if err != nil || got.Msg.GetTurn().GetStatus() != agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT {
					t.Errorf("the turn is %v (%v)", got, err)
				}
			})
		})
	}
}
