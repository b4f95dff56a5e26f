package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// asker is a Prompter that a test plays.
type asker struct {
	asked chan *question
}

// question is a prompt that waits for the test.
type question struct {
	*client.Interaction
	says chan<- said
	over <-chan struct{} // closed when nobody is asked any more
	why  func() error    // after that: what the prompt's context ended with
}

type said struct {
	*client.Resolution
	err error
}

func newAsker() *asker { return &asker{asked: make(chan *question, 16)} }

func (p *asker) Prompt(ctx context.Context, in *client.Interaction) (*client.Resolution, error) {
	says := make(chan said, 1)
	p.asked <- &question{in, says, ctx.Done(), func() error { return context.Cause(ctx) }}
	select {
	case s := <-says:
		if s.Resolution == nil && s.err == nil {
			panic("lost for words")
		}
		return s.Resolution, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ends waits until nobody is asked any more.
func (q *question) ends(t *testing.T, why error) {
	t.Helper()
	await(t, q.over, "end of the prompt")
	if err := q.why(); !errors.Is(err, why) {
		t.Errorf("the prompt ended with %v, want %v", err, why)
	}
}

func isAsked(e *client.Event) bool    { return as[*client.InteractionRequested](e) != nil }
func isResolved(e *client.Event) bool { return as[*client.InteractionResolved](e) != nil }

// payer is an agent that may pay and ask.
func payer() *agentdv1.Agent {
	tree := actor("pay")
	tree.GetLlm().BuiltinTools = []string{"ask_user"}
	return tree
}

type payment struct {
	Amount int `json:"amount"`
}

// addPay offers a tool that needs approval.
func addPay(t *testing.T, c client.ToolHolder) {
	t.Helper()
	mustAdd(t, client.AddTool(c, "pay", "pays", func(_ context.Context, in payment) (any, error) {
		return fmt.Sprint("paid ", in.Amount), nil
	}, client.NeedsApproval()))
}

// A person approves with other arguments, which the tool gets and the model learns of,
// then answers a question.
func TestPrompter(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	c, _ := s.client(t, client.WithPrompter(p))
	addPay(t, c)
	run := follow(c.Run(t.Context(), payer(), "pay"))
	s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
	q := await(t, p.asked, "question")
	if q.Kind != client.InteractionApproval || q.ToolName != "pay" || string(q.ToolInput) != `{"amount":100}` {
		t.Errorf("asked %v", q.Interaction)
	}
	if e := run.until(t, isAsked); as[*client.InteractionRequested](e).Interaction.ID != q.ID {
		t.Errorf("yielded %v", as[*client.InteractionRequested](e).Interaction)
	}
	q.says <- said{Resolution: client.Edit(json.RawMessage(`{"amount":5}`))}
	if e := run.until(t, isResolved); string(as[*client.InteractionResolved](e).Interaction.Resolution.ToolInput) != `{"amount":5}` {
		t.Errorf("yielded %v", as[*client.InteractionResolved](e).Interaction)
	}
	call := s.next(t)
	if want := `{"note":"A person has changed the arguments of this call. The tool was called with {\"amount\":5}","output":"paid 5"}`; !slices.Equal(call.results, []string{want}) {
		t.Errorf("the model was told %v, want %s", call.results, want)
	}
	call.gets(t, reply{calls: []string{`ask_user {"question":"and now?","choices":["stop","go on"]}`}})
	q = await(t, p.asked, "question")
	if q.Kind != client.InteractionClarification || q.Question != "and now?" || !slices.Equal(q.Choices, []string{"stop", "go on"}) {
		t.Errorf("asked %v", q.Interaction)
	}
	q.says <- said{Resolution: client.Answer("stop")}
	if call := s.says(t, "bye"); call.results[len(call.results)-1] != `{"output":"stop"}` {
		t.Errorf("the model was told %v", call.results)
	}
	if end := lastEnd(t, run.rest(t)); !end.Completed {
		t.Errorf("ended with %v", end)
	}
}

// What goes wrong with a prompter is yielded, and leaves the interaction to
// others; so does what does not fit, once there is nothing else to say.
func TestPrompterThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		says  said
		then  *said
		times int
		want  client.Code
	}{
		"an error":                       {says: said{err: errors.New("out of ink")}, want: client.ErrInternal},
		"a panic":                        {want: client.ErrInternal},
		"what does not fit, and nothing": {says: unfit, then: &said{err: io.EOF}, want: client.ErrInvalidRequest},
		"what does not fit, and fails":   {says: unfit, then: &said{err: errors.New("out of ink")}, want: client.ErrInternal},
		"what never fits":                {says: unfit, times: 9, want: client.ErrInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newDaemon(t), newAsker()
			c, _ := s.client(t, client.WithPrompter(p))
			addPay(t, c)
			run := follow(c.Run(t.Context(), payer(), "pay"))
			s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
			q := await(t, p.asked, "question")
			q.says <- tc.says
			for range tc.times {
				second := await(t, p.asked, "question, again")
				if second.Refused == nil {
					t.Fatal("asked again without a reason")
				}
				second.says <- tc.says
			}
			if tc.then != nil {
				await(t, p.asked, "question, again").says <- *tc.then
			}
			if e := run.until(t, func(e *client.Event) bool { return e.Error != nil }); !errors.Is(e.Error, tc.want) {
				t.Errorf("yielded %v", e.Error)
			}
			if len(p.asked) > 0 {
				t.Error("asked once more")
			}
			in, err := c.Resolve(t.Context(), q.SessionID, q.ID, client.Deny("for now"))
			if err != nil || in.Status != client.InteractionStatusResolved || in.Resolution.Kind != client.ResolutionDenial || in.Resolution.Reason != "for now" {
				t.Fatalf("resolve: %v, %v", in, err)
			}
			if call := s.says(t, "well"); !slices.Equal(call.results, []string{`{"error":"denied: for now"}`}) {
				t.Errorf("the model was told %v", call.results)
			}
			run.rest(t)
		})
	}
}

var unfit = said{Resolution: client.Edit(json.RawMessage(`{"amount":"much"}`))}

// TestPrompterRepeatsRefusedQuestion: a question whose answer the server cannot take, or that cannot be
// sent, is repeated with the reason, and the turn continues with what fits. Whatever a prompter does to
// its copy of the question stays with it.
func TestPrompterRepeatsRefusedQuestion(t *testing.T) {
	for name, tc := range map[string]struct {
		says *client.Resolution
		why  string
	}{
		"what does not fit":  {unfit.Resolution, `does not fit the input_schema of "pay"`},
		"what is no object":  {client.Edit([]int{1}), "a JSON object"},
		"what is no JSON":    {client.Edit(func() {}), "client.Edit"},
		"of the wrong kind":  {client.Answer("yes"), "approve, or deny"},
		"without a decision": {&client.Resolution{}, "decision"},
		"too much":           {client.Deny(strings.Repeat("x", 1<<17)), "reason"},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newDaemon(t), newAsker()
			c, _ := s.client(t, client.WithPrompter(p))
			addPay(t, c)
			run := follow(c.Run(t.Context(), payer(), "pay"))
			s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
			q := await(t, p.asked, "question")
			if q.Refused != nil {
				t.Errorf("asked with %v", q.Refused)
			}
			asked := q.Proto()
			q.ID, q.SessionID, q.ToolName = "", "", ""
			q.says <- said{Resolution: tc.says}
			second := await(t, p.asked, "question, again")
			if !proto.Equal(second.Proto(), asked) || second.ID != asked.GetId() || second.SessionID == "" ||
				second.Refused == nil || second.Refused.Code != client.ErrInvalidRequest || !strings.Contains(second.Refused.Message, tc.why) {
				t.Errorf("asked again %+v because of %v, want %q", second.Interaction, second.Refused, tc.why)
			}
			second.says <- said{Resolution: client.Edit(payment{Amount: 5})}
			if call := s.says(t, "bye"); len(call.results) != 1 || !strings.Contains(call.results[0], "paid 5") {
				t.Errorf("the model was told %v", call.results)
			}
			events := run.rest(t)
			if end := lastEnd(t, events); !end.Completed {
				t.Errorf("ended with %v", end)
			}
			for _, e := range events {
				if e.Error != nil {
					t.Errorf("yielded %v", e.Error)
				}
			}
		})
	}
}

// Of two clients that ask their people one is first; the other one's prompt ends
// without a word.
func TestTwoPrompters(t *testing.T) {
	s, first, second := newDaemon(t), newAsker(), newAsker()
	a, _ := s.client(t, client.WithPrompter(first))
	addPay(t, a)
	run := follow(a.Run(t.Context(), payer(), "pay"))
	id := run.until(t, isStarted).SessionID
	s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
	q1 := await(t, first.asked, "question")
	b, _ := s.client(t)
	watch := follow(b.Attach(t.Context(), id, client.WithPrompter(second)))
	q2 := await(t, second.asked, "question")
	q2.says <- said{Resolution: client.Approve()}
	q1.ends(t, client.ErrInteractionOver)
	if _, err := a.Resolve(t.Context(), id, q1.ID, client.Approve()); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("a second resolution: %v", err)
	}
	if _, err := a.Resolve(t.Context(), id, "other", client.Approve()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("another interaction: %v", err)
	}
	if call := s.says(t, "done"); !slices.Equal(call.results, []string{`{"output":"paid 100"}`}) {
		t.Errorf("the model was told %v", call.results)
	}
	for _, events := range [][]*client.Event{run.rest(t), watch.rest(t)} {
		if slices.ContainsFunc(events, func(e *client.Event) bool { return e.Error != nil }) {
			t.Error("a refusal was yielded")
		}
	}
}

// A person is asked once, though the connection breaks meanwhile, and what they
// say while there is none arrives when there is one.
func TestPromptOutlivesItsConnection(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	c, w := s.client(t, client.WithPrompter(p))
	addPay(t, c)
	run := follow(c.Run(t.Context(), payer(), "pay"))
	s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`, `ask_user {"question":"why?"}`}})
	q1, q2 := await(t, p.asked, "question"), await(t, p.asked, "question")
	if q1.ToolName != "pay" {
		q1, q2 = q2, q1
	}
	w.cut()
	w.mend()
	q1.says <- said{Resolution: client.Deny("no")}
	run.until(t, isResolved)
	w.cut()
	q2.says <- said{Resolution: client.Answer("because")}
	w.mend()
	if call := s.says(t, "done"); !slices.Equal(call.results, []string{`{"error":"denied: no"}`, `{"output":"because"}`}) {
		t.Errorf("the model was told %v", call.results)
	}
	if events := run.rest(t); slices.ContainsFunc(events, func(e *client.Event) bool { return e.Error != nil }) {
		t.Error("an error was yielded")
	}
	if len(p.asked) > 0 {
		t.Error("a person was asked again")
	}
}

// Who comes later is asked what is open, and nothing else.
func TestPromptsOfALateClient(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	a, _ := s.client(t)
	addPay(t, a)
	run := follow(a.Run(t.Context(), payer(), "pay"))
	id := run.until(t, isStarted).SessionID
	s.next(t).gets(t, reply{calls: []string{`ask_user {"question":"which?"}`}})
	in := as[*client.InteractionRequested](run.until(t, isAsked)).Interaction
	if _, err := a.Resolve(t.Context(), id, in.ID, client.Answer("this")); err != nil {
		t.Fatal(err)
	}
	s.next(t).gets(t, reply{calls: []string{`ask_user {"question":"why?"}`}})
	run.until(t, isAsked)
	b, _ := s.client(t)
	watch := follow(b.Attach(t.Context(), id, client.WithPrompter(p)))
	q := await(t, p.asked, "question")
	if q.Question != "why?" || len(p.asked) > 0 {
		t.Errorf("asked %v, %d more", q.Interaction, len(p.asked))
	}
	q.says <- said{Resolution: client.Answer("so")}
	s.says(t, "done")
	run.rest(t)
	watch.rest(t)
}

// The end of the turn ends its prompts.
func TestPromptOfATurnThatEnds(t *testing.T) {
	s, p := newDaemon(t), newAsker()
	c, _ := s.client(t, client.WithPrompter(p))
	addPay(t, c)
	var control client.Control
	run := follow(c.Run(t.Context(), payer(), "pay", client.WithControl(&control)))
	s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
	q := await(t, p.asked, "question")
	if err := control.Cancel(); err != nil {
		t.Fatal(err)
	}
	q.ends(t, client.ErrInteractionOver)
	events := run.rest(t)
	if i := slices.IndexFunc(events, isResolved); i < 0 || as[*client.InteractionResolved](events[i]).Interaction.Status != client.InteractionStatusCanceled {
		t.Errorf("yielded %v", events)
	}
}
