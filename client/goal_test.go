package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
)

// done is the call with which a model ends a goal.
const done = `report_done {"state":"done","detail":"all sorted"}`

// startGoal starts a goal whose model the test plays.
func startGoal(t *testing.T, c *client.Client, spec client.GoalSpec, opts ...client.GoalOption) *client.Goal {
	t.Helper()
	if spec.Agent == nil {
		spec.Agent = actor()
	}
	if spec.Goal == "" {
		spec.Goal = "sort it"
	}
	g, err := c.StartGoal(t.Context(), spec, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ends waits for the end of a goal.
func ends(t *testing.T, g *client.Goal, want client.GoalReason, turns int) *client.GoalResult {
	t.Helper()
	await(t, g.Done(), "end of the goal")
	r, err := g.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Reason != want || r.Turns != turns || r.Status != g.Status() {
		t.Errorf("it has ended as %+v, want %s after %d turns", r, want, turns)
	}
	return r
}

// finishes plays the turn that ends a goal.
func (p puppet) finishes(t *testing.T) *modelCall {
	t.Helper()
	c := p.next(t)
	c.gets(t, reply{calls: []string{done}})
	p.says(t, "so be it")
	return c
}

// seen is what a progress function was told.
type seen struct {
	mu     sync.Mutex
	texts  map[int]string
	turns  []int
	events int
}

func (s *seen) see(turn int, e *client.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[int]string{}
	}
	s.events++
	if len(s.turns) == 0 || s.turns[len(s.turns)-1] != turn {
		s.turns = append(s.turns, turn)
	}
	if e.OutputChunk != nil {
		s.texts[turn] += e.OutputChunk.Content
	}
}

// TestGoalIsReached by the done tool, after a turn that runs a tool of this client. The progress has each turn once,
// and the totals count each model call once.
func TestGoalIsReached(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	door := newDoor(t, c, "look")
	var told seen
	g := startGoal(t, c, client.GoalSpec{Agent: actor("look")}, client.WithProgress(told.see))
	if call := s.next(t); !slices.Equal(call.heard, []string{"sort it"}) {
		t.Errorf("the first turn heard %q", call.heard)
	} else {
		call.gets(t, reply{text: "I look. ", calls: []string{"look"}})
	}
	door.let(t, "a mess")
	s.says(t, "A mess.")
	if call := s.finishes(t); call.heard[len(call.heard)-1] != "continue" {
		t.Errorf("the second turn heard %q", call.heard)
	}
	r := ends(t, g, client.GoalReasonCompleted, 2)
	if r.DoneDetail != "all sorted" || r.FinalText != "so be it" || r.InputTokens != 28 || r.OutputTokens != 12 ||
		r.Status != client.GoalCompleted || r.Err != nil || r.SessionID != g.SessionID() || r.GoalID != g.ID() {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(told.turns, []int{1, 2}) || told.texts[1] != "I look. A mess." || told.texts[2] != "so be it" {
		t.Errorf("the progress was %v, %v", told.turns, told.texts)
	}
	info, err := c.GetGoal(t.Context(), g.SessionID())
	if err != nil || info.Status != client.GoalCompleted || info.ID != g.ID() || info.Holder != "" {
		t.Errorf("%+v, %v", info, err)
	}
	again, err := c.ResumeGoal(t.Context(), client.GoalSpec{SessionID: g.SessionID(), Agent: actor("look")})
	if err != nil {
		t.Fatal(err)
	}
	if r2 := ends(t, again, client.GoalReasonCompleted, 2); r2.DoneDetail != r.DoneDetail || again.ID() != g.ID() {
		t.Errorf("resumed it is %+v", r2)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Errorf("to stop one that has ended: %v", err)
	}
}

// TestGoalIsStartedOnce under a key, whoever starts it again.
func TestGoalIsStartedOnce(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	g := startGoal(t, c, client.GoalSpec{}, client.WithIdempotencyKey("k"))
	other, _ := s.client(t)
	again := startGoal(t, other, client.GoalSpec{}, client.WithIdempotencyKey("k"))
	if g.ID() != again.ID() || g.SessionID() != again.SessionID() {
		t.Errorf("started again it is goal %s of %s, and was %s of %s", again.ID(), again.SessionID(), g.ID(), g.SessionID())
	}
	if _, err := c.StartGoal(t.Context(), client.GoalSpec{Agent: actor(), Goal: "another"}, client.WithIdempotencyKey("k")); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another goal under the key: %v", err)
	}
	s.finishes(t)
	ends(t, g, client.GoalReasonCompleted, 1)
	ends(t, again, client.GoalReasonCompleted, 1)
}

// TestGoalResumesAfterItsLimit: two turns, and the third of the goal that was resumed ends it.
func TestGoalResumesAfterItsLimit(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	g := startGoal(t, c, client.GoalSpec{MaxTurns: 2})
	s.says(t, "one")
	s.says(t, "two")
	ends(t, g, client.GoalReasonMaxTurns, 2)
	var told seen
	g, err := c.ResumeGoal(t.Context(), client.GoalSpec{SessionID: g.SessionID(), Agent: actor(), MaxTurns: 5}, client.WithProgress(told.see))
	if err != nil {
		t.Fatal(err)
	}
	s.finishes(t)
	if r := ends(t, g, client.GoalReasonCompleted, 3); r.InputTokens != 28 {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(told.turns, []int{3}) {
		t.Errorf("the progress of the resumed goal was of turns %v", told.turns)
	}
	all := 0
	for info, err := range c.ListGoals(t.Context(), client.GoalFilter{Statuses: []client.GoalStatus{client.GoalCompleted, client.GoalFailed}}) {
		if err != nil {
			t.Fatal(err)
		}
		all += info.Turns
	}
	if all != 5 {
		t.Errorf("the goals in the list have %d turns", all)
	}
}

// TestGoalIsSteered: a pause during a model call lets its turn finish and holds the next one, messages wait for it, and
// a stop ends what is paused.
func TestGoalIsSteered(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	g := startGoal(t, c, client.GoalSpec{})
	call := s.next(t)
	for range 2 {
		if err := g.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	call.gets(t, reply{text: "one"})
	for n := range 300 {
		if err := g.Inject(t.Context(), fmt.Sprint("m", n)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, g.InboxArrived(), "signal of a message")
	info, err := c.GetGoal(t.Context(), g.SessionID())
	if err != nil || info.Status != client.GoalPaused || info.Turns != 1 || info.TurnID != "" || info.WaitingMessages != 256 {
		t.Errorf("paused it is %+v, %v", info, err)
	}
	if err := g.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	call = s.next(t)
	var want strings.Builder
	want.WriteString("[Inbox]\n")
	for n := 44; n < 300; n++ {
		fmt.Fprintf(&want, "- m%d\n", n)
	}
	want.WriteString("\n---\n\ncontinue")
	if got := call.heard[len(call.heard)-1]; got != want.String() {
		t.Errorf("the turn after the pause heard %.100q…", got)
	}
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	call.gets(t, reply{text: "two"})
	for range 2 {
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r := ends(t, g, client.GoalReasonCanceled, 2); r.Status != client.GoalStopped {
		t.Errorf("%+v", r)
	}
}

// TestGoalIsStoppedInATurn, by Stop and by the end of its context; with OnLeaveDetach it goes on.
func TestGoalIsStoppedInATurn(t *testing.T) {
	for _, how := range []string{"stop", "context", "detach"} {
		t.Run(how, func(t *testing.T) {
			s := newDaemon(t)
			c, _ := s.client(t)
			door := newDoor(t, c, "look")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			spec := client.GoalSpec{Agent: actor("look"), Goal: "sort it"}
			var opts []client.GoalOption
			if how == "detach" {
				opts = append(opts, client.WithOnLeave(client.OnLeaveDetach))
			}
			g, err := c.StartGoal(ctx, spec, opts...)
			if err != nil {
				t.Fatal(err)
			}
			s.next(t).gets(t, reply{calls: []string{"look"}})
			await(t, door.asked, "call of the tool")
			if how == "stop" {
				if err := g.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			_ = await(t, door.ended, "end of the handler")
			if how != "detach" {
				if r := ends(t, g, client.GoalReasonCanceled, 1); r.Status != client.GoalStopped || (how == "context") != errors.Is(r.Err, context.Canceled) {
					t.Errorf("%+v", r)
				}
				return
			}
			await(t, g.Done(), "end of the handle")
			if r, err := g.Wait(t.Context()); !errors.Is(err, context.Canceled) {
				t.Errorf("left, it has ended as %+v, %v", r, err)
			}
			g, err = c.FollowGoal(t.Context(), client.GoalSpec{SessionID: g.SessionID()})
			if err != nil {
				t.Fatal(err)
			}
			door.let(t, "a mess")
			s.says(t, "one")
			s.finishes(t)
			ends(t, g, client.GoalReasonCompleted, 2)
		})
	}
}

// TestGoalRetryPolicy is asked after each turn that has failed, with its error and how many have failed in a row.
func TestGoalRetryPolicy(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	var asked []string
	decisions := []client.RetryDecision{client.RetryTurn, client.SkipTurn, client.AbortGoal}
	g := startGoal(t, c, client.GoalSpec{
		RetryPolicy: func(err error, attempt int) client.RetryDecision {
			asked = append(asked, fmt.Sprint(attempt, errors.Is(err, client.ErrBudgetExhausted)))
			d := decisions[0]
			decisions = decisions[1:]
			return d
		},
	}, client.WithBudget(client.Budget{ModelCalls: 1}))
	var heard []string
	for _, fails := range []bool{true, true, false, true} {
		call := s.next(t)
		heard = append(heard, call.heard[len(call.heard)-1])
		if fails { // the turn wants a second call, which its budget does not have
			call.gets(t, reply{calls: []string{`report_done {"state":"almost"}`}})
		} else {
			call.gets(t, reply{text: "fine"})
		}
	}
	r := ends(t, g, client.GoalReasonRetryPolicyAborted, 4)
	if want := []string{"sort it", "sort it", "continue", "continue"}; !slices.Equal(heard, want) {
		t.Errorf("the turns heard %q, want %q", heard, want)
	}
	if want := []string{"1 true", "2 true", "1 true"}; !slices.Equal(asked, want) {
		t.Errorf("the policy was asked %q, want %q", asked, want)
	}
	if r.Status != client.GoalFailed || !errors.Is(r.Err, client.ErrBudgetExhausted) {
		t.Errorf("%+v", r)
	}
}

// TestGoalBeforeTurn is called before each turn, and its error ends the goal.
func TestGoalBeforeTurn(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	enough := errors.New("enough")
	var before []int
	g := startGoal(t, c, client.GoalSpec{BeforeTurn: func(_ context.Context, n int) error {
		if before = append(before, n); n == 3 {
			return enough
		}
		return nil
	}})
	s.says(t, "one")
	s.says(t, "two")
	if r := ends(t, g, client.GoalReasonRetryPolicyAborted, 2); !errors.Is(r.Err, enough) || r.FinalText != "two" {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(before, []int{1, 2, 3}) {
		t.Errorf("it was called before the turns %v", before)
	}
}

// TestGoalDeferred ends a handle that says so when the goal waits for a time, and leaves the goal.
func TestGoalDeferred(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	g := startGoal(t, c, client.GoalSpec{Schedule: true, LeaveDeferred: true})
	s.next(t).gets(t, reply{calls: []string{`schedule_next_turn {"wake_in_sec":3600}`}})
	s.says(t, "later")
	if r := ends(t, g, client.GoalReasonDeferred, 1); r.Status != client.GoalRunning || r.NextWake.IsZero() {
		t.Errorf("%+v", r)
	}
	info, err := c.GetGoal(t.Context(), g.SessionID())
	if err != nil || info.HasEnded() || info.Wait != client.GoalWaitTimer {
		t.Errorf("left it is %+v, %v", info, err)
	}
	if _, err := c.ResumeGoal(t.Context(), client.GoalSpec{SessionID: g.SessionID(), Agent: actor()}); !errors.Is(err, client.ErrSessionBusy) || !strings.Contains(err.Error(), info.Holder) {
		t.Errorf("a second driver of it: %v", err)
	}
}

// TestGoalOutlivesItsConnection, which breaks while a tool runs and while the turn after that begins: nothing is seen
// twice, no tool runs twice.
func TestGoalOutlivesItsConnection(t *testing.T) {
	s := newDaemon(t)
	c, w := s.client(t)
	door := newDoor(t, c, "look")
	var told seen
	g := startGoal(t, c, client.GoalSpec{Agent: actor("look")}, client.WithProgress(told.see))
	s.next(t).gets(t, reply{text: "I look. ", calls: []string{"look"}})
	await(t, door.asked, "call of the tool")
	w.cut()
	w.mend()
	door.let(t, "a mess")
	call := s.next(t)
	w.cut()
	call.gets(t, reply{text: "A mess."})
	call = s.next(t)
	w.mend()
	call.gets(t, reply{calls: []string{done}})
	s.says(t, "so be it")
	ends(t, g, client.GoalReasonCompleted, 2)
	if !slices.Equal(told.turns, []int{1, 2}) || told.texts[1] != "I look. A mess." || told.texts[2] != "so be it" || len(door.asked) > 0 {
		t.Errorf("the progress was %v, %v, and %d more calls", told.turns, told.texts, len(door.asked))
	}
}

// TestGoalOutlivesItsServer, which is followed by another one on its data while a tool runs.
func TestGoalOutlivesItsServer(t *testing.T) {
	dir := t.TempDir()
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	c, w := s.client(t)
	door := newDoor(t, c, "look")
	var told seen
	g := startGoal(t, c, client.GoalSpec{Agent: actor("look")}, client.WithProgress(told.see))
	s.says(t, "one")
	s.next(t).gets(t, reply{text: "I look. ", calls: []string{"look"}})
	await(t, door.asked, "call of the tool")
	w.lead("") // others may get the port
	if err := s.d.Close(); err != nil {
		t.Fatal(err)
	}
	next := newDaemonWith(t, s.puppet, agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	w.lead(strings.TrimPrefix(next.d.URL, "http://"))
	door.let(t, "a mess")
	s.says(t, "A mess.")
	s.finishes(t)
	r := ends(t, g, client.GoalReasonCompleted, 3)
	if !slices.Equal(told.turns, []int{1, 2, 3}) || told.texts[2] != "I look. A mess." || len(door.asked) > 0 || r.InputTokens != 35 {
		t.Errorf("the progress was %v, %v, and %d more calls; %+v", told.turns, told.texts, len(door.asked), r)
	}
}

// TestGoalOfATurnThatIsNotTheGoals: the prompt of another caller runs between, and is none of its turns.
func TestGoalOfATurnThatIsNotTheGoals(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	var told seen
	g := startGoal(t, c, client.GoalSpec{}, client.WithProgress(told.see))
	call := s.next(t)
	other, _ := s.client(t)
	r := follow(other.Session(g.SessionID()).Stream(t.Context(), "and you?", client.WithOnBusy(client.OnBusyEnqueue)))
	r.until(t, isQueued)
	call.gets(t, reply{text: "one"})
	if call := s.says(t, "I am fine"); call.heard[len(call.heard)-1] != "and you?" {
		t.Errorf("between heard %q", call.heard)
	}
	r.rest(t)
	s.finishes(t)
	ends(t, g, client.GoalReasonCompleted, 2)
	if !slices.Equal(told.turns, []int{1, 2}) || strings.Contains(told.texts[1]+told.texts[2], "fine") {
		t.Errorf("the progress was %v, %v", told.turns, told.texts)
	}
}

// TestGoalIsRefused before anything is sent.
func TestGoalIsRefused(t *testing.T) {
	c := client.New("http://127.0.0.1:1") // where nobody is
	alone := errors.New("nobody is there")
	pack := client.NewToolSet()
	pack.Unattended(func() error { return alone })
	good := client.GoalSpec{Agent: actor(), Goal: "sort it"}
	for name, try := range map[string]struct {
		change func(*client.GoalSpec)
		opts   []client.GoalOption
		want   error
	}{
		"tools that ask nobody": {opts: []client.GoalOption{client.WithTools(pack)}, want: alone},
		"a timeout":             {opts: []client.GoalOption{client.WithTimeout(1)}},
		"a turn's id":           {opts: []client.GoalOption{client.WithTurnID("t")}},
		"a policy too many": {change: func(g *client.GoalSpec) {
			g.OnFailure, g.RetryPolicy = client.RetryTurn, func(error, int) client.RetryDecision { return "" }
		}},
		"an unknown policy":      {change: func(g *client.GoalSpec) { g.OnFailure = "perhaps" }},
		"turns below 0":          {change: func(g *client.GoalSpec) { g.MaxTurns = -2 }},
		"a bound of no schedule": {change: func(g *client.GoalSpec) { g.MaxDefer = 1 }},
	} {
		spec := good
		if try.change != nil {
			try.change(&spec)
		}
		if _, err := c.StartGoal(t.Context(), spec, try.opts...); !errors.Is(err, client.ErrInvalidRequest) || try.want != nil && !errors.Is(err, try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone = nil
	if _, err := c.StartGoal(t.Context(), good, client.WithTools(pack)); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("tools that ask nothing, of a server that is not there: %v", err)
	}
}
