package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// clock is a machine's clock that is set forth and back.
type clock struct {
	mu  sync.Mutex // protects off
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *clock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += by
}

var clockSteps = []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour}

// workOrAsk asks for a tool if the prompt says so, else it works for two days.
func workOrAsk(ctx context.Context, r *session.Run) error {
	if r.Spec().Prompt != "work" {
		return talk(ctx, r)
	}
	select {
	case <-time.After(48 * time.Hour):
		return say(ctx, r, "m", root, "done")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// timed is a turn that is over after a time.
type timed struct {
	req    session.Request
	stays  bool // its client
	limits limits.Limits
	after  time.Duration
	late   time.Duration // that what ends it may be late
	anew   bool          // its time begins anew with a restart
}

// cancels is OnDisconnect of turns that are over half an hour after their client left.
var cancels = record.OnDisconnect{Cancel: true, Grace: 30 * time.Minute}

func timedTurns() map[string]timed {
	half := record.Budget{Wall: 30 * time.Minute}
	long := limits.Limits{ToolTimeout: 48 * time.Hour, TurnTimeout: 48 * time.Hour}
	return map[string]timed{
		"the turn's budget":            {req: session.Request{Prompt: "ask", Budget: half}, stays: true, limits: long, after: 30 * time.Minute},
		"the session's budget":         {req: session.Request{Prompt: "ask", SessionBudget: &half}, stays: true, limits: long, after: 30 * time.Minute},
		"the client is away, it works": {req: session.Request{Prompt: "work", OnDisconnect: cancels}, after: 30 * time.Minute},
		"the client is away, it asks":  {req: session.Request{Prompt: "ask", OnDisconnect: cancels}, after: 30 * time.Minute},
		"the client is away, its key":  {req: session.Request{Prompt: "work", OnDisconnect: cancels, Keys: session.Keys{"p": "k"}}, after: 30 * time.Minute},
		"nobody comes for a long time": {req: session.Request{Prompt: "ask"}, limits: limits.Limits{Retention: 3 * time.Hour}, after: 3 * time.Hour, late: 10 * time.Minute},
		"a tool's time":                {req: session.Request{Prompt: "ask"}, stays: true, limits: limits.Limits{ToolTimeout: 30 * time.Minute}, after: 30 * time.Minute, anew: true},
		"the turn's time":              {req: session.Request{Prompt: "work"}, stays: true, limits: limits.Limits{TurnTimeout: 30 * time.Minute}, after: 30 * time.Minute, anew: true},
	}
}

// isOver reports whether a turn is over.
func (f *fixture) isOver(turn *session.Turn) bool {
	f.t.Helper()
	synctest.Wait()
	info, err := f.m.Turn(f.t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		f.t.Fatal(err)
	}
	return info.End != nil
}

// endsWithin checks when a turn is over, from a time on.
func (f *fixture) endsWithin(turn *session.Turn, begun time.Time, from, to time.Duration) {
	f.t.Helper()
	if left := from - time.Second - time.Since(begun); left > 0 {
		time.Sleep(left)
		if f.isOver(turn) {
			f.t.Errorf("it is over within %v, want it to take %v", time.Since(begun), from)
			return
		}
	}
	time.Sleep(to + 2*time.Second - time.Since(begun))
	if !f.isOver(turn) {
		f.t.Errorf("it is not over after %v, want it to take %v to %v", time.Since(begun), from, to)
	}
}

// TestClockSteps (F39) sets the clock while turns wait for their time: within one process
// each takes as long as it says. What nobody has used for long is measured by the log's times,
// and off by the step.
func TestClockSteps(t *testing.T) {
	for name, tc := range timedTurns() {
		for _, step := range clockSteps {
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &clock{}
					f := newFixtureAt(t, memory(t), tc.limits, c.now)
					f.on(workOrAsk)
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					begun := time.Now()
					turn := f.start(tc.req)
					w := turn.Watch()
					defer w.Close()
					if !tc.stays {
						w.Close()
					}
					time.Sleep(10 * time.Minute)
					c.step(step)
					from, to := tc.after, tc.after
					if tc.late > 0 {
						from, to = tc.after-max(step, 0), tc.after-min(step, 0)+tc.late
					}
					f.endsWithin(turn, begun, from, to)
				})
			})
		}
	}
}

// TestClockStepsWhileDown (F39): over a restart, a turn's time is off by at most the step.
func TestClockStepsWhileDown(t *testing.T) {
	for name, tc := range timedTurns() {
		if tc.anew {
			continue
		}
		for _, step := range clockSteps {
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &clock{}
					f := newFixtureAt(t, memory(t), tc.limits, c.now)
					f.on(workOrAsk)
					begun := time.Now()
					turn := f.start(tc.req)
					w := turn.Watch()
					if !tc.stays {
						w.Close()
					}
					time.Sleep(10 * time.Minute)
					f.stop()
					w.Close()
					c.step(step)
					time.Sleep(5 * time.Minute)
					f = newFixtureAt(t, f.store, tc.limits, c.now)
					f.on(workOrAsk)
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					if tc.stays {
						_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
						defer w.Close()
					}
					f.endsWithin(turn, begun, tc.after-max(step, 0), tc.after-min(step, 0)+tc.late)
					checkNumbers(t, f.log(turn.SessionID()))
				})
			})
		}
	}
}

func checkNumbers(t *testing.T, log []record.Record) {
	t.Helper()
	for i, rec := range log {
		if rec.Seq != int64(i)+1 {
			t.Errorf("record %d has number %d", i+1, rec.Seq)
		}
	}
}

// TestClockStepsAfterARestart (F39): a turn that is only waited for, in no memory, is
// cancelled in time too.
func TestClockStepsAfterARestart(t *testing.T) {
	for _, step := range clockSteps {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &clock{}
				f := newFixtureAt(t, memory(t), limits.Limits{}, c.now)
				f.on(workOrAsk)
				begun := time.Now()
				turn := f.start(session.Request{Prompt: "work", OnDisconnect: cancels, Keys: session.Keys{"p": "k"}})
				turn.Watch().Close()
				synctest.Wait()
				f.stop()
				f = newFixtureAt(t, f.store, limits.Limits{MaxIdleSessions: 1}, c.now)
				f.on(workOrAsk)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				c.step(step)
				f.run(f.create(session.Names{}).ID, "hi") // its session leaves memory
				f.endsWithin(turn, begun, 30*time.Minute, 30*time.Minute)
			})
		})
	}
}

// TestClockStepsPurge (F39): a log is kept for as long as it says, but for the step.
func TestClockStepsPurge(t *testing.T) {
	const kept, sweep = 3 * time.Hour, 10 * time.Minute
	for _, step := range clockSteps {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &clock{}
				f := newFixtureAt(t, memory(t), limits.Limits{PurgeAfter: kept}, c.now)
				f.on(talk)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				id := f.run(f.create(session.Names{}).ID, "hi").SessionID()
				time.Sleep(time.Hour)
				c.step(step)
				isPurged := func() bool {
					synctest.Wait()
					info, err := f.m.Session(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					return info.Purged > 0
				}
				if left := kept - max(step, 0) - time.Since(begun); left > 0 {
					time.Sleep(left - time.Second)
					if isPurged() {
						t.Errorf("purged within %v", time.Since(begun))
					}
				}
				time.Sleep(kept - min(step, 0) + sweep - time.Since(begun))
				if !isPurged() {
					t.Errorf("not purged after %v", time.Since(begun))
				}
			})
		})
	}
}

// TestSessionTimeIsNeverNegative (F39): a turn over which the clock was set back leaves the
// session no more time than it had.
func TestSessionTimeIsNeverNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clock{}
		f := newFixtureAt(t, memory(t), limits.Limits{}, c.now)
		f.on(calls(1))
		budget := &record.Budget{Wall: 5 * time.Minute}
		first := f.start(session.Request{SessionBudget: budget})
		time.Sleep(5 * time.Second)
		c.step(-time.Hour)
		<-first.Done()
		f.on(workOrAsk)
		begun := time.Now()
		second := f.start(session.Request{SessionID: first.SessionID(), Prompt: "ask", SessionBudget: budget})
		defer second.Watch().Close()
		f.endsWithin(second, begun, 5*time.Minute-10*time.Second, 5*time.Minute)
	})
}

// TestListsWhileTheClockSteps (F39): whatever the clock does while sessions, turns and
// interactions are made, and while a list is read, each of those that there were is in the
// list once.
func TestListsWhileTheClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clock{}
		f := newFixtureAt(t, memory(t), limits.Limits{}, c.now)
		f.on(func(ctx context.Context, r *session.Run) error {
			if r.Spec().Prompt == "person" {
				return curious(ctx, r)
			}
			return talk(ctx, r)
		})
		rng := rand.New(rand.NewPCG(1, 2))
		more := func(id string) string {
			c.step(clockSteps[rng.IntN(len(clockSteps))])
			if id == "" {
				id = f.create(session.Names{}).ID
				f.start(session.Request{SessionID: id, Prompt: "person", Agent: tree()}).Watch().Close()
				synctest.Wait()
				return id
			}
			f.run(id, "hi")
			return id
		}
		busy := f.create(session.Names{}).ID
		lists := map[string]func(page string, limit int) (ids []string, next string, err error){
			"sessions": func(page string, limit int) (ids []string, next string, err error) {
				list, next, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, page, limit)
				for _, s := range list {
					ids = append(ids, s.ID)
				}
				return ids, next, err
			},
			"turns": func(page string, limit int) (ids []string, next string, err error) {
				list, next, err := f.m.ListTurns(t.Context(), index.TurnQuery{}, page, limit)
				for _, turn := range list {
					ids = append(ids, turn.ID)
				}
				return ids, next, err
			},
			"turns of one session": func(page string, limit int) (ids []string, next string, err error) {
				list, next, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: busy}, page, limit)
				for _, turn := range list {
					ids = append(ids, turn.ID)
				}
				return ids, next, err
			},
			"interactions": func(page string, limit int) (ids []string, next string, err error) {
				list, next, err := f.m.ListInteractions(t.Context(), index.InteractionQuery{}, page, limit)
				for _, in := range list {
					ids = append(ids, in.SessionID)
				}
				return ids, next, err
			},
		}
		for range 8 {
			more("")
			more(busy)
		}
		for name, list := range lists {
			before, _, err := list("", 1000)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for page := ""; ; {
				ids, next, err := list(page, 1+rng.IntN(3))
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, ids...)
				if page = next; page == "" {
					break
				}
				more("")
				more(busy)
				if len(seen) > 500 {
					t.Fatalf("%s: the list has no end", name)
				}
			}
			slices.Sort(seen)
			if unique := slices.Compact(slices.Clone(seen)); len(unique) != len(seen) {
				t.Errorf("%s: %d of %d are repeated", name, len(seen)-len(unique), len(seen))
			}
			for _, id := range before {
				if _, found := slices.BinarySearch(seen, id); !found {
					t.Errorf("%s: %s is missing", name, id)
				}
			}
		}
	})
}
