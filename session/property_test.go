package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// busy is a turn that does what its prompt says, a letter at a time: t calls a
// tool, p asks for approval of a call, q asks a question, b does t and q at once,
// s says something, e fails. It continues where its log ends and closes its history.
func busy(ctx context.Context, r *session.Run) error {
	held := map[string]bool{}
	for rec, err := range r.Records(ctx, r.StartSeq()-1) {
		if err != nil {
			return err
		}
		if rec.Kind == record.KindEvent && rec.TurnID == r.TurnID() {
			ev, err := (&engine{}).Decode(rec.Data)
			if err != nil {
				return err
			}
			held[ev.MessageID] = true
		}
	}
	for i, letter := range r.Spec().Prompt {
		for _, in := range r.Injected() {
			if err := add(ctx, r, &record.Event{Path: root, Injected: in.ID, Text: in.Text}); err != nil {
				return err
			}
		}
		id := fmt.Sprint(r.TurnID(), "-", i)
		ev := &record.Event{MessageID: id, Path: root, Usage: &record.Usage{Total: 5, Calls: 1}}
		ask := func(name string, asks *record.Question) {
			ev.Calls = append(ev.Calls, record.ToolCall{ID: fmt.Sprint(id, len(ev.Calls)), Name: name, Input: []byte(`{}`), Path: root, Asks: asks})
		}
		if strings.ContainsRune("tb", letter) {
			ask("tool", nil)
		}
		if strings.ContainsRune("qb", letter) {
			ask("ask_user", &record.Question{Kind: question, Text: "?"})
		}
		switch letter {
		case 'p':
			ask("tool", &record.Question{Kind: approval})
		case 's':
			ev.Text = "said"
			if !held[id] {
				r.Delta(record.Delta{MessageID: id, Path: root, Text: "sa"})
				select {
				case <-time.After(time.Second):
					r.Delta(record.Delta{MessageID: id, Path: root, Text: "id"})
				case <-ctx.Done():
					if !errors.Is(context.Cause(ctx), session.ErrSuspended) {
						ev.Text = "sa"
						return errors.Join(context.Cause(ctx), add(context.WithoutCancel(ctx), r, ev))
					}
					return context.Cause(ctx)
				}
			}
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
				if !errors.Is(err, session.ErrSuspended) {
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
	t.Parallel() // it takes long
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) }
			limits := limits.Limits{IdleTurn: 10 * time.Second}
			x := &world{pick: pick, limits: limits, fixture: newFixture(t, memory(t), limits)}
			x.on(busy)
			for range 1 + pick(12, "steps") {
				x.step(whatever[pick(len(whatever), "what")])
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

// So they do when it is done at once.
func TestIndexWhateverHappensAtOnce(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			pick := func(n int, _ string) int { return rand.IntN(n) }
			limits := limits.Limits{IdleTurn: 10 * time.Second}
			x := &world{pick: pick, atOnce: true, limits: limits, fixture: newFixture(t, memory(t), limits)}
			x.on(busy)
			for range 6 {
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for range 1 + pick(3, "steps") {
							x.step(whatever[pick(len(whatever)-loneAgent, "what")])
						}
					})
				}
				wg.Wait()
				synctest.Wait()
				checkIndex(t, x.store, x)
				x.step(whatever[len(whatever)-1-pick(loneAgent, "what")])
			}
			x.settle()
		})
		if t.Failed() {
			return
		}
	}
}

// whatever are the steps; the last ones, as many as alone, nothing else is done
// beside.
var whatever = []string{
	"start", "start", "start", "start", "answer", "answer", "answer", "raise", "cancel", "cancel a call", "fork", "delete", "archive", "compact", "attach", "look",
	"leave", "sleep", "restart",
}

const loneAgent = 3

// world is a store that things happen to.
type world struct {
	*fixture
	pick     func(n int, what string) int
	limits   limits.Limits
	atOnce   bool
	mu       sync.Mutex // protects watchers
	watchers []*session.Watcher
}

func (x *world) bool(what string) bool { return x.pick(2, what) == 1 }

func (x *world) add(w *session.Watcher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watchers = append(x.watchers, w)
}

// ok takes an error that a client may see.
func (x *world) ok(what string, err error) {
	if err != nil && code(err) == 0 {
		x.t.Errorf("%s: %v", what, err)
	}
}

func (x *world) sessions() []index.Session {
	list, _, err := x.m.ListSessions(x.t.Context(), index.SessionQuery{}, "", 1000)
	if err != nil {
		x.t.Errorf("list: %v", err)
	}
	slices.Reverse(list)
	return list
}

// turns are those that are not over, with what they wait for.
func (x *world) turns() []index.Turn {
	q := index.TurnQuery{Statuses: []index.Status{index.Pending, index.Running, index.WaitingForClient, index.WaitingForInput}}
	list, _, err := x.m.ListTurns(x.t.Context(), q, "", 1000)
	if err != nil {
		x.t.Errorf("list: %v", err)
	}
	slices.Reverse(list)
	return list
}

// answer brings what a turn waits for, or a part.
func (x *world) answer(turn index.Turn, all bool) {
	ctx := x.t.Context()
	req := session.AttachRequest{SessionID: turn.SessionID}
	for _, c := range turn.Open {
		if all || x.bool("answered") {
			_, err := x.m.SubmitResults(ctx, req, []session.ClientResult{{CallID: c.ID, Output: new("x")}})
			x.ok("answer", err)
		}
	}
	for _, in := range turn.Asking {
		if all || x.bool("resolved") {
			said := reply("so")
			if in.Call.Asks.Kind == approval {
				said = approve("")
			}
			if x.bool("denied") {
				said = deny("no")
			}
			_, err := x.m.Resolve(ctx, req, in.ID(), said)
			x.ok("resolve", err)
		}
	}
}

func (x *world) step(what string) {
	ctx := x.t.Context()
	list := x.sessions()
	var s index.Session
	if len(list) > 0 {
		s = list[x.pick(len(list), "session")]
	}
	switch what {
	case "start":
		prompt := ""
		for range 1 + x.pick(4, "letters") {
			prompt += "tpqbse"[x.pick(6, "letter"):][:1]
		}
		req := session.Request{SessionID: s.ID, Prompt: prompt, Agent: tree(), Tools: tools(), OnBusy: agentdv1.OnBusy(1 + x.pick(4, "busy"))}
		if x.pick(4, "new") == 0 {
			req.SessionID = ""
		}
		turn, err := x.m.Start(ctx, req)
		x.ok(what, err)
		if err == nil && x.bool("watched") {
			x.add(turn.Watch())
		}
	case "answer":
		if open := x.turns(); len(open) > 0 {
			x.answer(open[x.pick(len(open), "turn")], false)
		}
	case "raise":
		if open := x.turns(); len(open) > 0 {
			turn := open[x.pick(len(open), "turn")]
			kind := []agentdv1.InteractionKind{approval, question}[x.pick(2, "kind")]
			for _, c := range turn.Open {
				for n := range 1 + x.pick(2, "questions") {
					q := record.Question{N: uint32(n + 1), Kind: kind, Text: "may I?"}
					_, _, err := x.m.Raise(ctx, turn.SessionID, c.ID, q)
					x.ok(what, err)
					if c.Name == "tool" && err != nil && !x.atOnce && turn.Status != index.Pending {
						x.t.Errorf("raise %d of %s: %v", n+1, c.ID, err)
					}
				}
			}
		}
	case "cancel":
		if open := x.turns(); len(open) > 0 {
			turn := open[x.pick(len(open), "turn")]
			x.ok(what, x.m.CancelTurn(ctx, turn.SessionID, turn.ID, "enough"))
		}
	case "cancel a call":
		if open := x.turns(); len(open) > 0 {
			turn := open[x.pick(len(open), "turn")]
			calls := slices.Clone(turn.Open)
			for _, in := range turn.Asking {
				calls = append(calls, in.Call)
			}
			for _, c := range calls {
				if x.bool("cancelled") {
					err := x.m.CancelCall(ctx, session.AttachRequest{SessionID: turn.SessionID, TurnID: turn.ID}, c.ID)
					x.ok(what, err)
					if err != nil && !x.atOnce {
						x.t.Errorf("cancel call %q: %v", c.ID, err)
					}
				}
			}
		}
	case "fork":
		if s.ID != "" {
			at := int64(x.pick(int(s.LastSeq)+1, "at"))<<20 | 1<<16 - 1
			fork, err := x.m.ForkSession(ctx, session.ForkRequest{SessionID: s.ID, At: &at})
			x.ok(what, err)
			if x.atOnce || err != nil {
				return
			}
			turns, _, err := x.m.ListTurns(ctx, index.TurnQuery{SessionID: fork.ID}, "", 1000)
			x.ok(what, err)
			for _, turn := range turns {
				if turn.Ended.IsZero() && turn.Into == "" || turn.Status < index.Succeeded || fork.Usage != (record.Usage{}) {
					x.t.Errorf("the fork begins with %+v", turn)
				}
			}
		}
	case "delete":
		if s.ID != "" {
			err := x.m.DeleteSession(ctx, s.ID)
			x.ok(what, err)
			if err != nil && !x.atOnce {
				x.t.Errorf("delete: %v", err)
			}
		}
	case "compact":
		if s.ID != "" {
			_, err := x.m.CompactSession(ctx, s.ID, "what matters")
			x.ok(what, err)
		}
	case "archive":
		if s.ID != "" {
			_, err := x.m.UpdateSession(ctx, s.ID, store.Change{Archived: new(!s.Archived)})
			x.ok(what, err)
		}
	case "restart":
		x.stop()
		next := newFixture(x.t, x.store, x.limits)
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
				x.add(w)
			}
		}
	case "look":
		if s.ID != "" {
			_, err := x.m.Turn(ctx, s.ID, "")
			x.ok(what, err)
			_, _, err = x.m.Events(ctx, session.AttachRequest{SessionID: s.ID}, 100, nil)
			x.ok(what, err)
		}
	case "leave":
		for _, w := range x.watchers {
			w.Close()
		}
		x.watchers = nil
	case "sleep":
		time.Sleep(time.Duration(1+x.pick(30, "seconds")) * time.Second)
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
			if len(turn.Open)+len(turn.Asking) == 0 { // it was left when the store had failed
				_, w, err := x.m.Attach(x.t.Context(), session.AttachRequest{SessionID: turn.SessionID})
				x.ok("attach", err)
				if err == nil {
					x.add(w)
				}
			}
			x.answer(turn, true)
		}
		time.Sleep(time.Second)
	}
	for _, turn := range x.turns() {
		x.t.Errorf("turn %q is %v for ever: %+v", turn.Prompt, turn.Status, turn)
	}
	for _, s := range x.sessions() {
		if s.OpenTurn != "" || s.LastIs != 0 && s.LastIs < index.Succeeded {
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
	ins, _, err := x.m.ListInteractions(x.t.Context(), index.InteractionQuery{Statuses: []agentdv1.InteractionStatus{asking}}, "", 1000)
	if err != nil || len(ins) > 0 {
		x.t.Errorf("interactions that are still asked: %+v, %v", ins, err)
	}
}
