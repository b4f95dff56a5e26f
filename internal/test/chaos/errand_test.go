package chaos

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// errand is what a goal is to come to. Its turns are numbered from 1, those of a goal that goes on with it too.
type errand struct {
	doneAt  int   // the turn from which on an agent reports that it is done; 0: none does
	waitsAt int   // the turn that has the next one begin a second later; 0: none
	limit   int32 // turns; 0: no limit
	resumes bool  // without a limit, when it has been reached
	aborts  bool  // with the first turn that fails; others try again
	// steers is what is done while a turn's first tool runs: inject or pause. What was paused is resumed.
	steers map[int][]string
	// busy is that somebody injects, pauses and resumes at any time; stops is that he stops it in the end.
	busy, stops bool
}

// wakeIn is how long a turn has the next one wait.
const wakeIn = time.Second

// says are the calls of the goal's tools in a turn.
func (e *errand) says(s step) []string {
	switch turn := s.turn / tries; {
	case e.doneAt > 0 && turn >= e.doneAt:
		return []string{fmt.Sprintf(`report_done {"detail":%q,"state":"done"}`, detailOf(turn))}
	case turn == e.waitsAt:
		return []string{fmt.Sprintf(`schedule_next_turn {"next_prompt":%q,"wake_in_sec":%d}`,
			goalPrompt(s.session, "wake up"), int(wakeIn.Seconds()))}
	}
	return nil
}

func detailOf(turn int) string { return fmt.Sprint("done in turn ", turn) }

// goalPrompt is a prompt of a goal: they are counted to know a turn by.
func goalPrompt(session int, what string) string {
	return fmt.Sprintf("goal of session %d: %s", session, what)
}

var turnInRequest = regexp.MustCompile(`work for \w+ in turn (\d+)`)

// turnOfGoal is the number of the turn in which a request is made: it has the prompts of all turns, or is that of an
// agent which is called.
func turnOfGoal(req *chatRequest, session int) int {
	n := 0
	for _, m := range req.Messages {
		if m.Role != "user" {
			continue
		}
		if called := turnInRequest.FindStringSubmatch(m.Content.text); called != nil {
			turn, _ := strconv.Atoi(called[1]) // digits
			return turn
		}
		for line := range strings.Lines(m.Content.text) {
			if strings.HasPrefix(line, goalPrompt(session, "")) { // else it tells what another agent has called
				n++
			}
		}
	}
	return n * tries
}

// turnMark is where the instruction of an agent says its turn.
func (p *plan) turnMark() string {
	if p.errand != nil {
		return "goal"
	}
	return "{turn}"
}

// withErrand makes a shape of a tree whose goal has an errand.
func withErrand(name string, root *plan, e *errand) shape {
	for _, p := range root.all() {
		p.errand = e
	}
	return shape{name: name, root: root, turns: 1, errand: e}
}

func working(rounds int) *plan { return &plan{name: "worker", rounds: rounds, works: true} }

// errands are goals whose story is always the same.
func errands() []shape {
	boss := working(1)
	boss.calls = []*plan{one("helper", 1)}
	return []shape{
		withErrand("goal", boss, &errand{doneAt: 3, steers: map[int][]string{1: {"inject", "inject"}, 2: {"pause", "inject"}}}),
		withErrand("goal that goes on", group("root", sequence, one("first", 0), working(1)),
			&errand{doneAt: 3, waitsAt: 1, limit: 2, resumes: true}),
	}
}

// randomErrand returns a goal of any kind.
func randomErrand(rng *rand.Rand) shape {
	boss := working(1 + rng.IntN(2))
	switch rng.IntN(4) {
	case 0:
		boss.calls = []*plan{one("helper", 1), group("pair", parallel, one("ann", 0), one("bob", 1))}
	case 1:
		boss = group("root", sequence, one("first", rng.IntN(2)), boss)
	case 2:
		boss = group("root", parallel, one("side", 1), boss)
	}
	e := &errand{busy: true, aborts: rng.IntN(5) == 0, waitsAt: rng.IntN(3)}
	switch rng.IntN(5) {
	case 0:
		e.limit = 1 + int32(rng.IntN(3))
	case 1:
		e.limit, e.resumes, e.doneAt, e.aborts = 2, true, 3, false
	case 2:
		e.stops, e.aborts = true, false
	default:
		e.doneAt = 1 + rng.IntN(5)
	}
	return withErrand("random goal", boss, e)
}

// pursuit is how a goal is started, served and steered.
type pursuit struct {
	t     *talk
	e     *errand
	goals agentdv1connect.GoalServiceClient

	mu       sync.Mutex // protects the fields below
	tried    map[string]bool
	injected map[string]bool // messages whose injection was confirmed
	paused   int             // pauses that were confirmed
	stopped  bool            // that was asked for
	ended    []*agentdv1.Goal
	counted  int // of ended that are in the numbers of the test
}

func (w *world) newPursuit(t *talk) *pursuit {
	auth := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if w.key != "" {
				req.Header().Set("Authorization", "Bearer "+w.key)
			}
			return next(ctx, req)
		}
	})
	var route func() string
	if w.route != nil {
		route = w.route()
	}
	return &pursuit{
		t: t, e: t.shape.errand, tried: map[string]bool{}, injected: map[string]bool{},
		goals: agentdv1connect.NewGoalServiceClient(w.lines.phone(route).client(), w.daemonURL(), connect.WithInterceptors(auth)),
	}
}

// daemonURL is where a service is that no front has.
func (w *world) daemonURL() string {
	if w.daemon != "" {
		return w.daemon
	}
	return w.url
}

// ask makes a request until it is answered. What is refused is returned: whoever asks twice may be too late.
func ask[Req, Resp any](
	ctx context.Context, p *pursuit, call func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), m *Req,
) (*Resp, error) {
	for {
		one, cancel := context.WithTimeout(ctx, 20*time.Second)
		resp, err := call(one, connect.NewRequest(m))
		cancel()
		switch connect.CodeOf(err) {
		case connect.CodeFailedPrecondition:
			return nil, err
		case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeInternal:
			if err == nil {
				return resp.Msg, nil
			}
		default:
			p.t.w.faultf("session %d (%s, %s): %T: %v", p.t.number, p.t.id, p.t.shape.name, m, err)
			return nil, err
		}
		if !rest(ctx, 5*time.Millisecond) {
			p.t.w.faultf("session %d (%s, %s): %T: %v", p.t.number, p.t.id, p.t.shape.name, m, err)
			return nil, err
		}
	}
}

// request is what starts the goal, and goes on with it.
func (p *pursuit) request(again bool) *agentdv1.StartGoalRequest {
	number := p.t.number
	req := &agentdv1.StartGoalRequest{
		Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: p.t.shape.root.agent(number), IdempotencyKey: fmt.Sprintf("goal %d %v", number, again)},
		Goal:    goalPrompt(number, "begin"), ContinuationPrompt: goalPrompt(number, "go on"),
		Schedule: &agentdv1.StartGoalRequest_Schedule{}, MaxTurns: new(p.e.limit),
		OnFailure: agentdv1.StartGoalRequest_ON_FAILURE_RETRY,
	}
	for _, name := range []string{"look", "fetch"} {
		req.Execute.Tools = append(req.Execute.Tools, &agentdv1.Tool{
			Name: name, Description: "the tool " + name,
			InputSchema: new(`{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`),
		})
	}
	if p.e.aborts {
		req.OnFailure = agentdv1.StartGoalRequest_ON_FAILURE_ABORT
	}
	if again {
		req.Execute.SessionId, req.MaxTurns = new(p.t.id), new(int32(0))
	}
	return req
}

// run starts the goal, serves its tools and stays until it has ended. It does nothing for one that has.
func (p *pursuit) run(ctx context.Context, _ func() bool) {
	t := p.t
	if t.id != "" {
		return
	}
	started, err := ask(ctx, p, p.goals.Start, p.request(false))
	if err != nil {
		t.w.faultf("session %d: its goal does not start: %v", t.number, err)
		return
	}
	t.mu.Lock()
	t.id = started.GetGoal().GetSessionId()
	t.mu.Unlock()
	var caller sync.WaitGroup
	defer caller.Wait()
	over := make(chan struct{})
	defer close(over)
	if p.e.busy {
		caller.Go(func() { p.disturb(ctx, over) })
	}
	for resumed := false; ctx.Err() == nil; {
		if t.hasDied() {
			t.newClient()
		}
		last := t.events.last()
		t.chain, t.began = t.events.from(last), ""
		r := t.follow(ctx, func(ctx context.Context) iter.Seq2[*client.Event, error] {
			return t.c.Attach(ctx, t.id, client.WithAfterSeq(last))
		})
		switch r {
		case completed, stopped, failed:
			t.mu.Lock()
			t.outcome = append(t.outcome, driven{id: t.began, result: r})
			t.mu.Unlock()
			continue
		case nothing:
		default:
			rest(ctx, time.Millisecond)
			continue
		}
		got, err := ask(ctx, p, p.goals.Get, &agentdv1.GetGoalRequest{SessionId: t.id})
		if err != nil {
			break
		}
		switch g := got.GetGoal(); {
		case g.GetEndTime() != nil:
			p.end(g)
			if !p.e.resumes || resumed || g.GetReason() != agentdv1.GoalReason_GOAL_REASON_MAX_TURNS_EXCEEDED {
				return
			}
			resumed = true
			if _, err := ask(ctx, p, p.goals.Resume, &agentdv1.ResumeGoalRequest{Goal: p.request(true)}); err != nil {
				t.w.faultf("session %d (%s): its goal does not go on: %v", t.number, t.id, err)
			}
		case !p.e.busy && g.GetStatus() == agentdv1.GoalStatus_GOAL_STATUS_PAUSED && g.GetTurnId() == "":
			p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_RESUME)
		default:
			rest(ctx, 5*time.Millisecond)
		}
	}
	if ctx.Err() != nil {
		t.w.faultf("session %d (%s, %s): its goal has not ended in time", t.number, t.id, t.shape.name)
	}
}

func (p *pursuit) end(g *agentdv1.Goal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, g)
}

// disturb steers the goal at any time until it is over, as a second caller does.
func (p *pursuit) disturb(ctx context.Context, over <-chan struct{}) {
	isOver := func() bool {
		select {
		case <-over:
			return true
		default:
			return ctx.Err() != nil
		}
	}
	for i := range 2 + rand.IntN(5) {
		if !rest(ctx, time.Duration(rand.IntN(150))*time.Millisecond) || isOver() {
			break
		}
		switch rand.IntN(4) {
		case 0:
			if p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_PAUSE) {
				p.inject(ctx, fmt.Sprint("paused ", i))
				rest(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
			}
		case 1:
			for n := range rand.IntN(20) {
				p.inject(ctx, fmt.Sprint("burst ", i, " ", n))
			}
		default:
			p.inject(ctx, fmt.Sprint("note ", i))
		}
		p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_RESUME)
	}
	if p.e.stops {
		p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_STOP)
	}
	// A request that got no answer may be late: a pause, of all things.
	for !isOver() {
		p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_RESUME)
		rest(ctx, 100*time.Millisecond)
	}
}

// inject has the goal read a message.
func (p *pursuit) inject(ctx context.Context, what string) {
	text := fmt.Sprintf("message %s of session %d", what, p.t.number)
	p.mu.Lock()
	p.tried[text] = true
	p.mu.Unlock()
	for range 2 { // the second one under the same key injects nothing
		id, _ := p.t.sessionID()
		_, err := ask(ctx, p, p.goals.Inject, &agentdv1.InjectRequest{SessionId: id, Text: text, IdempotencyKey: what})
		if err != nil {
			return
		}
		p.mu.Lock()
		p.injected[text] = true
		p.mu.Unlock()
	}
}

// control reports whether the goal took it.
func (p *pursuit) control(ctx context.Context, action agentdv1.GoalAction) bool {
	p.mu.Lock()
	p.stopped = p.stopped || action == agentdv1.GoalAction_GOAL_ACTION_STOP
	p.mu.Unlock()
	id, _ := p.t.sessionID()
	_, err := ask(ctx, p, p.goals.Control, &agentdv1.ControlGoalRequest{SessionId: id, Action: action})
	if err == nil && action == agentdv1.GoalAction_GOAL_ACTION_PAUSE {
		p.mu.Lock()
		p.paused++
		p.mu.Unlock()
	}
	return err == nil
}

// steer does what the errand says of the turn whose first tool runs, and reports false if its client has gone.
func (p *pursuit) steer(ctx context.Context, key string) bool {
	parts := strings.Split(key, ".") // see step.toolKey
	if len(parts) != 5 || parts[2] != "worker" || !slices.Equal(parts[3:], []string{"0", "0"}) {
		return true
	}
	turn, _ := strconv.Atoi(parts[1]) // digits
	for i, what := range p.e.steers[turn/tries] {
		if what == "pause" {
			p.control(ctx, agentdv1.GoalAction_GOAL_ACTION_PAUSE)
		} else {
			p.inject(ctx, fmt.Sprint("turn ", turn/tries, " ", i))
		}
	}
	return ctx.Err() == nil
}
