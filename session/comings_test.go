package session_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// guest is a client of a turn whose clients come and go.
type guest struct {
	w       *session.Watcher
	observe bool
	asked   map[string]bool // calls that it was asked for
}

// comings is a turn whose clients come and go while its store stalls now and then.
type comings struct {
	*fixture
	rt      *rapid.T
	store   *faulty
	turn    session.AttachRequest
	here    []*guest
	settled map[string]bool // calls that have a result
	answers sync.WaitGroup
}

// TestComingsAndGoings: in whatever order clients come, leave, return results and are away for
// so long that the turn leaves memory, and whenever the store stalls: no call is asked of
// two clients at once, a turn that is to be cancelled without clients is canceled when nobody
// is there and only then, and it ends as soon as all calls have results.
func TestComingsAndGoings(t *testing.T) {
	begun, checks := time.Now(), 0
	rapid.Check(t, func(rt *rapid.T) {
		if checks++; checks > 10 && time.Since(begun) > 3*time.Second { // beside all other tests that is enough
			return
		}
		synctest.Test(t, func(t *testing.T) {
			x := begin(t, rt)
			for range rapid.IntRange(1, 14).Draw(rt, "steps") {
				x.step(rapid.SampledFrom([]string{"attach", "attach", "attach without tools", "observe", "leave", "leave", "answer", "answer", "stall", "heal", "sleep", "sleep"}).Draw(rt, "what"))
				x.look()
			}
			x.finish()
		})
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}

const stay = time.Hour // for which the turn continues without clients

func begin(t *testing.T, rt *rapid.T) *comings {
	day := 24 * time.Hour
	store := &faulty{Store: memory(t)}
	x := &comings{rt: rt, store: store, settled: map[string]bool{}, fixture: newFixture(t, store, limits.Limits{
		IdleTurn: 10 * time.Second, StorePatience: day, TurnTimeout: day, ToolTimeout: day,
	})}
	x.on(busy)
	turn := x.start(session.Request{Prompt: rapid.SampledFrom([]string{"t", "tt", "sts", "bt"}).Draw(rt, "prompt"), OnDisconnect: record.OnDisconnect{Cancel: true, Grace: stay}})
	x.turn = session.AttachRequest{SessionID: turn.SessionID(), TurnID: turn.ID()}
	x.here = append(x.here, &guest{w: turn.Watch(), asked: map[string]bool{}})
	x.look()
	return x
}

func (x *comings) attach(observe bool, tools ...string) {
	req := x.turn
	req.Observe, req.Tools = observe, tools
	_, w, err := x.m.Attach(x.t.Context(), req)
	if err != nil {
		if !x.store.before.Load() {
			x.t.Errorf("attach: %v", err)
		}
		return
	}
	x.here = append(x.here, &guest{w: w, observe: observe, asked: map[string]bool{}})
}

func (x *comings) leave(g *guest) {
	g.w.Close()
	x.here = slices.DeleteFunc(x.here, func(h *guest) bool { return h == g })
}

func (x *comings) step(what string) {
	switch what {
	case "attach":
		x.attach(false, "tool")
	case "attach without tools":
		x.attach(false)
	case "observe":
		x.attach(true)
	case "leave":
		if len(x.here) > 0 {
			x.leave(rapid.SampledFrom(x.here).Draw(x.rt, "who"))
		}
	case "answer":
		for _, g := range x.here {
			for id := range g.asked {
				if !x.settled[id] {
					x.answers.Go(func() { // waits for the store
						_, err := x.m.SubmitResults(context.WithoutCancel(x.t.Context()), x.turn, []session.ClientResult{{CallID: id, Output: new("x")}})
						if err != nil && code(err) == 0 {
							x.t.Errorf("answer: %v", err)
						}
					})
				}
			}
		}
	case "stall":
		x.store.before.Store(true)
	case "heal":
		x.store.before.Store(false)
	case "sleep":
		time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(x.rt, "seconds")) * time.Second)
	}
}

// look reads what clients were sent.
func (x *comings) look() {
	synctest.Wait()
	for _, g := range slices.Clone(x.here) {
		for reading := true; reading; {
			select {
			case <-g.w.Ready():
				reading = x.read(g)
			default:
				reading = false
			}
		}
	}
}

// read reads what there is, and reports whether more may come.
func (x *comings) read(g *guest) bool {
	msgs, err := g.w.Next(x.t.Context())
	for _, m := range msgs {
		if id := m.GetToolCall().GetToolCallId(); id != "" {
			for _, h := range x.here {
				if h != g && h.asked[id] && !x.settled[id] {
					x.t.Errorf("call %s is asked of two clients at once", id)
				}
			}
			if g.observe {
				x.t.Errorf("call %s is asked of who only watches", id)
			}
			g.asked[id] = true
		}
		if id := m.GetToolCallAnswered().GetToolCallId(); id != "" {
			x.settled[id] = true
		}
	}
	if err != nil {
		x.leave(g)
	}
	return err == nil
}

// status is how the turn is, and what it waits for.
func (x *comings) status() index.Turn {
	info, err := x.m.Turn(x.t.Context(), x.turn.SessionID, x.turn.TurnID)
	if err != nil {
		x.t.Errorf("get: %v", err)
	}
	return info
}

// finish repairs the store, waits for longer than the turn continues without clients, and
// settles all that is open.
func (x *comings) finish() {
	x.step("heal")
	time.Sleep(2 * time.Minute) // by then the append has been retried
	x.look()
	x.answers.Wait()
	x.look()
	over := x.status().Status >= index.Succeeded
	anybody := slices.ContainsFunc(x.here, func(g *guest) bool { return !g.observe })
	time.Sleep(stay)
	x.look()
	if cancelled := x.status().Status == index.Stopped; !over && cancelled == anybody {
		x.t.Errorf("somebody is there: %v; the turn is cancelled: %v", anybody, cancelled)
	}
	for range 20 {
		info := x.status()
		if info.Status >= index.Succeeded {
			break
		}
		for _, c := range info.Open {
			if _, err := x.m.SubmitResults(x.t.Context(), x.turn, []session.ClientResult{{CallID: c.ID, Output: new("x")}}); err != nil {
				x.t.Errorf("answer: %v", err)
			}
		}
		for _, in := range info.Asking {
			if _, err := x.m.Resolve(x.t.Context(), x.turn, in.Call.ID, reply("so")); err != nil {
				x.t.Errorf("resolve: %v", err)
			}
		}
		time.Sleep(time.Second)
		x.look()
	}
	if info := x.status(); info.Status < index.Succeeded {
		x.t.Errorf("the turn is %v for ever: %+v", info.Status, info)
	}
	for len(x.here) > 0 {
		x.leave(x.here[0])
	}
	x.stop()
}
