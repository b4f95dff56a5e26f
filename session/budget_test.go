package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

const exhausted = agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED

// calls makes model calls that take 10 s, 5 tokens and a cent each, n of them.
func calls(n int) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		made, err := eventsOf(ctx, r)
		if err != nil {
			return err
		}
		for i := made; i < n; i++ {
			if err := modelCall(ctx, r, fmt.Sprintf("m%d", i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func modelCall(ctx context.Context, r *session.Run, id string) error {
	done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "m", MessageID: id}, nil)
	if err != nil {
		return err
	}
	defer done(false)
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return add(ctx, r, &record.Event{
		MessageID: id, Path: root, Text: "x",
		Usage: &record.Usage{Prompt: 3, Completion: 2, Total: 5, Calls: 1, Cost: 10_000_000},
	})
}

func TestBudgetEndsTheTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		budget record.Budget
		calls  int
		says   string
	}{
		"model calls":  {record.Budget{ModelCalls: 3}, 3, "3 of 3 model calls"},
		"tokens":       {record.Budget{Tokens: 11}, 3, "15 of 11 tokens"},
		"cost":         {record.Budget{Cost: 20_000_000}, 2, "0.02 of 0.02 US dollars"},
		"wall time":    {record.Budget{Wall: 25 * time.Second}, 3, "of 25s of time"},
		"the smallest": {record.Budget{ModelCalls: 4, Tokens: 10, Cost: 1_000_000_000, Wall: time.Hour}, 2, "10 of 10 tokens"},
		"enough":       {record.Budget{ModelCalls: 6, Tokens: 31, Cost: 1_000_000_000, Wall: 65 * time.Second}, 6, ""},
	} {
		for _, whose := range []string{"turn", "session", "server's turn", "server's session"} {
			t.Run(name+" of the "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var limits limits.Limits
					var req session.Request
					switch whose {
					case "turn":
						req.Budget = tc.budget
						limits.Budget = record.Budget{ModelCalls: 100, Tokens: 1000, Cost: 10_000_000_000, Wall: time.Hour}
					case "session":
						req.SessionBudget = &tc.budget
					case "server's turn":
						limits.Budget = tc.budget
						req.Budget = record.Budget{ModelCalls: 100, Tokens: 1000, Cost: 10_000_000_000, Wall: time.Hour}
					default:
						limits.SessionBudget = tc.budget
					}
					f := newFixture(t, memory(t), limits)
					f.on(calls(6))
					turn := f.start(req)
					msgs := follow(t, turn.Watch())
					e := end(t, msgs)
					if int(e.UsageSummary.LlmCalls) != tc.calls || len(texts(msgs)["root"]) != tc.calls {
						t.Errorf("%d model calls and the text %q, want %d", e.UsageSummary.LlmCalls, texts(msgs)["root"], tc.calls)
					}
					if e.Completed != (tc.says == "") {
						t.Errorf("end is %v", e)
					}
					if tc.says == "" {
						return
					}
					i := slices.IndexFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetError() != nil })
					if i < 0 || msgs[i].GetError().Code != exhausted || !strings.Contains(msgs[i].GetError().Message, tc.says) {
						t.Errorf("the error is %v, want %q", msgs[i].GetError(), tc.says)
					}
					of, _, _ := strings.Cut(strings.TrimPrefix(whose, "server's "), " ")
					l := msgs[i].GetError().GetLimit()
					if !strings.HasPrefix(l.GetName(), of+"_") || l.GetValue() < 1 || l.GetReceived() < l.GetValue() {
						t.Errorf("the limit is %v", l)
					}
					// The session continues: a turn's budget is its own, a session's is not.
					msgs = follow(t, f.start(session.Request{SessionID: turn.SessionID(), Budget: req.Budget}).Watch())
					want := tc.calls
					if strings.HasSuffix(whose, "session") {
						want = 0
					}
					if e := end(t, msgs); int(e.UsageSummary.LlmCalls) != want {
						t.Errorf("the next turn made %d model calls, want %d", e.UsageSummary.LlmCalls, want)
					}
				})
			})
		}
	}
}

// What was spent before a restart counts.
func TestBudgetSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(calls(100))
		turn := f.start(session.Request{Budget: record.Budget{ModelCalls: 5}, SessionBudget: &record.Budget{Wall: time.Hour}})
		for i := range 3 {
			time.Sleep(15 * time.Second)
			synctest.Wait()
			f.stop()
			f = newFixture(t, f.store, limits.Limits{})
			f.on(calls(100))
			if err := f.m.Recover(t.Context()); err != nil {
				t.Fatalf("restart %d: %v", i, err)
			}
		}
		_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		if e := end(t, follow(t, w)); e.UsageSummary.LlmCalls != 5 || !strings.Contains(e.GetReason(), "5 of 5 model calls") {
			t.Errorf("end is %v", e)
		}
	})
}

// The usage of tries that failed before a restart counts once, for the turn, its session
// and the budgets. A call that was cut off and its retry count as one call.
func TestBudgetCountsFailedTries(t *testing.T) {
	for name, tc := range map[string]struct {
		budget record.Budget
		says   string
	}{
		"tokens":      {record.Budget{Tokens: 10}, "10 of 10 tokens"},
		"cost":        {record.Budget{Cost: 100_000_000}, "0.1 of 0.1 US dollars"},
		"enough":      {record.Budget{Tokens: 11}, ""},
		"model calls": {record.Budget{ModelCalls: 1}, ""},
	} {
		for _, whose := range []string{"turn", "session"} {
			t.Run(name+" of the "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					req := session.Request{Budget: tc.budget}
					if whose == "session" {
						req = session.Request{SessionBudget: &tc.budget}
					}
					f := newFixture(t, memory(t), limits.Limits{})
					f.on(func(ctx context.Context, r *session.Run) error {
						done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "a", MessageID: "m"}, nil)
						if err != nil {
							return err
						}
						defer done(false)
						if err := r.Retrying(ctx, record.ModelRetry{MessageID: "m", Path: root, Attempt: 1, Usage: &record.Usage{Total: 4, Calls: 1, Cost: 40_000_000}}); err != nil {
							return err
						}
						if err := r.FellBack(ctx, record.ModelFallback{MessageID: "m", Path: root, Model: "a", Next: "b", Usage: &record.Usage{Total: 6, Calls: 1, Cost: 60_000_000}}); err != nil {
							return err
						}
						<-ctx.Done()
						return context.Cause(ctx)
					})
					turn := f.start(req)
					synctest.Wait()
					f.stop()
					f = newFixture(t, f.store, limits.Limits{})
					f.on(func(ctx context.Context, r *session.Run) error {
						done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "b", MessageID: "m"}, nil)
						if err != nil {
							return err
						}
						defer done(false)
						return add(ctx, r, &record.Event{
							MessageID: "m", Path: root, Text: "hi", Usage: &record.Usage{Total: 5, Calls: 1, Cost: 50_000_000}, Before: &record.Usage{Total: 10, Calls: 2, Cost: 100_000_000},
						})
					})
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
					msgs := follow(t, w)
					e, want := end(t, msgs), record.Usage{Total: 10, Calls: 2, Cost: 100_000_000}
					if tc.says == "" {
						want = record.Usage{Total: 15, Calls: 3, Cost: 150_000_000}
						i := slices.IndexFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetModelCallEnded() != nil })
						if c := msgs[i].GetModelCallEnded(); c.GetUsage().GetModelCalls() != 3 || c.GetUsage().GetTotalTokens() != 15 || c.GetOutcome() != agentdv1.ModelCallEnded_OUTCOME_ANSWERED {
							t.Errorf("the call is told as %v", c)
						}
					} else if !strings.Contains(e.GetReason(), tc.says) {
						t.Errorf("end is %v, want %q", e, tc.says)
					}
					info, err := f.store.Info(t.Context(), turn.SessionID())
					if err != nil {
						t.Fatal(err)
					}
					if !proto.Equal(e.GetUsageSummary(), want.Summary()) || e.GetCompleted() != (tc.says == "") || !proto.Equal(info.Usage.Proto(), want.Proto()) {
						t.Errorf("end is %v, the session took %+v, want %+v", e, info.Usage, want)
					}
				})
			})
		}
	}
}

// What a budget allowed is recorded when it runs out under agents that work at the
// same time: the first refusal, which takes all of them down, comes after that.
func TestBudgetLetsWhatItAllowedFinish(t *testing.T) {
	for name, tc := range map[string]struct {
		budget record.Budget
		calls  int
		says   string
	}{
		"model calls": {record.Budget{ModelCalls: 10}, 10, "10 of 10 model calls"},
		"tokens":      {record.Budget{Tokens: 5}, 11, "of 5 tokens"},
		"cost":        {record.Budget{Cost: 10_000_000}, 11, "of 0.01 US dollars"},
		"wall time":   {record.Budget{Wall: 14500 * time.Millisecond}, 15, "of 14.5s of time"},
	} {
		for _, whose := range []string{"turn", "session"} {
			t.Run(name+" of the "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, memory(t), limits.Limits{})
					f.on(func(ctx context.Context, r *session.Run) error {
						ctx, fail := context.WithCancelCause(ctx) // as a parallel agent does
						defer fail(nil)
						var agents sync.WaitGroup
						for i := range 16 {
							agents.Go(func() {
								if tc.budget.ModelCalls == 0 && i > 0 { // it runs out while most calls are under way, and as none begins
									time.Sleep(time.Duration(i)*time.Second - 250*time.Millisecond)
								}
								if err := modelCall(ctx, r, fmt.Sprintf("m%d", i)); err != nil {
									fail(err)
								}
							})
						}
						agents.Wait()
						return context.Cause(ctx)
					})
					req := session.Request{Budget: tc.budget}
					if whose == "session" {
						req = session.Request{SessionBudget: &tc.budget}
					}
					msgs := follow(t, f.start(req).Watch())
					e := end(t, msgs)
					if n := int(e.GetUsageSummary().GetLlmCalls()); n != tc.calls || len(texts(msgs)["root"]) != tc.calls {
						t.Errorf("%d model calls and the text %q, want %d", n, texts(msgs)["root"], tc.calls)
					}
					if errorOf(msgs) != exhausted || !strings.Contains(e.GetReason(), tc.says) {
						t.Errorf("end is %v, want %q", e, tc.says)
					}
				})
			})
		}
	}
}

// Who waits for the calls under way, to be refused, waits no longer than its turn
// runs.
func TestARefusedCallWaitsNoLongerThanItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			var agents sync.WaitGroup
			for i := range 2 {
				agents.Go(func() { _ = modelCall(ctx, r, fmt.Sprintf("m%d", i)) })
			}
			agents.Wait()
			return context.Cause(ctx)
		})
		turn := f.start(session.Request{Budget: record.Budget{ModelCalls: 1}})
		w := turn.Watch()
		time.Sleep(time.Second)
		turn.Cancel("enough")
		e := end(t, follow(t, w))
		if took := time.Since(session.Started(turn)); took != time.Second || e.GetReason() != "enough" {
			t.Errorf("after %v: %v", took, e)
		}
	})
}

// Agents that run at the same time share a budget: not one call too many begins.
func TestBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			var wg sync.WaitGroup
			errs := make([]error, 5)
			for i := range errs {
				wg.Go(func() { errs[i] = modelCall(ctx, r, fmt.Sprintf("m%d", i)) })
			}
			wg.Wait()
			return errors.Join(errs...)
		})
		msgs := follow(t, f.start(session.Request{Budget: record.Budget{ModelCalls: 3}}).Watch())
		if e := end(t, msgs); e.UsageSummary.LlmCalls != 3 || e.Completed {
			t.Errorf("end is %v", e)
		}
	})
}

// Time also runs out while a tool is waited for.
func TestWallTimeOfATurnThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask", Budget: record.Budget{Wall: 30 * time.Second}})
		e := end(t, follow(t, turn.Watch()))
		if took := time.Since(session.Started(turn)); took != 30*time.Second || !strings.Contains(e.GetReason(), "30s of 30s") {
			t.Errorf("after %v: %v", took, e)
		}
	})
}

func TestBudgetMustBeAnAmount(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	for name, req := range map[string]session.Request{
		"calls":   {Budget: record.Budget{ModelCalls: -1}},
		"cost":    {Budget: record.Budget{Cost: -500_000_000}},
		"session": {SessionBudget: &record.Budget{Wall: -1}},
	} {
		req.Prompt, req.Agent = "hi", tree()
		if _, err := f.m.Start(t.Context(), req); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestToolTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{ToolTimeout: 30 * time.Second})
		for _, tc := range []struct {
			tool, request, want time.Duration
		}{
			{0, 0, 30 * time.Second},
			{0, 10 * time.Minute, 10 * time.Minute},
			{5 * time.Second, 10 * time.Minute, 5 * time.Second},
			{time.Hour / 2, 0, time.Hour / 2},
		} {
			tool := &agentdv1.Tool{Name: "tool", Description: "a tool"}
			if tc.tool > 0 {
				tool.Timeout = durationpb.New(tc.tool)
			}
			var took time.Duration
			from := time.Now()
			f.on(func(ctx context.Context, r *session.Run) error {
				res, err := call(ctx, r, "c1")
				took = time.Since(from)
				if err == nil && res["c1"].Outcome != record.TimedOut {
					err = fmt.Errorf("the call was %v", res)
				}
				return err
			})
			turn := f.start(session.Request{Agent: tree(), Tools: []*agentdv1.Tool{tool}, ToolTimeout: tc.request})
			if e := end(t, follow(t, turn.Watch())); !e.Completed || took != tc.want {
				t.Errorf("%+v: timed out after %v: %v", tc, took, e)
			}
		}
	})
}

func TestCancelReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = call(ctx, r, "c1", "c2", "c3") })
			wg.Go(func() { _ = modelCall(ctx, r, "m1") })
			wg.Wait()
			time.Sleep(30 * time.Millisecond) // until the provider has let go
			return context.Cause(ctx)
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c2", Output: new("ok")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		turn.Cancel("enough")
		turn.Cancel("more than enough") // the first one counts
		msgs := follow(t, w)
		e := end(t, msgs)
		r := e.GetReceipt()
		if e.GetReason() != "enough" || r == nil {
			t.Fatalf("end is %v", e)
		}
		if m := r.AbortedModelCalls; len(m) != 1 || m[0].Model != "m" || m[0].MessageId != "m1" || m[0].Ran.AsDuration() != 2*time.Second || m[0].AgentPath[0] != "root" {
			t.Errorf("aborted: %v", m)
		}
		ids := func(calls []*agentdv1.ToolCallRef) (out []string) {
			for _, c := range calls {
				out = append(out, c.ToolName+" "+c.ToolCallId)
			}
			return out
		}
		if got := fmt.Sprint(ids(r.CanceledToolCalls), ids(r.AnsweredToolCalls), r.Took.AsDuration()); got != "[tool c1 tool c3] [tool c2] 30ms" {
			t.Errorf("receipt is %s", got)
		}
		told := 0
		for _, m := range msgs {
			if m.GetToolCallCanceled() != nil {
				told++
			}
		}
		if told != 2 {
			t.Errorf("%d calls were taken back", told)
		}
		// It is in the log, for whoever comes later.
		_, w = f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		for {
			msgs, err := w.Next(t.Context())
			if errors.Is(err, io.EOF) {
				if again := end(t, msgs).GetReceipt(); again.String() != r.String() {
					t.Errorf("the log has %v", again)
				}
				break
			}
		}
	})
}

// A receipt names the calls of a response that is recorded while the turn is being canceled.
func TestCancelReceiptNamesLateCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			_, _ = call(ctx, r, "c1")
			late := &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c2", Name: "tool", Input: []byte("{}"), Path: root}}}
			if err := add(context.WithoutCancel(ctx), r, late); err != nil {
				t.Error(err)
			}
			return context.Cause(ctx)
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		turn.Cancel("enough")
		var ids []string
		for _, c := range end(t, follow(t, w)).GetReceipt().GetCanceledToolCalls() {
			ids = append(ids, c.GetToolCallId())
		}
		if !slices.Equal(ids, []string{"c1", "c2"}) {
			t.Errorf("the receipt names %q, want c1 and c2", ids)
		}
	})
}

func TestModelRetryIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			retry := record.ModelRetry{MessageID: "m1", Path: root, Attempt: 1, Wait: time.Second, Code: agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, Message: "slow down"}
			if err := r.Retrying(ctx, retry); err != nil {
				return err
			}
			return say(ctx, r, "m1", root, "hello")
		})
		msgs := follow(t, f.start(session.Request{}).Watch())
		i := slices.IndexFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetModelCallRetried() != nil })
		if i < 0 {
			t.Fatalf("no retry in %v", msgs)
		}
		if m := msgs[i].GetModelCallRetried(); m.Attempt != 1 || m.Wait.AsDuration() != time.Second || m.Code != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || m.MessageId != "m1" || m.Message != "slow down" {
			t.Errorf("told %v", m)
		}
	})
}
