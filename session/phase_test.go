package session_test

import (
	"math/rand/v2"
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

// Whatever clients and the clock do, phases change as they are drawn (see TestMain), and
// when nothing happens the timers that are set are those that follow from the phases.
func TestPhasesWhateverHappens(t *testing.T) {
	t.Parallel() // it takes long
	rapid.Check(t, func(rt *rapid.T) {
		failed := false
		synctest.Test(t, func(t *testing.T) {
			x := newPhases(t, func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) })
			for range 1 + x.pick(16, "steps") {
				x.phaseStep(phaseSteps[x.pick(len(phaseSteps), "what")])
				x.checkTimers()
			}
			x.settle()
			x.checkTimers()
			failed = t.Failed()
		})
		if failed {
			rt.Fatal("see above")
		}
	})
}

// So it is when they do it at once.
func TestPhasesWhateverHappensAtOnce(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			x := newPhases(t, func(n int, _ string) int { return rand.IntN(n) })
			x.atOnce = true
			for range 8 {
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() { x.phaseStep(phaseSteps[x.pick(len(phaseSteps)-phasesAlone, "what")]) })
				}
				wg.Wait()
				x.checkTimers()
				x.phaseStep(phaseSteps[len(phaseSteps)-1-x.pick(phasesAlone, "what")])
				x.checkTimers()
			}
			x.settle()
			x.checkTimers()
		})
		if t.Failed() {
			return
		}
	}
}

// phaseSteps are the steps; the last ones, as many as phasesAlone, nothing else is done
// beside.
var phaseSteps = []string{
	"begin", "begin", "begin", "answer", "answer", "cancel", "cancel a call", "attach", "attach", "observe", "budget",
	"leave one", "unattended", "leave", "sleep", "restart",
}

const phasesAlone = 5

func newPhases(t *testing.T, pick func(n int, what string) int) *world {
	t.Helper()
	limits := limits.Limits{IdleTurn: 10 * time.Second, TurnTimeout: time.Minute, ToolTimeout: 20 * time.Second, HandoverGrace: 2 * time.Second}
	x := &world{pick: pick, limits: limits, fixture: newFixture(t, memory(t), limits)}
	x.on(busy)
	return x
}

func (x *world) checkTimers() {
	synctest.Wait()
	for _, wrong := range x.m.CheckTimers() {
		x.t.Error(wrong)
	}
}

// phaseStep is step, and what turns with clients that come and go have beside.
func (x *world) phaseStep(what string) {
	ctx := x.t.Context()
	var s index.Session
	if list := x.sessions(); len(list) > 0 {
		s = list[x.pick(len(list), "session")]
	}
	switch what {
	case "begin":
		prompt := ""
		for range 1 + x.pick(4, "letters") {
			prompt += "tpqbse"[x.pick(6, "letter"):][:1]
		}
		req := session.Request{SessionID: s.ID, Prompt: prompt, Agent: tree(), Tools: tools(), OnBusy: agentdv1.OnBusy(1 + x.pick(4, "busy"))}
		req.OnDisconnect.Cancel = x.bool("cancel")
		req.OnDisconnect.Grace = time.Duration(x.pick(20, "grace")) * time.Second
		req.Budget.Wall = time.Duration(x.pick(3, "wall")) * 15 * time.Second
		turn, err := x.m.Start(ctx, req)
		x.ok(what, err)
		if err == nil && x.bool("watched") {
			x.add(turn.Watch())
		}
	case "observe":
		if s.ID != "" {
			_, w, err := x.m.Attach(ctx, session.AttachRequest{SessionID: s.ID, Observe: true})
			x.ok(what, err)
			if err == nil {
				x.add(w)
			}
		}
	case "budget":
		if s.ID != "" {
			_, err := x.m.UpdateSession(ctx, s.ID, store.Change{Budget: &record.Budget{Wall: time.Duration(x.pick(4, "wall")) * time.Minute}})
			x.ok(what, err)
		}
	case "leave one":
		if n := len(x.watchers); n > 0 {
			i := x.pick(n, "watcher")
			x.watchers[i].Close()
			x.watchers = append(x.watchers[:i], x.watchers[i+1:]...)
		}
	case "unattended":
		if n := len(x.watchers); n > 0 {
			x.watchers[x.pick(n, "watcher")].Unattended("it reads on")
		}
	default:
		x.step(what)
	}
}
