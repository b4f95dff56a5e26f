package client_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// exhausted checks how a turn ended that has spent what it may.
func exhausted(t *testing.T, res *client.Result, err error, text string, calls int64) {
	t.Helper()
	failure, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrBudgetExhausted) || failure.Retryable {
		t.Fatalf("want BUDGET_EXHAUSTED, got %v", err)
	}
	if u := failure.Usage; u.ModelCalls != calls || u.TotalTokens != 10*calls || res.Usage != u {
		t.Errorf("used %v, want %d calls", u, calls)
	}
	if res.Text != text || res.Completed || res.SessionID == "" {
		t.Errorf("what was produced is %+v, want %q", res, text)
	}
}

// TestBudgetOfATurn: what was produced is kept, and the session continues.
func TestBudgetOfATurn(t *testing.T) {
	for name, budget := range map[string]client.Budget{"model calls": {ModelCalls: 1}, "tokens": {Tokens: 5}} {
		t.Run(name, func(t *testing.T) {
			s := newDaemon(t)
			c, _ := s.client(t)
			mustAdd(t, client.AddTool(c, "look", "looks", func(context.Context, struct{}) (any, error) { return "seen", nil }))
			s.will(t, reply{text: "Let me look.", calls: []string{"look"}})
			res, err := c.Do(t.Context(), actor("look"), "first", client.WithBudget(budget))
			exhausted(t, res, err, "Let me look.", 1)
			r := follow(c.Run(t.Context(), nil, "and now?", client.WithSessionID(res.SessionID)))
			if call := s.says(t, "I saw it."); len(call.heard) != 2 || len(call.results) != 1 || !strings.Contains(call.results[0], "seen") {
				t.Errorf("the model was told %q and %q", call.heard, call.results)
			}
			completes(t, r, "I saw it.")
		})
	}
}

// TestBudgetOfASession holds for later turns too, until another one is given.
func TestBudgetOfASession(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	run := func(prompt string, opts ...client.RunOption) (*client.Result, error) {
		return c.Do(t.Context(), actor(), prompt, opts...)
	}
	s.will(t, reply{text: "one"})
	first, err := run("1", client.WithSessionBudget(client.Budget{ModelCalls: 2}))
	if err != nil {
		t.Fatal(err)
	}
	id := client.WithSessionID(first.SessionID)
	s.will(t, reply{text: "two"})
	if res, err := run("2", id); err != nil || res.Text != "two" {
		t.Fatalf("got %+v, %v", res, err)
	}
	res, err := run("3", id)
	exhausted(t, res, err, "", 0)
	s.will(t, reply{text: "four"})
	if res, err := run("4", id, client.WithSessionBudget(client.Budget{})); err != nil || res.Text != "four" {
		t.Errorf("got %+v, %v", res, err)
	}
}

// TestBudgetOfTheSessionsOwn is set with the session, tightened by a turn, and changed by
// updates; a fork has it too.
func TestBudgetOfTheSessionsOwn(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	ctx := t.Context()
	want := client.Budget{ModelCalls: 2, Tokens: 1000, WallTime: time.Hour}
	made := must[*client.SessionInfo](t)(c.CreateSession(ctx, client.NewSessionInfo{Budget: want}))
	if made.Budget != want {
		t.Fatalf("made with %+v", made.Budget)
	}
	mine := c.Session(made.ID, client.WithAgent(actor()))
	ask := func(text string, calls int64, opts ...client.SendOption) {
		t.Helper()
		if calls == 0 {
			s.will(t, reply{text: text})
		}
		res, err := mine.Send(ctx, "go", opts...)
		if calls == 0 {
			if err != nil || res.Text != text {
				t.Fatalf("got %+v, %v", res, err)
			}
			return
		}
		exhausted(t, res, err, "", 0)
		if failure, _ := errors.AsType[*client.Error](err); failure.Limit == nil || *failure.Limit != (client.ExceededLimit{Name: "session_model_calls", Value: calls, Received: max(calls, 1)}) {
			t.Errorf("the limit is %+v", failure.Limit)
		}
	}
	ask("one", 0, client.WithSessionBudget(client.Budget{ModelCalls: 1}))
	ask("", 1, client.WithSessionBudget(client.Budget{ModelCalls: 1}))
	ask("two", 0, client.WithSessionBudget(client.Budget{ModelCalls: 100}))
	ask("", 2, client.WithSessionBudget(client.Budget{}))
	raised := client.Budget{ModelCalls: 3, CostUSD: 0}
	if info := must[*client.SessionInfo](t)(mine.Update(ctx, client.SessionUpdate{Budget: &raised})); info.Budget != raised {
		t.Errorf("raised to %+v", info.Budget)
	}
	ask("three", 0)
	fork := must[*client.Session](t)(mine.Fork(ctx, client.ForkAt{}))
	if info := must[*client.SessionInfo](t)(fork.Info(ctx)); info.Budget != raised || info.Usage.ModelCalls != 0 {
		t.Errorf("the fork has %+v and used %+v", info.Budget, info.Usage)
	}
	if info := must[*client.SessionInfo](t)(mine.Update(ctx, client.SessionUpdate{Budget: &client.Budget{}})); info.Budget != (client.Budget{}) {
		t.Errorf("taken away, it is %+v", info.Budget)
	}
	ask("four", 0)
	bad := client.Budget{WallTime: -1}
	if _, err := c.CreateSession(ctx, client.NewSessionInfo{Budget: bad}); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("a session with %+v: %v", bad, err)
	}
	if _, err := mine.Update(ctx, client.SessionUpdate{Budget: &bad}); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("a session changed to %+v: %v", bad, err)
	}
}

// TestBudgetOfTime ends a turn that waits for its tool.
func TestBudgetOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t)
		door := newDoor(t, c, "door")
		s.will(t, reply{text: "A moment.", calls: []string{"door"}})
		begin := time.Now()
		res, err := c.Do(t.Context(), actor("door"), "first", client.WithBudget(client.Budget{WallTime: 5 * time.Minute}))
		exhausted(t, res, err, "A moment.", 1)
		if took := time.Since(begin); took != 5*time.Minute {
			t.Errorf("it took %s", took)
		}
		door.stops(t)
	})
}

// TestBudgetInMoney is refused for a model without a price.
func TestBudgetInMoney(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	if _, err := c.Do(t.Context(), actor(), "hi", client.WithBudget(client.Budget{CostUSD: 0.01})); !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), "price") {
		t.Errorf("got %v", err)
	}
}

func TestBudgetsAreSent(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) { l.finish(true, "") })
	c := dial(t, host(t, l), client.WithBudget(client.Budget{Tokens: 9}))
	if _, err := c.Do(t.Context(), llm(), "hi", client.WithSessionBudget(client.Budget{ModelCalls: 1, Tokens: 2, CostUSD: 0.5, WallTime: time.Minute})); err != nil {
		t.Fatal(err)
	}
	ex := l.streams[0].execute
	if want := (&agentdv1.Budget{Tokens: 9}); !proto.Equal(ex.GetBudget(), want) {
		t.Errorf("turn: sent %v", ex.GetBudget())
	}
	if want := (&agentdv1.Budget{ModelCalls: 1, Tokens: 2, CostUsd: 0.5, WallTime: durationpb.New(time.Minute)}); !proto.Equal(ex.GetSessionBudget(), want) {
		t.Errorf("session: sent %v", ex.GetSessionBudget())
	}
	if ex.GetOnBusy() != 0 || ex.GetToolTimeout() != nil || ex.GetTurnId() != "" {
		t.Errorf("sent %v", ex)
	}
}

func TestWrongBudgets(t *testing.T) {
	c := dial(t, serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	}))
	for name, b := range map[string]client.Budget{
		"calls": {ModelCalls: -1}, "tokens": {Tokens: -1}, "cost": {CostUSD: -0.1}, "no number": {CostUSD: math.NaN()},
		"infinite": {CostUSD: math.Inf(1)}, "time": {WallTime: -1}, "long time": {WallTime: 9000 * time.Hour},
	} {
		for option, opt := range map[string]client.RunOption{"client.WithBudget": client.WithBudget(b), "client.WithSessionBudget": client.WithSessionBudget(b)} {
			if _, err := c.Do(t.Context(), llm(), "hi", opt); !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), option) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

// TestModelRetry shows that a model call is retried.
func TestModelRetry(t *testing.T) {
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Scripts: map[string]string{"retry": `answers:
  - {when: {try: 1}, error: {kind: rate_limited, status: 429, message: slow down}}
  - {when: {try: 2}, error: {kind: unavailable, status: 503}}
  - {when: {}, text: at last}`}})
	c, _ := s.client(t)
	tree := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/retry"}}}
	events := completes(t, follow(c.Run(t.Context(), tree, "hi")), "at last")
	var retries []*client.ModelCallRetried
	for _, e := range events {
		if as[*client.ModelCallRetried](e) != nil {
			retries = append(retries, as[*client.ModelCallRetried](e))
		}
		if e.OutputChunk != nil && e.OutputChunk.MessageID != "" && e.OutputChunk.MessageID != retries[0].MessageID {
			t.Errorf("said in message %s, want %s", e.OutputChunk.MessageID, retries[0].MessageID)
		}
	}
	if len(retries) != 2 || retries[1].Attempt != 2 || retries[1].Code != client.ErrModelUnavailable {
		t.Fatalf("%d retries, the last %+v", len(retries), retries[len(retries)-1])
	}
	if r := retries[0]; r.Attempt != 1 || r.Code != client.ErrRateLimited || !strings.Contains(r.Message, "slow down") || r.Wait <= 0 || len(r.AgentPath) != 1 || r.MessageID == "" {
		t.Errorf("got %+v", r)
	}
}
