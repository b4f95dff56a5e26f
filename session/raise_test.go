package session_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// may is a question that a client raises.
func may(n uint32) record.Question {
	return record.Question{N: n, Kind: approval, Text: "bash: ls", Choices: []string{"once", "always"}, Source: "scout"}
}

// asksATool starts a turn whose tool call c-… the client of the returned watcher has.
func asksATool(t *testing.T, f *fixture) (turn *session.Turn, w *session.Watcher, call string) {
	t.Helper()
	f.on(talk)
	turn = f.start(session.Request{Prompt: "ask"})
	w = turn.Watch()
	return turn, w, findCall(await(t, w, isCall))
}

func findCall(msgs []*agentdv1.RunResponse) string {
	i := slices.IndexFunc(msgs, isCall)
	return msgs[i].GetToolCall().GetToolCallId()
}

func (f *fixture) status(turn *session.Turn) index.Status {
	f.t.Helper()
	info, err := f.m.Turn(f.t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		f.t.Fatal(err)
	}
	return info.Status
}

func (f *fixture) raise(turn *session.Turn, call string, q record.Question) (*index.Interaction, bool) {
	f.t.Helper()
	in, again, err := f.m.Raise(f.t.Context(), turn.SessionID(), call, q)
	if err != nil {
		f.t.Fatalf("raise: %v", err)
	}
	return in, again
}

// A client asks about its call: everybody sees it, the call's time stands still, and what is said changes nothing for
// the call.
func TestRaise(t *testing.T) {
	for name, said := range map[string]record.Resolution{
		"approved": {Decision: record.Approve, Scope: agentdv1.ApprovalScope_APPROVAL_SCOPE_SESSION_VERB},
		"denied":   deny("not now"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{ToolTimeout: time.Minute})
				turn, w, call := asksATool(t, f)
				time.Sleep(40 * time.Second)
				in, again := f.raise(turn, call, may(1))
				if again || in.ID() != call+"#1" || in.Status != asking {
					t.Errorf("raised: %+v, %v", in, again)
				}
				msgs := await(t, w, isAsked)
				got := msgs[len(msgs)-1].GetInteractionRequested().GetInteraction()
				if got.GetToolCallId() != call || got.GetToolName() != "tool" || got.GetToolInput() != `{}` || got.GetN() != 1 ||
					got.GetQuestion() != "bash: ls" || got.GetSource() != "scout" || len(got.GetChoices()) != 2 || got.GetKind() != approval {
					t.Errorf("watchers see %v", got)
				}
				if is := f.status(turn); is != index.WaitingForInput {
					t.Errorf("the turn is %v", is)
				}
				time.Sleep(10 * time.Minute)
				if in, again := f.raise(turn, call, record.Question{N: 1, Kind: question, Text: "another"}); !again || in.Call.Asks.Text != "bash: ls" {
					t.Errorf("raised again: %+v, %v", in.Call.Asks, again)
				}
				id := in.ID()
				in, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, id, said)
				if err != nil || in.Status != resolved || in.Resolution.Scope != said.Scope || in.Resolution.Reason != said.Reason {
					t.Errorf("resolved: %+v, %v", in, err)
				}
				msgs = await(t, w, isSettled)
				if got := msgs[len(msgs)-1].GetInteractionResolved().GetInteraction(); got.GetId() != id ||
					got.GetResolution().GetApprove().GetScope() != said.Scope {
					t.Errorf("watchers see %v", got)
				}
				if is := f.status(turn); is != index.Running {
					t.Errorf("then the turn is %v", is)
				}
				if err := turn.Resolve(t.Context(), id, deny("")); code(err) != precondition {
					t.Errorf("a second resolution: %v", err)
				}
				if in, again := f.raise(turn, call, may(1)); !again || in.Resolution == nil {
					t.Errorf("raised once more: %+v, %v", in, again)
				}
				time.Sleep(19 * time.Second) // 59 of its 60 seconds
				if is := f.status(turn); is != index.Running {
					t.Errorf("before its time is over the turn is %v", is)
				}
				time.Sleep(2 * time.Second)
				rest := follow(t, w)
				if got := names(rest); !strings.HasPrefix(got, "ToolCallCanceled ") {
					t.Errorf("after its time the client sees %s", got)
				}
			})
		})
	}
}

func TestRefusedQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		turn, w, call := asksATool(t, f)
		for name, tc := range map[string]struct {
			call string
			q    record.Question
			want agentdv1.ErrorCode
		}{
			"no such call":  {"c-none", may(1), precondition},
			"no number":     {call, may(0), badRequest},
			"a gap":         {call, may(2), badRequest},
			"a high number": {call, may(65), badRequest},
			"no text":       {call, record.Question{N: 1, Kind: question}, badRequest},
			"a long text":   {call, record.Question{N: 1, Kind: question, Text: strings.Repeat("x", 65_537)}, tooMuch},
			"long choices":  {call, record.Question{N: 1, Kind: question, Text: "x", Choices: []string{strings.Repeat("x", 1025)}}, tooMuch},
			"many choices":  {call, record.Question{N: 1, Kind: question, Text: "x", Choices: make([]string, 101)}, tooMuch},
			"a long source": {call, record.Question{N: 1, Kind: approval, Source: strings.Repeat("x", 257)}, tooMuch},
		} {
			if _, _, err := f.m.Raise(t.Context(), turn.SessionID(), tc.call, tc.q); code(err) != tc.want {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx := principal.With(t.Context(), principal.Principal{ID: "p", Session: turn.SessionID(), Tools: []string{"other"}})
		if _, _, err := f.m.Raise(ctx, turn.SessionID(), call, may(1)); code(err) != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED {
			t.Errorf("a token without the tool: %v", err)
		}
		in, _ := f.raise(turn, call, may(1))
		edited := approve(`{"a":1}`)
		if err := turn.Resolve(t.Context(), in.ID(), edited); code(err) != badRequest {
			t.Errorf("an approval with arguments: %v", err)
		}
		if err := turn.Resolve(t.Context(), in.ID(), reply("x")); code(err) != badRequest {
			t.Errorf("an answer to an approval: %v", err)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: call, Output: new("x")}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.m.Raise(t.Context(), turn.SessionID(), call, may(2)); code(err) != precondition {
			t.Errorf("about a call with a result: %v", err)
		}
		follow(t, w)
		if _, _, err := f.m.Raise(t.Context(), turn.SessionID(), call, may(2)); code(err) != precondition {
			t.Errorf("about a turn that is over: %v", err)
		}
	})
}

const tooMuch = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED

// A scope is for what a client asks.
func TestScopeOfAnAgentsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(careful)
		turn := f.start(session.Request{})
		await(t, turn.Watch(), isAsked)
		r := approve("")
		r.Scope = agentdv1.ApprovalScope_APPROVAL_SCOPE_ALWAYS
		if err := turn.Resolve(t.Context(), "q1", r); code(err) != badRequest {
			t.Errorf("resolved with a scope: %v", err)
		}
		turn.Cancel("")
		<-turn.Done()
	})
}

// What ends a call or its turn ends what is asked about it, and everybody sees both.
func TestQuestionsEndWithTheirCall(t *testing.T) {
	for name, tc := range map[string]struct {
		ends func(t *testing.T, turn *session.Turn, call string)
		sees string
	}{
		"its result": {func(t *testing.T, turn *session.Turn, call string) {
			if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: call, Output: new("x")}); err != nil {
				t.Error(err)
			}
		}, "ToolCallAnswered InteractionResolved InteractionResolved "},
		"its cancel": {func(t *testing.T, turn *session.Turn, call string) {
			if err := turn.CancelCall(t.Context(), call); err != nil {
				t.Error(err)
			}
		}, "ToolCallCanceled InteractionResolved InteractionResolved "},
		"the turn's cancel": {func(_ *testing.T, turn *session.Turn, _ string) { turn.Cancel("enough") },
			"ToolCallCanceled InteractionResolved InteractionResolved "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				turn, w, call := asksATool(t, f)
				for n := range uint32(2) {
					f.raise(turn, call, may(n+1))
					await(t, w, isAsked)
				}
				tc.ends(t, turn, call)
				if got := names(follow(t, w)); !strings.HasPrefix(got, tc.sees) {
					t.Errorf("the client sees %s", got)
				}
				for n := range 2 {
					in, err := f.m.Interaction(t.Context(), turn.SessionID(), fmt.Sprintf("%s#%d", call, n+1))
					if err != nil || in.Status != canceled {
						t.Errorf("question %d is %+v, %v", n+1, in, err)
					}
				}
			})
		})
	}
}

// A question outlives its client and its server: whoever runs the call then gets what was said, and nobody is asked twice.
func TestQuestionAcrossARestart(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("resolved "+when+" the restart", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory(t)
				f := newFixture(t, db, limits.Limits{})
				turn, w, call := asksATool(t, f)
				in, _ := f.raise(turn, call, may(1))
				req := session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}}
				resolve := func() {
					if _, err := f.m.Resolve(t.Context(), req, in.ID(), approve("")); err != nil {
						t.Error(err)
					}
				}
				if when == "before" {
					resolve()
				}
				w.Close()
				f.stop()
				f = newFixture(t, db, limits.Limits{})
				f.on(talk)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, w = f.attach(req)
				msgs := await(t, w, isCall)
				if id := findCall(msgs); id != call {
					t.Errorf("call %s is offered, want %s", id, call)
				}
				if when == "after" {
					if is := f.status(turn); is != index.WaitingForInput {
						t.Errorf("the turn is %v", is)
					}
					resolve()
				}
				again, had := f.raise(turn, call, may(1))
				if !had || again.Resolution == nil || again.Resolution.Decision != record.Approve {
					t.Errorf("raised again: %+v, %v", again, had)
				}
				if err := f.submit(turn, call); err != nil {
					t.Error(err)
				}
				end(t, follow(t, w))
			})
		})
	}
}

func (f *fixture) submit(turn *session.Turn, call string) error {
	errs, err := f.m.SubmitResults(f.t.Context(), session.AttachRequest{SessionID: turn.SessionID()},
		[]session.ClientResult{{CallID: call, Output: new("x")}})
	if err == nil {
		err = errs[0]
	}
	return err
}

// Of those who ask the same at once, and resolve it at once, one is first.
func TestRaiseAtOnce(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	turn, w, call := asksATool(t, f)
	var wg sync.WaitGroup
	var mu sync.Mutex
	first, won := 0, 0
	for range 8 {
		wg.Go(func() {
			in, again, err := f.m.Raise(t.Context(), turn.SessionID(), call, may(1))
			if err != nil {
				t.Errorf("raise: %v", err)
				return
			}
			err = turn.Resolve(t.Context(), in.ID(), approve(""))
			if err != nil && code(err) != precondition {
				t.Errorf("resolve: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !again {
				first++
			}
			if err == nil {
				won++
			}
		})
	}
	wg.Wait()
	if first != 1 || won != 1 {
		t.Errorf("%d were first to ask, %d to answer", first, won)
	}
	if err := f.submit(turn, call); err != nil {
		t.Error(err)
	}
	msgs := follow(t, w)
	if n := strings.Count(names(msgs), "InteractionRequested"); n != 1 {
		t.Errorf("it was asked %d times: %s", n, names(msgs))
	}
}
