package session_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/apzuk3/agentd/session/record"
)

// family is an engine for sessions with children: each session has a script of its own, by the name of its child, ""
// for the parent; see worker.
type family struct {
	mu      sync.Mutex // protects the fields below
	workers map[string]*worker
}

func (f *family) run(ctx context.Context, r *session.Run) error {
	_, name, _ := strings.Cut(r.SessionID(), ":sub:bg.")
	return f.of(name).run(ctx, r)
}

func (f *family) of(name string) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.workers == nil {
		f.workers = map[string]*worker{}
	}
	if f.workers[name] == nil {
		f.workers[name] = &worker{script: map[int]func(context.Context, *session.Run) error{}}
	}
	return f.workers[name]
}

// on says what a turn does.
func (f *family) on(name string, turn int, does ...func(context.Context, *session.Run) error) {
	f.of(name).script[turn] = func(ctx context.Context, r *session.Run) error {
		for _, do := range does {
			if err := do(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// childRun is what children of tests run.
func childRun() record.TurnStarted {
	return record.TurnStarted{Agent: json.RawMessage(`{"name":"root","llm":{"model":"m"}}`)}
}

// spawns asks for a child, and notes why there is none.
func spawns(name string, l record.GoalLimits, refused *string) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		_, no, err := r.Spawn(ctx, session.Spawn{
			Call: "call-" + name, Name: name, Goal: "reach " + name, Run: childRun(), Limits: l, MaxDepth: 2, MaxAtOnce: 8,
			Priced: true,
		})
		if refused != nil {
			*refused = no
		} else if no != "" {
			return errors.New(no)
		}
		return err
	}
}

func awaits(name string) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error { return r.AwaitChild(ctx, name) }
}

func alerts(texts ...string) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		for _, text := range texts {
			if err := add(ctx, r, &record.Event{Path: root, Goal: &record.GoalSaid{Alerts: []record.GoalAlert{{Text: text}}}}); err != nil {
				return err
			}
		}
		return nil
	}
}

func says(text string) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m-"+r.TurnID(), root, text) }
}

func waits(d time.Duration) func(context.Context, *session.Run) error {
	return func(ctx context.Context, _ *session.Run) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// prompts starts a turn in a session, "" for a new one.
func (f *fixture) prompts(id, text string) *session.Turn {
	f.t.Helper()
	req := session.Request{SessionID: id, Prompt: text}
	if id == "" {
		req.Agent = tree()
	}
	turn, err := f.m.Start(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return turn
}

// A child is a goal in a session of its own, which outlives the turn of its parent. What it reports is in front of the
// parent's next turn, once and in order.
func TestChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		fam.on("", 1, spawns("a", record.GoalLimits{}, nil), says("spawned"))
		fam.on("a", 1, alerts("first", "second"), waits(time.Minute), says("working"))
		fam.on("a", 2, done("found it"))
		f.engine.on(fam.run)
		parent := f.prompts("", "find it")
		<-parent.Done()
		id := parent.SessionID()
		child := id + ":sub:bg.a"
		synctest.Wait()
		if g := f.goalNow(child); g.Status != agentdv1.GoalStatus_GOAL_STATUS_RUNNING || g.Parent.Session != id || g.Parent.Name != "a" ||
			g.Parent.Branch != "bg.a" || g.Parent.Depth != 1 {
			t.Errorf("the child is %+v, %+v", g, g.Parent)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if g := f.goalNow(child); g.Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED {
			t.Errorf("the child ends as %+v", g)
		}
		<-f.prompts(id, "and?").Done()
		<-f.prompts(id, "again?").Done()
		want := []string{"find it", "[Background reports]\n- [a] first\n- [a] second\n- [a] (completed) found it\n\n---\n\nand?", "again?"}
		if got := fam.of("").said(); !slices.Equal(got, want) {
			t.Errorf("the parent reads %q", got)
		}
		if got := f.kindsOf(id); strings.Count(got, "child_spawned") != 1 || strings.Count(got, "child_reported") != 4 {
			t.Errorf("the log has %s", got)
		}
		if got := fam.of("a").said(); !slices.Equal(got, []string{"reach a", "continue"}) {
			t.Errorf("the child reads %q", got)
		}
	})
}

// What children may spend is cut out of what is left to their parent, at each depth: together they never have more.
func TestChildBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		usd := record.BudgetUSD
		var refused []string
		fam.on("", 1, func(ctx context.Context, r *session.Run) error {
			for i := range 16 {
				_, no, err := r.Spawn(ctx, session.Spawn{
					Call: fmt.Sprint(i), Name: fmt.Sprint("c", i), Goal: "g", Run: childRun(), MaxDepth: 2, MaxAtOnce: 16,
					Limits: record.GoalLimits{Cost: usd(0.25)}, Priced: true,
				})
				if err != nil {
					return err
				}
				if no != "" {
					refused = append(refused, no)
				}
			}
			return nil
		}, says("spawned"))
		for i := range 16 {
			fam.on(fmt.Sprint("c", i), 1, waits(time.Hour))
		}
		turn, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "go", Budget: record.Budget{Cost: usd(3)}})
		if err != nil {
			t.Fatal(err)
		}
		<-turn.Done()
		if len(refused) != 4 || !strings.Contains(refused[0], "at most") {
			t.Errorf("refused: %q", refused)
		}
		sum := record.NanoUSD(0)
		for _, rec := range f.log(turn.SessionID()) {
			if rec.Kind == record.KindChildSpawned {
				var s record.ChildSpawned
				if err := json.Unmarshal(rec.Data, &s); err != nil {
					t.Fatal(err)
				}
				sum += s.Limits.Cost
			}
		}
		if sum != usd(3) {
			t.Errorf("reserved %v", sum)
		}
	})
}

// Of the children of a session, as many work at a time as may; a name is used once, and depth has an end.
func TestChildRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		no := make([]string, 4)
		var all []func(context.Context, *session.Run) error
		for i := range 8 {
			name := fmt.Sprint("c", i)
			all = append(all, spawns(name, record.GoalLimits{}, nil))
			fam.on(name, 1, waits(time.Minute), done("x"))
		}
		fam.on("c0", 1, spawns("deep", record.GoalLimits{}, nil), waits(time.Minute), done("x"))
		fam.on("c0:sub:bg.deep", 1, spawns("deeper", record.GoalLimits{}, &no[2]), done("x"))
		again := func(ctx context.Context, r *session.Run) (err error) {
			_, no[1], err = r.Spawn(ctx, session.Spawn{Call: "other", Name: "c1", Goal: "g", Run: childRun(), MaxDepth: 2, MaxAtOnce: 8})
			return err
		}
		fam.on("", 1, slices.Concat(all, []func(context.Context, *session.Run) error{spawns("c8", record.GoalLimits{}, &no[0]), again, says("x")})...)
		turn := f.prompts("", "go")
		<-turn.Done()
		time.Sleep(time.Second)
		synctest.Wait()
		for i, want := range []string{
			`subagent "c8" refused: 8 are at work, the limit; wait for one of them, or stop one`,
			`subagent "c1" refused: the name was used before, choose another one`,
			`subagent "deeper" refused: depth limit reached (2)`,
		} {
			if no[i] != want {
				t.Errorf("refusal %d: %q", i, no[i])
			}
		}
		if g := f.goalNow(turn.SessionID() + ":sub:bg.c0:sub:bg.deep"); g.Parent.Branch != "bg.c0.bg.deep" || g.Parent.Depth != 2 {
			t.Errorf("%+v", g.Parent)
		}
		fam.on("", 2, spawns("c9", record.GoalLimits{}, &no[3]), says("x"))
		time.Sleep(time.Hour)
		<-f.prompts(turn.SessionID(), "more").Done()
		if no[3] != "" {
			t.Errorf("when the others have ended: %q", no[3])
		}
	})
}

// Whoever pauses, resumes or stops a session does so to what is below it.
func TestChildControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		fam.on("", 1, spawns("a", record.GoalLimits{}, nil), says("x"))
		fam.on("a", 1, spawns("b", record.GoalLimits{}, nil), waits(time.Minute), says("x"))
		fam.on("a", 2, waits(time.Hour))
		fam.on("a:sub:bg.b", 1, waits(time.Minute), says("x"))
		fam.on("a:sub:bg.b", 2, waits(time.Hour))
		turn := f.prompts("", "go")
		<-turn.Done()
		id := turn.SessionID()
		synctest.Wait()
		statuses := func(stand []*index.Goal, err error) string {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, g := range stand {
				out = append(out, strings.TrimPrefix(g.SessionID, id)+" "+strings.TrimPrefix(g.Status.String(), "GOAL_STATUS_"))
			}
			return strings.Join(out, ", ")
		}
		if got := statuses(f.m.ControlGoal(t.Context(), id, agentdv1.GoalAction_GOAL_ACTION_PAUSE)); got != ":sub:bg.a PAUSED, :sub:bg.a:sub:bg.b PAUSED" {
			t.Errorf("paused: %s", got)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if a, b := fam.of("a").said(), fam.of("a:sub:bg.b").said(); len(a) != 1 || len(b) != 1 {
			t.Errorf("turns while it is paused: %q %q", a, b)
		}
		if got := statuses(f.m.ControlGoal(t.Context(), id, agentdv1.GoalAction_GOAL_ACTION_RESUME)); got != ":sub:bg.a RUNNING, :sub:bg.a:sub:bg.b RUNNING" {
			t.Errorf("resumed: %s", got)
		}
		synctest.Wait()
		if a, b := fam.of("a").said(), fam.of("a:sub:bg.b").said(); len(a) != 2 || len(b) != 2 {
			t.Errorf("turns when it goes on: %q %q", a, b)
		}
		for range 2 { // to stop again is no error
			if got := statuses(f.m.ControlGoal(t.Context(), id, agentdv1.GoalAction_GOAL_ACTION_STOP)); got != ":sub:bg.a STOPPED, :sub:bg.a:sub:bg.b STOPPED" {
				t.Errorf("stopped: %s", got)
			}
		}
		if n := f.m.Running(); n != 0 {
			t.Errorf("%d turns run", n)
		}
		<-f.prompts(id, "and?").Done()
		if got := fam.of("").said(); got[1] != "[Background reports]\n- [a] (stopped) context_cancelled; it said last: x\n\n---\n\nand?" {
			t.Errorf("the parent reads %q", got)
		}
	})
}

// A parent that waits for a child goes on with its end, also in another process; what is spawned once is not again.
func TestChildAcrossProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory(t)
		f := newFixture(t, st, limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		script := []func(context.Context, *session.Run) error{spawns("a", record.GoalLimits{}, nil), awaits("a"), says("it is there")}
		fam.on("", 1, script...)
		fam.on("", 2, script...)
		fam.on("a", 1, waits(time.Hour))
		fam.on("a", 2, waits(time.Minute), done("found"))
		turn := f.prompts("", "go")
		synctest.Wait()
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.m.Shutdown(stopped); err != nil {
			t.Fatal(err)
		}
		f = newFixture(t, st, limits.Limits{})
		f.engine.on(fam.run)
		if err := f.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := f.kindsOf(turn.SessionID()); strings.Count(got, "child_spawned") != 1 || strings.Count(got, "child_reported") != 2 ||
			!strings.HasSuffix(got, "child_reported turn_ended") {
			t.Errorf("the log has %s", got)
		}
		if got := fam.of("a").said(); len(got) != 2 {
			t.Errorf("the child reads %q", got)
		}
	})
}

// The newest reports wait for the parent, as many as are kept.
func TestChildReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		var texts []string
		for i := range 300 {
			texts = append(texts, fmt.Sprint("n", i))
		}
		fam.on("", 1, spawns("a", record.GoalLimits{}, nil), says("x"))
		fam.on("a", 1, alerts(texts...), done("end"))
		turn := f.prompts("", "go")
		<-turn.Done()
		synctest.Wait()
		<-f.prompts(turn.SessionID(), "and?").Done()
		got := fam.of("").said()[1]
		if n := strings.Count(got, "\n- [a]"); n != 256 || !strings.Contains(got, "\n- [a] n45\n- [a] n46\n") || strings.Contains(got, "n44\n") ||
			!strings.Contains(got, "- [a] n299\n- [a] (completed) end\n") {
			t.Errorf("%d reports: %q", n, got)
		}
	})
}

// ControlGoal and Inject implement session.Below, as servers do that reach each other.
func (g *group) ControlGoal(ctx context.Context, address, id string, action agentdv1.GoalAction) error {
	_, err := g.replicas[address].m.ControlGoal(ctx, id, action)
	return err
}

func (g *group) Inject(ctx context.Context, address, id, text, key string) error {
	_, err := g.replicas[address].m.Inject(ctx, id, text, key)
	return err
}

// A parent and its children may be of different servers: it sees what they report, tells them something and stops them.
func TestChildElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		fam := &family{}
		one, two := g.join("one", fam.run), g.join("two", fam.run)
		fam.on("", 1, spawns("a", record.GoalLimits{}, nil), spawns("b", record.GoalLimits{}, nil), says("x"))
		fam.on("a", 1, waits(time.Minute), alerts("half of it"), waits(2*time.Minute), says("x"))
		fam.on("a", 2, done("all of it"))
		fam.on("b", 1, waits(time.Hour))
		parent := one.prompts("", "go")
		<-parent.Done()
		id := parent.SessionID()
		time.Sleep(time.Second)
		g.wantOwner(id+":sub:bg.a", "one")
		var states []string
		fam.on("", 2, func(ctx context.Context, r *session.Run) error {
			all, err := r.Children(ctx)
			if err != nil {
				return err
			}
			for _, c := range all {
				states = append(states, c.F.Name+" "+c.Status())
			}
			return errors.Join(r.TellChild(ctx, all[0], "hurry", "k"), r.TellChild(ctx, all[0], "hurry", "k"),
				r.AwaitChild(ctx, "a"), r.StopChild(ctx, all[1]))
		}, says("y"))
		next := two.prompts(id, "and?")
		synctest.Wait()
		g.wantOwner(id, "two")
		<-next.Done()
		time.Sleep(time.Second)
		if want := []string{"a running", "b running"}; !slices.Equal(states, want) {
			t.Errorf("children are %q", states)
		}
		if got := fam.of("a").said(); !slices.Equal(got, []string{"reach a", "[Inbox]\n- hurry\n\n---\n\ncontinue"}) {
			t.Errorf("the child reads %q", got)
		}
		<-two.prompts(id, "well?").Done()
		want := "[Background reports]\n- [a] half of it\n- [a] (completed) all of it\n- [b] (stopped) context_cancelled\n\n---\n\nwell?"
		if got := fam.of("").said(); got[2] != want {
			t.Errorf("the parent reads %q", got)
		}
		if n := one.m.Running() + two.m.Running(); n != 0 {
			t.Errorf("%d turns run", n)
		}
	})
}

// A server without background agents takes them away from trees, says so, and spawns nothing.
func TestNoChildren(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	m, err := session.NewManager(session.Config{Store: f.store, Runner: f.engine, NoBackgroundAgents: true})
	if err != nil {
		t.Fatal(err)
	}
	var refused string
	var had bool
	f.on(func(ctx context.Context, r *session.Run) error {
		had = r.Spec().Agent.GetLlm().GetBackgroundAgents() != nil
		return errors.Join(spawns("a", record.GoalLimits{}, &refused)(ctx, r), says("x")(ctx, r))
	})
	asked := tree()
	asked.GetLlm().BackgroundAgents = &agentdv1.BackgroundAgents{}
	turn, err := m.Start(t.Context(), session.Request{Agent: asked, Prompt: "go"})
	if err != nil {
		t.Fatal(err)
	}
	<-turn.Done()
	if had || refused != `subagent "a" refused: this server has no background agents` || asked.GetLlm().GetBackgroundAgents() == nil {
		t.Errorf("the agent has them: %v; a spawn is refused with %q", had, refused)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Shutdown(stopped); err != nil {
		t.Error(err)
	}
	for _, rec := range f.log(turn.SessionID()) {
		if rec.Kind == record.KindTurnStarted && !strings.Contains(string(rec.Data), `"background_agents_ignored"`) {
			t.Errorf("the turn begins with %s", rec.Data)
		}
	}
}

// A child that finds no place begins when there is one; until then its parent goes on.
func TestChildWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{MaxTurns: 1})
		fam := &family{}
		f.engine.on(fam.run)
		status := ""
		fam.on("", 1, func(ctx context.Context, r *session.Run) error {
			c, _, err := r.Spawn(ctx, session.Spawn{Call: "c", Name: "a", Goal: "g", Run: childRun(), MaxDepth: 1, MaxAtOnce: 1})
			if err == nil {
				status = c.Status()
			}
			return err
		}, says("x"))
		fam.on("a", 1, done("found"))
		turn := f.prompts("", "go")
		<-turn.Done()
		if status != "starting" {
			t.Errorf("it is %q", status)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := f.kindsOf(turn.SessionID()); !strings.HasSuffix(got, "turn_ended child_reported child_reported") {
			t.Errorf("the log has %s", got)
		}
		if got := fam.of("a").said(); !slices.Equal(got, []string{"g"}) {
			t.Errorf("the child reads %q", got)
		}
	})
}

// What is below a child that has ended is paused and stopped, too.
func TestChildControlBelowTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		fam.on("", 1, spawns("a", record.GoalLimits{}, nil), says("x"))
		fam.on("a", 1, spawns("b", record.GoalLimits{}, nil), done("enough"))
		fam.on("a:sub:bg.b", 1, waits(time.Minute), says("x"))
		turn := f.prompts("", "go")
		<-turn.Done()
		time.Sleep(time.Second)
		for _, c := range []struct {
			action agentdv1.GoalAction
			want   agentdv1.GoalStatus
		}{
			{agentdv1.GoalAction_GOAL_ACTION_PAUSE, agentdv1.GoalStatus_GOAL_STATUS_PAUSED},
			{agentdv1.GoalAction_GOAL_ACTION_STOP, agentdv1.GoalStatus_GOAL_STATUS_STOPPED},
			{agentdv1.GoalAction_GOAL_ACTION_PAUSE, agentdv1.GoalStatus_GOAL_STATUS_STOPPED}, // it stays as it is
		} {
			stand, err := f.m.ControlGoal(t.Context(), turn.SessionID(), c.action)
			if err != nil || len(stand) != 2 || stand[0].Status != agentdv1.GoalStatus_GOAL_STATUS_COMPLETED {
				t.Fatalf("%v: %v, %v", c.action, stand, err)
			}
			if is := stand[1].Status; is != c.want {
				t.Errorf("%v: it is %v", c.action, is)
			}
		}
	})
}

// What a goal's children may use counts in each of its turns.
func TestChildrenOfAGoalShareItsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		fam := &family{}
		f.engine.on(fam.run)
		var left []int64
		looks := func(_ context.Context, r *session.Run) error {
			left = append(left, r.Spec().Budget.Tokens)
			return nil
		}
		fam.on("", 1, looks, spawns("a", record.GoalLimits{}, nil), says("x"))
		fam.on("", 2, looks, says("x"))
		fam.on("", 3, looks, done("x"))
		fam.on("a", 1, waits(time.Hour))
		f.goal(session.GoalRequest{Limits: record.GoalLimits{Input: 600, Output: 300}})
		synctest.Wait()
		if !slices.Equal(left, []int64{900, 900 - 5 - 100, 900 - 10 - 100}) { // a turn uses 5, and the child has a ninth
			t.Errorf("left are %v", left)
		}
	})
}
