package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/genai"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// appName is the application and the user for ADK, which keys its sessions by them.
// Each turn has its own session service.
const appName = "agentd"

// errStopped refuses what a turn still wants to append after it has failed.
var errStopped = errors.New("the turn has been stopped")

// turn is one run of a tree. ADK calls it from several goroutines, all of which have
// ended when the runner's iterator returns.
type turn struct {
	run    handle
	tree   *tree
	hist   *history
	limits Limits
	log    *slog.Logger

	observer observer // of the run's steps; nil for none

	agents *agentTracker // which agents are at work; changes are recorded with none of the mutexes below held

	injecting   sync.Mutex          // held while prompts become messages; taken before mu
	requests    *semaphore.Weighted // bytes of what models are sent at the same time; taken before both
	allRequests *requests           // those of all turns; taken after requests, before both

	mu            sync.Mutex // protects the fields below
	state         map[string]any
	writtenAt     map[string]int64 // where in the log the values of state are from
	modelCalls    int              // model calls made
	transfers     int              // transfers made
	callCounts    map[string]int   // model calls by "agent|branch"
	thoughtRounds map[string]int   // responses in a row with only thoughts, by "agent|branch"
	refusedRounds map[string]int   // responses in a row with only refused calls, by "agent|branch"
	visits        map[placed]int   // how often a loop was entered
	exited        map[placed]bool  // loops whose iteration called exit_loop
	refused       map[string]string
	goalSaid      map[string]*record.GoalSaid // what calls have said of the goal
	extras        map[string]*extras          // of results that are not appended yet, by call
	unappended    []*response                 // complete responses that are not appended yet
	unreported    []*response                 // ends of failed model calls, without content
	open          []*openResponse             // appended responses whose calls have no results yet
	noGain        map[summaryTry]bool         // prompts whose summary brought nothing
	cutShort      map[promptKey]bool          // prompts of which a summary was cut
	cut           map[roomKey]*cutCall        // model calls that a crash has cut off
	remotes       map[string]*remoteState     // sessions on backends, by agent
	provisioned   *lru.Cache[provisioned, string]
	said          map[string]said // the last text in each room of a call that runs
	stopped       bool
	cause         error // what stopped the turn, if it was no context

	// entry is the engine's context of the whole turn; set before anything runs.
	entry agent.InvocationContext
	// halt ends the run, also what waits in it; set before anything runs.
	halt context.CancelCauseFunc
	// called are the agents that others call as tools; set as the tree is built.
	called []agent.Agent

	// The events of this turn that the log held when the run began; the run consumes them
	// in order per agent and branch.
	logged       map[promptKey][]loggedEvent
	loggedEvents []loggedEvent             // all of them; nil once the run has begun
	responses    map[string]*stored        // by model call
	results      map[string]map[string]any // of calls about children; not changed once the run has begun
}

// noteResults notes the results of an event of the log.
func (t *turn) noteResults(s *stored) {
	if s.Content == nil {
		return
	}
	for _, p := range s.Content.Parts {
		if r := p.FunctionResponse; r != nil && slices.Contains(backgroundTools, r.Name) {
			t.results[r.ID] = r.Response
		}
	}
}

// summaryTry is a prompt to be summarized, before a call or after the prompt was
// refused.
type summaryTry struct {
	promptKey
	overflow bool
}

// placed is an agent in the room of a call; "" is outside of all.
type placed struct {
	n    *node
	room string
}

// roomKey is placed by the agent's name.
type roomKey struct{ agent, room string }

// openResponse is an appended response whose calls have no results yet.
type openResponse struct {
	author, branch string
	path           []string
	calls          []*genai.FunctionCall
	at             time.Time
}

// newTurn prepares a run. The events that the log holds of the turn become history one
// by one, when the tree reaches them again.
func newTurn(run handle, hist *history, r *Runner, logged openTurn) *turn {
	limits := *r.limits()
	t := &turn{
		run:           run,
		hist:          hist,
		limits:        limits,
		requests:      semaphore.NewWeighted(int64(limits.RequestBytes)),
		allRequests:   r.requests,
		log:           slog.New(slog.DiscardHandler),
		state:         run.State(),
		writtenAt:     map[string]int64{},
		callCounts:    map[string]int{},
		thoughtRounds: map[string]int{},
		refusedRounds: map[string]int{},
		visits:        map[placed]int{},
		exited:        map[placed]bool{},
		said:          map[string]said{},
		refused:       map[string]string{},
		extras:        map[string]*extras{},
		logged:        map[promptKey][]loggedEvent{},
		responses:     map[string]*stored{},
		results:       map[string]map[string]any{},
		noGain:        map[summaryTry]bool{},
		cutShort:      map[promptKey]bool{},
		cut:           logged.cut,
		remotes:       logged.remotes,
		provisioned:   r.provisioned,
		agents:        newAgentTracker(logged.agents),
	}
	if t.state == nil {
		t.state = map[string]any{}
	}
	t.loggedEvents = logged.events
	for _, l := range logged.events {
		if noGain := l.ev.CustomMetadata.Agentd.NoGain; noGain != "" {
			key := promptKey{l.ev.Author, l.ev.Branch}
			switch noGain {
			case summaryCut:
				t.cutShort[key] = true
			case noGainAsked:
				t.apply(l.seq, l.ev, l.size, nil) // it was tried, the run itself never comes to it
			default:
				t.noGain[summaryTry{key, noGain == noGainOverflow}] = true
			}
			t.modelCalls++
		}
		if l.ev.onlyUsage() && !l.ev.isBlank() {
			continue // of a failed call, which is repeated
		}
		if l.ev.CustomMetadata.Agentd.Injected != "" {
			t.apply(l.seq, l.ev, l.size, nil) // all model calls to come see it
			continue
		}
		if l.ev.CustomMetadata.Agentd.Compacted != nil {
			t.apply(l.seq, l.ev, l.size, nil) // the run itself never comes to it
			t.modelCalls++
			continue
		}
		key := promptKey{l.ev.Author, l.ev.Branch}
		t.logged[key] = append(t.logged[key], l)
		t.noteResults(l.ev)
		if llm := l.ev.CustomMetadata.Agentd.LLM; llm != "" {
			t.responses[llm] = l.ev
		}
	}
	return t
}

// observe sets the observer of a run that has not begun.
func (t *turn) observe(o observer) {
	t.observer = o
	t.agents.onChange = o.agentChanged
}

// runTurn runs a turn and leaves a valid history, whatever happens.
func (r *Runner) runTurn(ctx context.Context, run handle) error {
	key := cacheKey{run.Spec().Tenant, run.SessionID()}
	hist := r.cache.take(key, run.StartSeq())
	logged, err := hist.load(ctx, run)
	if ctx.Err() != nil && err != nil && !errors.Is(context.Cause(ctx), session.ErrSuspended) {
		// The turn was stopped before or while it was read: its history is still to be made valid.
		hist = newHistory()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limits().CloseTimeout)
		defer cancel()
		if logged, err = hist.load(late, run); err != nil {
			r.log.WarnContext(ctx, "history of a stopped turn is incomplete",
				"session", run.SessionID(), "turn", run.TurnID(), "error", err)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		return err
	}
	t := newTurn(run, hist, r, logged)
	t.log = r.log
	err = t.outcome(ctx, t.runTree(ctx, r))
	if cerr := t.close(ctx, err); cerr != nil {
		// A turn that is suspended, or goes on elsewhere, is closed by whoever ends it.
		if !session.IsMoved(cerr) && !errors.Is(context.Cause(ctx), session.ErrSuspended) {
			r.log.WarnContext(ctx, "history of a stopped turn is incomplete",
				"session", run.SessionID(), "turn", run.TurnID(), "error", cerr)
		}
		return err
	}
	r.closeRemotes(ctx, t, err)
	if errors.Is(err, session.ErrSuspended) {
		return err // the turn will be replayed, from a history without it
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && dropsFiles(e.Code) {
		return err // the history has to be read again, see history.dropFiles
	}
	hist.seal(run.StartSeq())
	r.cache.put(key, hist)
	return err
}

// runTree runs the tree until it has finished or something fails. When it returns,
// no goroutine of ADK's is left.
func (t *turn) runTree(ctx context.Context, r *Runner) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.tree, err = r.planFor(t.run.Spec(), t.run.Keys()); err != nil {
		return err
	}
	t.applyLoggedState()
	t.hist.prune(func(name string) bool { return t.tree.byName[name] != nil })
	root, err := t.build()
	if err != nil {
		return fmt.Errorf("build the agent tree: %w", err)
	}
	cfg := runner.Config{AppName: appName, Agent: root, SessionService: &journal{t: t}}
	if r.configHook != nil {
		r.configHook(t, &cfg)
	}
	rn, err := runner.New(cfg)
	if err != nil {
		return fmt.Errorf("build the agent tree: %w", err)
	}
	ctx, t.halt = context.WithCancelCause(ctx)
	defer t.halt(nil)
	// On ADK's own goroutines panics are contained by the models, tools and loops
	// that we put there.
	defer func() {
		if p := recover(); p != nil {
			err = panicError("the agent engine", p)
		}
	}()
	ctx = platform.WithTaskRunner(platform.WithUUIDProvider(ctx, uuids(t.run.TurnID())), runTasks)
	ctx = tracecontext.Untraced(ctx)
	for _, err := range rn.Run(ctx, appName, t.run.SessionID(), nil, agent.RunConfig{}) {
		if err != nil {
			return err // continuing would run the next agent
		}
	}
	if t.hasUnreached() {
		return diverged("the tree has finished, but the log holds events it did not reach")
	}
	return nil
}

// runTasks runs the tool calls of a response at the same time, one of them on ADK's own goroutine: most responses have
// one call, and a turn that waits for it waits on one goroutine less.
func runTasks(ctx context.Context, tasks []func(context.Context)) {
	last := len(tasks) - 1
	var others sync.WaitGroup
	defer others.Wait()
	for _, task := range tasks[:last] {
		others.Go(func() { task(ctx) })
	}
	tasks[last](ctx)
}

// uuids provides ADK with ids. The first one it asks for becomes the invocation
// id, after "e-": the turn's id, unless that begins otherwise.
func uuids(turnID string) func() string {
	var once sync.Once
	return func() string {
		id := ""
		once.Do(func() { id = strings.TrimPrefix(turnID, "e-") })
		if id == "" {
			id = uuid.NewString()
		}
		return id
	}
}

// outcome decides what a run's error is: the context's cause first, then what
// stopped the turn, since after that errors are only its echo.
func (t *turn) outcome(ctx context.Context, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && !t.stopped {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.cause != nil {
		return t.cause
	}
	if err == nil {
		return errStopped
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	return fmt.Errorf("run the agent tree: %w", err)
}

// stop makes the turn fail: nothing more is appended until it is closed. The
// first error that is no context's counts.
func (t *turn) stop(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.cause == nil && !isContextError(err) {
		t.cause = err
	}
}

// hasUnreached reports whether the log holds events that the run has not reached.
func (t *turn) hasUnreached() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range t.logged {
		if slices.ContainsFunc(queue, func(l loggedEvent) bool { return !l.ev.isBlank() }) {
			return true
		}
	}
	return false
}

// refusal returns why a call is not run, or "".
func (t *turn) refusal(callID string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[callID]
}

// enter counts a visit of a loop, from 0.
func (t *turn) enter(n placed) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.visits[n]
	t.visits[n] = v + 1
	return v
}

// setExit marks whether the current iteration of a loop is its last.
func (t *turn) setExit(n placed, exit bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exited[n] = exit
}

// hasExited reports whether exit_loop was called in the current iteration.
func (t *turn) hasExited(n placed) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exited[n]
}

// applyLoggedState applies the state of all events that the log holds. A live call of a
// resumed turn comes after them, in whatever order the agents reach them.
func (t *turn) applyLoggedState() {
	for _, l := range t.loggedEvents {
		temp := t.tempOf(l.ev)
		t.mu.Lock()
		t.writeLocked(l.seq, temp, l.ev.Actions.StateDelta)
		t.mu.Unlock()
	}
	t.loggedEvents = nil
}

// writeState sets keys, and removes those whose value is null.
func writeState(state, delta map[string]any) {
	for k, v := range delta {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// writeLocked applies the state of the record seq.
func (t *turn) writeLocked(seq int64, deltas ...map[string]any) {
	for _, delta := range deltas {
		for k, v := range delta {
			// A turn that runs again meets events in another order than the log's.
			if seq < t.writtenAt[k] {
				continue
			}
			if t.writtenAt[k] = seq; v == nil {
				delete(t.state, k)
			} else {
				t.state[k] = v
			}
		}
	}
}

// apply adds an event of the log to the history and the state. temp holds its keys of
// scope temp, which the log does not hold.
func (t *turn) apply(seq int64, s *stored, size int, temp map[string]any) {
	t.hist.addStored(seq, s, size)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writeLocked(seq, temp, s.Actions.StateDelta)
	m := &s.CustomMetadata.Agentd
	if m.LLM != "" {
		t.unappended = slices.DeleteFunc(t.unappended, func(a *response) bool { return a.meta.LLM == m.LLM })
	}
	t.noteRemoteLocked(seq, s)
	t.noteSaidLocked(seq, s)
	if s.Content == nil {
		return
	}
	o := &openResponse{author: s.Author, branch: s.Branch, path: m.Path, at: s.Timestamp}
	for _, p := range s.Content.Parts {
		if p.FunctionCall != nil {
			o.calls = append(o.calls, p.FunctionCall)
		}
		if r := p.FunctionResponse; r != nil {
			delete(t.refused, r.ID)
			delete(t.extras, r.ID)
			for _, open := range t.open {
				open.calls = slices.DeleteFunc(open.calls, func(c *genai.FunctionCall) bool { return c.ID == r.ID })
			}
		}
	}
	t.open = slices.DeleteFunc(t.open, func(open *openResponse) bool { return len(open.calls) == 0 })
	if len(o.calls) > 0 {
		t.open = append(t.open, o)
	}
}
