package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

type errand struct {
	What []string `json:"what"`
}

// addRun offers a tool that asks before each of its errands, and says what it was told.
func addRun(t *testing.T, c client.ToolHolder, skip ...string) {
	t.Helper()
	mustAdd(t, client.AddTool(c, "run", "runs errands", func(ctx context.Context, in errand) (any, error) {
		var out []string
		for _, what := range in.What {
			if slices.Contains(skip, what) {
				continue
			}
			said, err := client.CallFrom(ctx).Ask(ctx, client.Question{
				Kind: client.InteractionApproval, Text: what, Choices: []string{"once", "always"}, Source: "scout",
			})
			if err != nil {
				return nil, err
			}
			out = append(out, fmt.Sprintf("%s %s %s%s", what, said.Kind, said.Scope, said.Reason))
		}
		return strings.Join(out, "; "), nil
	}))
}

const twoErrands = `run {"what":["bread","milk"]}`

// A tool asks the run's own prompter, question by question, and learns how far an approval holds.
func TestAsk(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	c, _ := s.client(t, client.WithPrompter(p))
	addRun(t, c)
	run := follow(c.Run(t.Context(), actor("run"), "go"))
	s.next(t).gets(t, reply{calls: []string{twoErrands}})
	q := await(t, p.asked, "question")
	if q.Kind != client.InteractionApproval || q.Question != "bread" || q.N != 1 || q.Source != "scout" || q.ToolName != "run" ||
		!slices.Equal(q.Choices, []string{"once", "always"}) {
		t.Errorf("asked %+v", q.Interaction)
	}
	turn, err := c.Session(q.SessionID).Turn(t.Context(), q.TurnID)
	if err != nil || turn.Status != client.TurnWaitingForInput {
		t.Errorf("the turn is %+v, %v", turn, err)
	}
	q.says <- said{Resolution: &client.Resolution{Kind: client.ResolutionApproval, Scope: "always"}}
	if e := run.until(t, isResolved); as[*client.InteractionResolved](e).Interaction.Resolution.Scope != "always" {
		t.Errorf("yielded %+v", as[*client.InteractionResolved](e).Interaction.Resolution)
	}
	q = await(t, p.asked, "question")
	q.says <- said{Resolution: client.Deny("sour")}
	if call := s.says(t, "bye"); !slices.Equal(call.results, []string{`{"output":"bread approval always; milk denial sour"}`}) {
		t.Errorf("the model was told %v", call.results)
	}
	if end := lastEnd(t, run.rest(t)); !end.Completed {
		t.Errorf("ended with %v", end)
	}
}

// Anybody may answer: what the tool asks is an interaction like any other.
func TestAskElsewhere(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	addRun(t, c)
	run := follow(c.Run(t.Context(), actor("run"), "go"))
	s.next(t).gets(t, reply{calls: []string{twoErrands}})
	other, _ := s.client(t)
	for range 2 {
		in := as[*client.InteractionRequested](run.until(t, isAsked)).Interaction
		if _, err := other.Resolve(t.Context(), in.SessionID, in.ID, client.Approve()); err != nil {
			t.Error(err)
		}
	}
	if call := s.says(t, "bye"); !slices.Equal(call.results, []string{`{"output":"bread approval ; milk approval "}`}) {
		t.Errorf("the model was told %v", call.results)
	}
	run.rest(t)
}

// A client that has asked is gone: whoever runs the call next gets what was said meanwhile, also to a question that it
// does not ask first any more.
func TestAskAcrossClients(t *testing.T) {
	for name, skips := range map[string][]string{"the same questions": nil, "it knows the first by now": {"bread"}} {
		t.Run(name, func(t *testing.T) {
			s := newDaemon(t)
			first, _ := s.client(t)
			addRun(t, first)
			ctx, cancel := context.WithCancel(t.Context())
			run := follow(first.Run(ctx, actor("run"), "go", client.WithOnLeave(client.OnLeaveDetach)))
			s.next(t).gets(t, reply{calls: []string{twoErrands}})
			var open *client.Interaction
			for i := range 2 {
				open = as[*client.InteractionRequested](run.until(t, isAsked)).Interaction
				if i == 0 {
					if _, err := first.Resolve(t.Context(), open.SessionID, open.ID, client.Deny("stale")); err != nil {
						t.Error(err)
					}
				}
			}
			cancel()
			for range run.events { // until it has left
			}
			second, _ := s.client(t)
			addRun(t, second, skips...)
			if _, err := second.Resolve(t.Context(), open.SessionID, open.ID, client.Approve()); err != nil {
				t.Error(err)
			}
			asked := 0
			next := follow(second.Session(open.SessionID).Attach(t.Context()))
			want := `bread denial stale; milk approval `
			if skips != nil {
				want = `milk approval `
			}
			if call := s.says(t, "bye"); !slices.Equal(call.results, []string{`{"output":"` + want + `"}`}) {
				t.Errorf("the model was told %v, want %s", call.results, want)
			}
			for _, e := range next.rest(t) {
				if isAsked(e) && !e.Replayed {
					asked++
				}
			}
			if asked > 0 {
				t.Errorf("%d questions were asked again", asked)
			}
		})
	}
}

// A call that is canceled has no answer, and nobody is asked any more.
func TestAskOfACanceledCall(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	c, _ := s.client(t, client.WithPrompter(p))
	failed := make(chan error, 1)
	mustAdd(t, client.AddTool(c, "run", "runs errands", func(ctx context.Context, _ errand) (any, error) {
		_, err := client.CallFrom(ctx).Ask(ctx, client.Question{Kind: client.InteractionInput, Text: "where?"})
		failed <- err
		return nil, err
	}))
	control := &client.Control{}
	run := follow(c.Run(t.Context(), actor("run"), "go", client.WithControl(control)))
	s.next(t).gets(t, reply{calls: []string{twoErrands}})
	q := await(t, p.asked, "question")
	if err := control.CancelTool(q.ToolCallID); err != nil {
		t.Error(err)
	}
	if err := await(t, failed, "end of the question"); !errors.Is(err, client.ErrToolCanceled) && !errors.Is(err, client.ErrInteractionOver) {
		t.Errorf("asking failed with %v", err)
	}
	q.ends(t, client.ErrInteractionOver)
	s.says(t, "bye")
	run.rest(t)
}

// noQuestions is a server that does not know them.
type noQuestions struct{ connect.Interceptor }

func (noQuestions) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if r.Spec().Procedure == agentdv1connect.SessionServiceRaiseInteractionProcedure {
			return nil, connect.NewError(connect.CodeUnimplemented, errors.New("404 page not found"))
		}
		return next(ctx, r)
	}
}

func (noQuestions) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (noQuestions) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func TestAskWithoutAServerThatKnows(t *testing.T) {
	if _, err := (*client.Call)(nil).Ask(t.Context(), client.Question{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("outside of a call: %v", err)
	}
	s := newDaemon(t)
	c, _ := s.client(t, client.WithConnectOptions(connect.WithInterceptors(noQuestions{})))
	failed := make(chan error, 2)
	mustAdd(t, client.AddTool(c, "run", "runs errands", func(ctx context.Context, _ errand) (any, error) {
		_, err := client.CallFrom(ctx).Ask(ctx, client.Question{Kind: client.InteractionApproval})
		failed <- err
		return "none", nil
	}))
	run := follow(c.Run(t.Context(), actor("run"), "go"))
	s.next(t).gets(t, reply{calls: []string{twoErrands}})
	if err := await(t, failed, "refusal"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("asking failed with %v", err)
	}
	s.says(t, "bye")
	run.rest(t)
}

// What no server takes is refused with the field that is wrong.
func TestAskRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		q    client.Question
		want client.Code
		says string
	}{
		"no kind":     {client.Question{Text: "x"}, client.ErrInvalidRequest, "kind"},
		"a new kind":  {client.Question{Kind: "guess", Text: "x"}, client.ErrInvalidRequest, "kind"},
		"no text":     {client.Question{Kind: client.InteractionInput}, client.ErrInvalidRequest, "question"},
		"a long text": {client.Question{Kind: client.InteractionInput, Text: strings.Repeat("x", 70_000)}, client.ErrLimitExceeded, "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDaemon(t)
			c, _ := s.client(t)
			failed := make(chan error, 1)
			mustAdd(t, client.AddTool(c, "run", "runs errands", func(ctx context.Context, _ errand) (any, error) {
				_, err := client.CallFrom(ctx).Ask(ctx, tc.q)
				failed <- err
				return "none", nil
			}))
			run := follow(c.Run(t.Context(), actor("run"), "go"))
			s.next(t).gets(t, reply{calls: []string{twoErrands}})
			if err := await(t, failed, "refusal"); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("asking failed with %v", err)
			}
			s.says(t, "bye")
			run.rest(t)
		})
	}
}
