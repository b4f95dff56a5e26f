package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// busy is a turn that does what its prompt says, a letter at a time: t calls a
// tool, p asks for approval of a call, q asks a question, b does t and q at once,
// s says something, e fails. It goes on where its log ends and closes its history.
func busy(ctx context.Context, r *session.Run) error {
	held := map[string]bool{}
	for rec, err := range r.Records(ctx, r.StartSeq()-1) {
		if err != nil {
			return err
		}
		if rec.Kind == session.KindEvent && rec.TurnID == r.TurnID() {
			ev, err := (&engine{}).Decode(rec.Data)
			if err != nil {
				return err
			}
			held[ev.MessageID] = true
		}
	}
	for i, letter := range r.Spec().Prompt {
		for _, in := range r.Injected() {
			if err := add(ctx, r, &session.Event{Path: root, Injected: in.ID, Text: in.Text}); err != nil {
				return err
			}
		}
		id := fmt.Sprint(r.TurnID(), "-", i)
		ev := &session.Event{MessageID: id, Path: root, Usage: &session.Usage{Total: 5, Calls: 1}}
		ask := func(name string, asks *session.Question) {
			ev.Calls = append(ev.Calls, session.ToolCall{ID: fmt.Sprint(id, len(ev.Calls)), Name: name, Input: []byte(`{}`), Path: root, Asks: asks})
		}
		if strings.ContainsRune("tb", letter) {
			ask("tool", nil)
		}
		if strings.ContainsRune("qb", letter) {
			ask("ask_user", &session.Question{Kind: question, Text: "?"})
		}
		switch letter {
		case 'p':
			ask("tool", &session.Question{Kind: approval})
		case 's':
			ev.Text = "said"
		case 'e':
			return errors.New("as it was told")
		}
		if !held[id] {
			if err := add(ctx, r, ev); err != nil {
				return err
			}
		}
		for _, c := range ev.Calls {
			if _, err := r.Await(ctx, c.ID); err != nil {
				if !errors.Is(err, session.ErrPutAside) {
					for _, c := range ev.Calls {
						r.Result(c.ID)
					}
				}
				return err
			}
		}
	}
	return nil
}

// Whatever is done to sessions in whatever order, the index says what the logs
// say, nothing is a fault of ours, and nothing waits for what has come.
func TestIndexWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			x := &world{rt: rt, fixture: newFixture(t, memory(t), session.Limits{IdleTurn: 10 * time.Second})}
			x.on(busy)
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				x.step()
				synctest.Wait()
				checkIndex(t, x.store, x)
				if t.Failed() {
					rt.Fatal("see above")
				}
			}
			x.settle()
			if t.Failed() {
				rt.Fatal("see above")
			}
		})
	})
}

// world is a store that things happen to.
type world struct {
	*fixture
	rt       *rapid.T
	watchers []*session.Watcher
}

// ok takes an error that a client may see.
func (x *world) ok(what string, err error) {
	if err != nil && code(err) == 0 {
		x.t.Errorf("%s: %v", what, err)
	}
}

func (x *world) sessions() []session.Summary {
	list, _, err := x.m.ListSessions(x.t.Context(), session.Filter{}, "", 1000)
	if err != nil {
		x.t.Errorf("list: %v", err)
	}
	slices.Reverse(list)
	return list
}

// turns are those that are not over, with what they wait for.
func (x *world) turns() []session.TurnInfo {
	q := session.TurnQuery{Statuses: []session.Status{session.Pending, session.Running, session.WaitingForClient, session.WaitingForInput}}
	list, _, err := x.m.ListTurns(x.t.Context(), q, "", 1000)
	if err != nil {
		x.t.Errorf("list: %v", err)
	}
	slices.Reverse(list)
	return list
}

// answer brings what a turn waits for, or a part.
func (x *world) answer(turn session.TurnInfo, all bool) {
	ctx := x.t.Context()
	req := session.AttachRequest{SessionID: turn.SessionID}
	for _, c := range turn.Open {
		if all || rapid.Bool().Draw(x.rt, "answered") {
			_, err := x.m.AnswerTurn(ctx, req, []session.Answer{{CallID: c.ID, Output: new("x")}})
			x.ok("answer", err)
		}
	}
	for _, in := range turn.Asking {
		if all || rapid.Bool().Draw(x.rt, "resolved") {
			said := reply("so")
			if in.Call.Asks.Kind == approval {
				said = approve("")
			}
			if rapid.Bool().Draw(x.rt, "denied") {
				said = deny("no")
			}
			_, err := x.m.Resolve(ctx, req, in.Call.ID, said)
			x.ok("resolve", err)
		}
	}
}

func (x *world) step() {
	ctx, rt := x.t.Context(), x.rt
	list := x.sessions()
	var s session.Summary
	if len(list) > 0 {
		s = rapid.SampledFrom(list).Draw(rt, "session")
	}
	switch what := rapid.SampledFrom([]string{"start", "start", "start", "start", "answer", "answer", "answer", "cancel", "fork", "delete", "archive", "restart", "attach", "leave", "sleep"}).Draw(rt, "what"); what {
	case "start":
		prompt := rapid.StringOfN(rapid.SampledFrom([]rune("tpqbse")), 1, 4, -1).Draw(rt, "prompt")
		req := session.Request{SessionID: s.ID, Prompt: prompt, Agent: tree(), Tools: tools(), OnBusy: session.OnBusy(rapid.IntRange(0, 3).Draw(rt, "busy"))}
		if rapid.IntRange(0, 3).Draw(rt, "new") == 0 {
			req.SessionID = ""
		}
		turn, err := x.m.Start(ctx, req)
		x.ok(what, err)
		if err == nil && rapid.Bool().Draw(rt, "watched") {
			x.watchers = append(x.watchers, turn.Watch())
		}
	case "answer":
		if open := x.turns(); len(open) > 0 {
			x.answer(rapid.SampledFrom(open).Draw(rt, "turn"), false)
		}
	case "cancel":
		if open := x.turns(); len(open) > 0 {
			turn := rapid.SampledFrom(open).Draw(rt, "turn")
			x.ok(what, x.m.CancelTurn(ctx, turn.SessionID, turn.ID, "enough"))
		}
	case "fork":
		if s.ID != "" {
			at := rapid.Int64Range(0, s.LastSeq).Draw(rt, "at")<<20 | 1<<16 - 1
			fork, err := x.m.ForkSession(ctx, session.ForkRequest{SessionID: s.ID, At: &at})
			x.ok(what, err)
			turns, _, err := x.m.ListTurns(ctx, session.TurnQuery{SessionID: fork.ID}, "", 1000)
			x.ok(what, err)
			for _, turn := range turns {
				if turn.Ended.IsZero() && turn.Into == "" || turn.Status < session.Succeeded || fork.Usage != (session.Usage{}) {
					x.t.Errorf("the fork begins with %+v", turn)
				}
			}
		}
	case "delete":
		if s.ID != "" {
			if err := x.m.DeleteSession(ctx, s.ID); err != nil {
				x.t.Errorf("delete: %v", err)
			}
		}
	case "archive":
		if s.ID != "" {
			_, err := x.m.UpdateSession(ctx, s.ID, session.Update{Archived: new(!s.Archived)})
			x.ok(what, err)
		}
	case "restart":
		x.stop()
		next := newFixture(x.t, x.store, session.Limits{IdleTurn: 10 * time.Second})
		next.on(busy)
		x.fixture, x.watchers = next, nil
		if err := x.m.Recover(ctx); err != nil {
			x.t.Errorf("recover: %v", err)
		}
	case "attach":
		if s.ID != "" {
			_, w, err := x.m.Attach(ctx, session.AttachRequest{SessionID: s.ID, Tools: []string{"tool"}})
			x.ok(what, err)
			if err == nil {
				x.watchers = append(x.watchers, w)
			}
		}
	case "leave":
		for _, w := range x.watchers {
			w.Close()
		}
		x.watchers = nil
	case "sleep":
		time.Sleep(time.Duration(rapid.IntRange(1, 30).Draw(rt, "seconds")) * time.Second)
	}
}

// settle brings all that is waited for; then nothing is open.
func (x *world) settle() {
	for range 200 {
		synctest.Wait()
		open := x.turns()
		if len(open) == 0 {
			break
		}
		for _, turn := range open {
			x.answer(turn, true)
		}
		time.Sleep(time.Second)
	}
	for _, turn := range x.turns() {
		x.t.Errorf("turn %q is %v for ever: %+v", turn.Prompt, turn.Status, turn)
	}
	for _, s := range x.sessions() {
		if s.OpenTurn != "" || s.LastIs != 0 && s.LastIs < session.Succeeded {
			x.t.Errorf("session %+v is not over", s)
		}
		if s.LastTurn == "" {
			continue
		}
		msgs, more, err := x.m.Events(x.t.Context(), session.AttachRequest{SessionID: s.ID}, 1000, nil)
		if err != nil || more || len(msgs) == 0 {
			x.t.Errorf("events: %d, %v, %v", len(msgs), more, err)
			continue
		}
		asked := map[string]int{}
		for _, m := range msgs {
			asked[m.GetInteractionRequested().GetInteraction().GetId()]++
			asked[m.GetInteractionResolved().GetInteraction().GetId()]--
		}
		for id, n := range asked {
			if id != "" && n != 0 {
				x.t.Errorf("interaction %s is asked %d times more than it is settled", id, n)
			}
		}
		end(x.t, msgs)
	}
	ins, _, err := x.m.ListInteractions(x.t.Context(), session.InteractionQuery{Statuses: []agentdv1.InteractionStatus{asking}}, "", 1000)
	if err != nil || len(ins) > 0 {
		x.t.Errorf("interactions that are still asked: %+v, %v", ins, err)
	}
}
