package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

const (
	approval = agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL
	question = agentdv1.InteractionKind_INTERACTION_KIND_INPUT
	resolved = agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED
	canceled = agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED
	asking   = agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING
)

// careful is a turn that asks for approval of a tool call and then says what came
// of it; it continues where its log ends.
func careful(ctx context.Context, r *session.Run) error { return asksFor(ctx, r, approval) }

// curious is a turn that asks a person something, and says the answer.
func curious(ctx context.Context, r *session.Run) error { return asksFor(ctx, r, question) }

func asksFor(ctx context.Context, r *session.Run, kind agentdv1.InteractionKind) error {
	events, err := eventsOf(ctx, r)
	if err != nil {
		return err
	}
	if events == 0 {
		call := record.ToolCall{ID: "q1", Name: "tool", Input: []byte(`{"a":1}`), Path: root, Asks: &record.Question{Kind: kind}}
		if kind != approval {
			call.Name, call.Asks.Text = "ask_user", "why?"
		}
		if err := add(ctx, r, &record.Event{MessageID: "m1", Path: root, Calls: []record.ToolCall{call}, Usage: &record.Usage{Calls: 1}}); err != nil {
			return err
		}
	}
	res, err := r.Await(ctx, "q1")
	if err != nil {
		if errors.Is(err, session.ErrSuspended) {
			return err
		}
		r.Result("q1")
		return err
	}
	said := string(res.Outcome) + ": " + res.Error
	if res.Output != nil {
		said += *res.Output
	}
	if person, ok := r.Resolved("q1"); ok {
		said += fmt.Sprintf(" (%s %s%s)", person.Decision, person.Input, person.Reason)
	}
	return add(ctx, r, &record.Event{MessageID: "m2", Path: root, Text: said, Usage: &record.Usage{Calls: 1}})
}

func isAsked(m *agentdv1.RunResponse) bool   { return m.GetInteractionRequested() != nil }
func isSettled(m *agentdv1.RunResponse) bool { return m.GetInteractionResolved() != nil }

func approve(input string) record.Resolution {
	r := record.Resolution{Decision: record.Approve}
	if input != "" {
		r.Input = json.RawMessage(input)
	}
	return r
}

func deny(reason string) record.Resolution {
	return record.Resolution{Decision: record.Deny, Reason: reason}
}

func reply(text string) record.Resolution {
	return record.Resolution{Decision: record.Reply, Answer: text}
}

// names lists what kinds of messages there were.
func names(msgs []*agentdv1.RunResponse) string {
	var out []string
	for _, m := range msgs {
		name := fmt.Sprintf("%T", m.Response)
		out = append(out, strings.TrimSuffix(name[strings.Index(name, "_")+1:], "_"))
	}
	return strings.Join(out, " ")
}

func TestApproval(t *testing.T) {
	for name, tc := range map[string]struct {
		does   func(*testing.T, *session.Turn) error
		sees   string // after InteractionRequested
		says   string
		input  string // that the client is asked with; "" is not at all
		status agentdv1.InteractionStatus
	}{
		"approved": {
			func(t *testing.T, turn *session.Turn) error { return turn.Resolve(t.Context(), "q1", approve("")) },
			"InteractionResolved ToolCall ToolCallAnswered OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End", "answered: done (approve )", `{"a":1}`, resolved,
		},
		"approved with other arguments": {
			func(t *testing.T, turn *session.Turn) error {
				return turn.Resolve(t.Context(), "q1", approve(`{"a": 2}`))
			},
			"InteractionResolved ToolCall ToolCallAnswered OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End", `answered: done (approve {"a":2})`, `{"a":2}`, resolved,
		},
		"denied": {
			func(t *testing.T, turn *session.Turn) error { return turn.Resolve(t.Context(), "q1", deny("too dear")) },
			"InteractionResolved OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End", "denied: too dear (deny too dear)", "", resolved,
		},
		"cancelled": {
			func(t *testing.T, turn *session.Turn) error { return turn.CancelCall(t.Context(), "q1") },
			"InteractionResolved OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End", "cancelled: cancelled by the client", "", canceled,
		},
		"turn cancelled": {
			func(_ *testing.T, turn *session.Turn) error { turn.Cancel(""); return nil },
			"InteractionResolved AgentEnded End", "", "", canceled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(careful)
				turn := f.start(session.Request{})
				w := turn.Watch()
				first := await(t, w, isAsked)
				in := first[len(first)-1].GetInteractionRequested().GetInteraction()
				if in.GetId() != "q1" || in.GetTurnId() != turn.ID() || in.GetKind() != approval || in.GetStatus() != asking ||
					in.GetToolName() != "tool" || in.GetToolInput() != `{"a":1}` || in.GetCreateTime() == nil {
					t.Errorf("asked %v", in)
				}
				if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "q1", Output: new("x")}); code(err) != badRequest {
					t.Errorf("an answer of a client: %v", err)
				}
				time.Sleep(2 * time.Hour) // neither the tool's time nor the turn's runs
				if err := tc.does(t, turn); err != nil {
					t.Fatal(err)
				}
				var rest []*agentdv1.RunResponse
				if tc.input != "" {
					rest = await(t, w, isCall)
					if got := rest[len(rest)-1].GetToolCall(); got.GetToolInput() != tc.input || got.GetToolCallId() != "q1" {
						t.Errorf("asked the client with %v", got)
					}
					if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "q1", Output: new("done")}); err != nil {
						t.Fatal(err)
					}
				}
				rest = append(rest, follow(t, w)...)
				if got := names(rest); got != tc.sees {
					t.Errorf("saw %s, want %s", got, tc.sees)
				}
				if texts(rest)["root"] != tc.says {
					t.Errorf("said %q, want %q", texts(rest)["root"], tc.says)
				}
				if got := rest[0].GetInteractionResolved().GetInteraction(); got.GetStatus() != tc.status || got.GetEndTime() == nil || (got.GetResolution() != nil) != (tc.status == resolved) {
					t.Errorf("settled as %v", got)
				}
				<-turn.Done()
				// Who comes later is shown the same.
				_, late := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
				want := facts(append(first, rest...))
				if got := facts(follow(t, late)); got != want {
					t.Errorf("who comes later reads\n%swant\n%s", got, want)
				}
				if got, err := f.m.Interaction(t.Context(), turn.SessionID(), "q1"); err != nil || got.Status != tc.status {
					t.Errorf("in the end it is %v, %v", got, err)
				}
			})
		})
	}
}

func TestQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(curious)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		if err := turn.Resolve(t.Context(), "q1", reply("because")); err != nil {
			t.Fatal(err)
		}
		msgs := follow(t, w)
		if said := texts(msgs)["root"]; said != "answered: because (reply )" || names(msgs) != "InteractionResolved OutputChunk MessageCompleted ModelCallEnded OutputChunk AgentEnded End" {
			t.Errorf("said %q in %s", said, names(msgs))
		}
	})
}

// The turn's time stands still while only a person is awaited, and runs for what
// else it does.
func TestTimeOfATurnThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{TurnTimeout: 10 * time.Minute, ToolTimeout: time.Hour})
		f.on(func(ctx context.Context, r *session.Run) error {
			for i := range 2 {
				id := fmt.Sprint("q", i)
				if _, over := r.ResultNow(id); over {
					continue
				}
				select {
				case <-time.After(4 * time.Minute):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				ev := &record.Event{Path: root, Calls: []record.ToolCall{{ID: id, Name: "tool", Input: []byte(`{}`), Path: root, Asks: &record.Question{Kind: approval}}}}
				if err := add(ctx, r, ev); err != nil {
					return err
				}
				if _, err := r.Await(ctx, id); err != nil {
					if !errors.Is(err, session.ErrSuspended) {
						r.Result(id)
					}
					return err
				}
			}
			return nil
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		time.Sleep(24 * time.Hour)
		if err := turn.Resolve(t.Context(), "q0", deny("")); err != nil {
			t.Fatal(err)
		}
		await(t, w, isAsked)
		time.Sleep(24 * time.Hour)
		if err := turn.Resolve(t.Context(), "q1", approve("")); err != nil {
			t.Fatal(err)
		}
		await(t, w, isCall)
		approved := time.Now()
		msgs := follow(t, w)
		if e := msgs[len(msgs)-2].GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_TIMEOUT || time.Since(approved) != 2*time.Minute {
			t.Errorf("after %v came %v", time.Since(approved), msgs)
		}
	})
}

// The status of a turn distinguishes calls that no client receives from questions to people.
func TestStatusOfATurnThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			ev := &record.Event{Path: root, Calls: []record.ToolCall{
				{ID: "ask", Name: "ask_user", Input: []byte(`{}`), Path: root, Asks: &record.Question{Kind: question, Text: "?"}},
				{ID: "do", Name: "tool", Input: []byte(`{}`), Path: root},
			}}
			if err := add(ctx, r, ev); err != nil {
				return err
			}
			for _, id := range []string{"do", "ask"} {
				if _, err := r.Await(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
		turn := f.start(session.Request{})
		is := func(want index.Status) {
			t.Helper()
			synctest.Wait()
			is, err := f.m.Turn(t.Context(), turn.SessionID(), "")
			if err != nil || is.Status != want {
				t.Errorf("it is %v, %v; want %v", is.Status, err, want)
			}
		}
		w := turn.Watch()
		await(t, w, isAsked)
		is(index.Running)
		w.Close()
		is(index.WaitingForInput)
		_, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
		msgs := await(t, w, isCall)
		if slices.ContainsFunc(msgs, isSettled) {
			t.Errorf("got %v", msgs)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "do", Output: new("x")}); err != nil {
			t.Fatal(err)
		}
		is(index.WaitingForInput)
		if err := turn.Resolve(t.Context(), "ask", reply("")); err != nil {
			t.Fatal(err)
		}
		follow(t, w)
		is(index.Succeeded)
	})
}

// People find what they are asked across sessions, page by page.
func TestListInteractions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(curious)
		var want []string
		for range 5 {
			turn := f.start(session.Request{})
			await(t, turn.Watch(), isAsked)
			want = append(want, turn.SessionID())
			time.Sleep(time.Second)
		}
		if _, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: want[2]}, "q1", reply("so")); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(want)
		list := func(q index.InteractionQuery, size int) (ids []string) {
			t.Helper()
			for page := ""; ; {
				ins, next, err := f.m.ListInteractions(t.Context(), q, page, size)
				if err != nil || len(ins) > size {
					t.Fatalf("list: %v, %v", ins, err)
				}
				for _, in := range ins {
					ids = append(ids, in.SessionID)
				}
				if page = next; page == "" {
					return ids
				}
			}
		}
		for _, size := range []int{1, 2, 5, 6} {
			if got := list(index.InteractionQuery{}, size); !slices.Equal(got, want) {
				t.Errorf("%d to a page: listed %v, want %v", size, got, want)
			}
		}
		for range 20 { // more than are read at a time
			turn := f.start(session.Request{})
			await(t, turn.Watch(), isAsked)
			want = slices.Insert(want, 0, turn.SessionID())
			time.Sleep(time.Second)
		}
		for _, size := range []int{15, 16, 17, 25} {
			if got := list(index.InteractionQuery{}, size); !slices.Equal(got, want) {
				t.Errorf("%d to a page: listed %v, want %v", size, got, want)
			}
		}
		pending := slices.Delete(slices.Clone(want), 22, 23)
		if got := list(index.InteractionQuery{Statuses: []agentdv1.InteractionStatus{asking, canceled}}, 2); !slices.Equal(got, pending) {
			t.Errorf("pending are %v, want %v", got, pending)
		}
		if got := list(index.InteractionQuery{SessionID: want[1]}, 2); !slices.Equal(got, want[1:2]) {
			t.Errorf("of one session: %v", got)
		}
		for name, q := range map[string]index.InteractionQuery{"no such session": {SessionID: "x"}, "a turn alone": {TurnID: "x"}} {
			if ins, _, err := f.m.ListInteractions(t.Context(), q, "", 1); err == nil {
				t.Errorf("%s: %v", name, ins)
			}
		}
		if ins, _, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{SessionID: want[0], TurnID: "x"}, "", 1); code(err) != agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND {
			t.Errorf("of a turn that the session does not have: %v, %v", ins, err)
		}
		other, err := f.m.Turn(t.Context(), want[1], "")
		if err != nil {
			t.Fatal(err)
		}
		if ins, _, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{SessionID: want[0], TurnID: other.ID}, "", 1); code(err) != agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND {
			t.Errorf("of a turn of another session: %v, %v", ins, err)
		}
		if got := list(index.InteractionQuery{SessionID: want[1], TurnID: other.ID}, 2); !slices.Equal(got, want[1:2]) {
			t.Errorf("of one turn: %v", got)
		}
		_, next, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{}, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{SessionID: want[0]}, next, 1); code(err) != badRequest {
			t.Errorf("a page of another list: %v", err)
		}
		for _, id := range want[:3] {
			if _, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: id}, "q1", reply(strings.Repeat("x", 900<<10))); err != nil {
				t.Fatal(err)
			}
		}
		if ins, next, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{}, "", 10); err != nil || len(ins) != 2 || next == "" {
			t.Errorf("a page of large ones: %d, %q, %v", len(ins), next, err)
		}
		for _, id := range want[:3] {
			if err := f.m.DeleteSession(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if got := list(index.InteractionQuery{}, 9); !slices.Equal(got, want[3:]) {
			t.Errorf("after three were deleted: %v", got)
		}
	})
}

// Nobody is asked in a fork what its parent asks.
func TestForkOfATurnThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(curious)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isAsked)
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: turn.SessionID()})
		if err != nil {
			t.Fatal(err)
		}
		if in, err := f.m.Interaction(t.Context(), fork.ID, "q1"); err != nil || in.Status != canceled || in.SessionID != fork.ID {
			t.Errorf("in the fork it is %v, %v", in, err)
		}
		if _, err := f.m.Resolve(t.Context(), session.AttachRequest{SessionID: fork.ID}, "q1", reply("no")); code(err) != precondition {
			t.Errorf("resolved in the fork: %v", err)
		}
		if err := turn.Resolve(t.Context(), "q1", reply("yes")); err != nil {
			t.Error(err)
		}
		if msgs := follow(t, w); texts(msgs)["root"] != "answered: yes (reply )" {
			t.Errorf("said %v", texts(msgs))
		}
	})
}
