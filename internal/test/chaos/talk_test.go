package chaos

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/session/record"
)

// world is what the sessions of a test share.
type world struct {
	t        testing.TB
	url      string
	route    func() func() string // of a client's connections; nil: all lead to url
	key      string               // of all clients; "" of an open daemon
	daemon   string               // where what no front has is; "": at url
	fronts   []string             // serve every other session's Run by SessionService, unless there are none
	lines    *lines
	provider *provider
	shared   *shared // the daemons, if there are several
	slow     bool    // tools and watchers take their time

	mu       sync.Mutex // protects problems
	problems []string   // what should not have happened to a client
}

func (w *world) faultf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 100 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// execution is one run of a tool's handler.
type execution struct {
	call, key string
	client    int // which client of the session it was
	from, to  time.Time
	final     bool // it returned an answer that stands
	output    string
	failed    bool // the answer is an error
}

// result is how a turn ended for the one who drives it.
type result int

const (
	completed result = iota
	stopped          // it was ended or interrupted
	failed           // the model was not available
	gone             // the stream or the client is gone, the turn is not over
	nothing          // there was nothing to follow
	busy             // another turn runs
)

// driven is a turn as its driver knows it.
type driven struct {
	turn   int
	id     string
	result result
}

// talk is a session that is driven by a client, or by several one after the
// other. One goroutine drives it.
type talk struct {
	w       *world
	number  int
	url     string // where its clients and watchers go
	routes  bool   // each by a route of its own
	seed    uint64 // of what its models say
	shape   shape
	journal string // folder of its clients' answers; "" without

	events   chains // of the drivers
	recorder recorder
	watchers []*watcher

	mu      sync.Mutex // protects the fields below
	id      string     // of the session; "" while unknown
	over    bool       // no more turns come
	phone   *phone
	cancel  context.CancelFunc // of the client that drives
	died    map[int]bool       // clients whose process has died
	client  int                // which client drives
	runs    []execution
	outcome []driven

	// The fields below are the driver's goroutine's.
	c     *client.Client
	turn  int
	began string // id of the turn that is driven; "" while it is unknown
	chain *chain

	counted, judged, asked int // records, turns and model calls that are in the numbers of the test

	pursuit *pursuit // of its goal, nil if it has none
}

// credential is what clients prove with who they are.
func (w *world) credential() []client.Option {
	if w.key == "" {
		return nil
	}
	return []client.Option{client.WithAPIKey(w.key)}
}

func (w *world) newTalk(sh shape, seed uint64, journal string) *talk {
	number, url := w.provider.serve(script{seed, sh.root, sh.files}), w.url
	if n := len(w.fronts); n > 0 && number%2 == 1 {
		url = w.fronts[number/2%n]
	}
	t := &talk{
		w: w, number: number, url: url, routes: w.route != nil && url == w.url, seed: seed, shape: sh, journal: journal,
		events: chains{who: "driver", events: true}, recorder: recorder{chains: chains{who: "driver's stream"}},
		died: map[int]bool{},
	}
	if sh.errand != nil {
		t.pursuit = w.newPursuit(t)
	}
	t.newClient()
	return t
}

// newPhone is for another client of the session.
func (t *talk) newPhone() *phone {
	if t.routes {
		return t.w.lines.phone(t.w.route())
	}
	return t.w.lines.phone(nil)
}

// newClient replaces the client, as a new process would.
func (t *talk) newClient() {
	phone := t.newPhone()
	opts := []client.Option{
		client.WithHTTPClient(phone.client()),
		client.WithReconnect(client.ReconnectPolicy{Base: 4 * time.Millisecond, Cap: 150 * time.Millisecond, MaxElapsed: time.Minute, Dial: true}),
		client.WithHeartbeatInterval(2 * time.Second),
		client.WithGrace(2 * time.Second),
		recording(&t.recorder),
	}
	opts = append(opts, t.w.credential()...)
	if t.journal != "" {
		opts = append(opts, client.WithToolJournal(t.journal))
	}
	t.c = client.New(t.url, opts...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phone = phone
	t.client++
	t.addTools(t.client)
}

type keyed struct {
	Key string `json:"key"`
}

type iteration struct {
	Agent     string `json:"agent"`
	Iteration int    `json:"iteration"`
	Most      int    `json:"max_iterations"`
}

func (t *talk) addTools(number int) {
	var errs []error
	for _, name := range []string{"look", "fetch"} {
		errs = append(errs, client.AddTool(t.c, name, "the tool "+name, func(ctx context.Context, in keyed) (any, error) {
			if toolFails(in.Key) {
				return t.execute(ctx, number, in.Key, "", errors.New(toolError(in.Key)))
			}
			out, err := t.execute(ctx, number, in.Key, toolOutput(in.Key), nil)
			if err == nil && t.shape.files {
				out = client.ToolOutput{Output: out, Parts: []client.Part{client.Inline("image/png", picture(in.Key))}}
			}
			return out, err
		}))
	}
	if t.shape.asks {
		errs = append(errs, client.AddTool(t.c, "loop_continue", "asked after each iteration", func(ctx context.Context, in iteration) (any, error) {
			p := t.shape.root.find(in.Agent)
			if p == nil || p.most != in.Most {
				return nil, fmt.Errorf("no loop %+v", in)
			}
			return t.execute(ctx, number, "", fmt.Sprintf(`{"continue":%v}`, in.Iteration < p.stopAt()), nil)
		}))
	}
	if err := errors.Join(errs...); err != nil {
		t.w.t.Error(err)
	}
}

// execute is the body of every handler.
func (t *talk) execute(ctx context.Context, number int, key, output string, fails error) (any, error) {
	run := execution{call: client.CallFrom(ctx).ID(), key: key, client: number, from: time.Now(), output: output, failed: fails != nil}
	wait := time.Duration(0)
	if t.w.slow {
		wait = time.Duration(rand.IntN(20)) * time.Millisecond
	}
	run.final = rest(ctx, wait)
	if t.pursuit != nil && run.final {
		run.final = t.pursuit.steer(ctx, key)
	}
	run.to = time.Now()
	t.mu.Lock()
	t.runs = append(t.runs, run)
	t.mu.Unlock()
	if !run.final {
		return nil, context.Cause(ctx)
	}
	if fails != nil {
		return nil, fails
	}
	return output, nil
}

// die ends the client that drives as if its process had been killed. It reports
// false when there is none, or none that another one could follow.
func (t *talk) die() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel == nil || t.journal == "" || t.id == "" || t.died[t.client] {
		return false
	}
	t.died[t.client] = true
	t.phone.die()
	t.cancel()
	return true
}

func (t *talk) sessionID() (id string, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id, t.over
}

// drive has the turns of the session, and more while the last one failed. calm
// tells when no more faults come: then one more turn has to go well. It reports
// false when nobody can know which session it was: the answer to the very first
// request was lost.
func (t *talk) drive(ctx context.Context, calm func() bool) (known bool) {
	defer func() {
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}()
	if t.pursuit != nil {
		t.pursuit.run(ctx, calm)
		return true
	}
	last := failed
	for n := 0; ctx.Err() == nil && (n < t.shape.turns && !calm() || last != completed); n++ {
		quiet := calm()
		if last = t.next(ctx); last == gone {
			return false
		}
		if quiet && last != completed {
			t.w.faultf("session %d (%s, %s), turn %d: no fault came and it ended as %v", t.number, t.id, t.shape.name, t.turn, last)
			return true
		}
	}
	if ctx.Err() != nil {
		t.w.faultf("session %d (%s, %s), turn %d is not over in time", t.number, t.id, t.shape.name, t.turn)
	}
	return true
}

// next has one turn.
func (t *talk) next(ctx context.Context) result {
	t.turn = (t.turn/tries + 1) * tries
	r := t.begin(ctx)
	for ctx.Err() == nil {
		switch r {
		case completed, stopped, failed:
			t.mu.Lock()
			t.outcome = append(t.outcome, driven{turn: t.turn, id: t.began, result: r})
			t.mu.Unlock()
			return r
		case nothing: // the request was lost, or the turn that was in the way is over
			r = t.begin(ctx)
		default:
			if t.id == "" {
				return gone
			}
			if t.hasDied() {
				t.newClient()
			}
			rest(ctx, time.Millisecond)
			last := t.events.last()
			t.chain = t.events.from(last)
			r = t.follow(ctx, func(ctx context.Context) iter.Seq2[*client.Event, error] {
				return t.c.Attach(ctx, t.id, client.WithAfterSeq(last))
			})
		}
	}
	return nothing
}

func (t *talk) hasDied() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.died[t.client]
}

// begin asks for a turn. What was asked for before and got no answer may have
// begun, or begin yet: each attempt has a number of its own.
func (t *talk) begin(ctx context.Context) result {
	t.turn++
	t.began = ""
	opts := []client.RunOption{client.WithInitialState(map[string]int{"turn": t.turn})}
	tree := t.shape.root.agent(t.number)
	if t.id != "" {
		opts = append(opts, client.WithSessionID(t.id))
	}
	if t.shape.raw {
		opts = append(opts, client.WithRawPayloads())
	}
	if t.shape.files {
		opts = append(opts, client.WithParts(client.Inline("image/png", picture(fmt.Sprint(t.turn)))))
	}
	t.chain = t.events.from(-1)
	return t.follow(ctx, func(ctx context.Context) iter.Seq2[*client.Event, error] {
		return t.c.Run(ctx, tree, fmt.Sprintf("turn %d of session %d", t.turn, t.number), opts...)
	})
}

// follow takes in the events of a turn to its end, or to the end of the client.
func (t *talk) follow(ctx context.Context, open func(context.Context) iter.Seq2[*client.Event, error]) result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	t.cancel = cancel
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.cancel = nil
		t.mu.Unlock()
	}()
	r := nothing
	for e, err := range open(ctx) {
		if err != nil {
			return t.judge(err)
		}
		switch e.Data.(type) {
		case *client.Error, *client.ToolCallAnswered, *client.ToolCallCanceled:
			continue // of the client's own doing
		case *client.ConnectionLost, *client.ConnectionRestored, *client.ConnectionAbandoned:
			continue
		case *client.GoalEvent: // it may be told with a turn that is over
			t.events.add(t.chain, seenOfEvent(e))
			continue
		}
		t.events.add(t.chain, seenOfEvent(e))
		if e.TurnID != "" {
			t.began = e.TurnID
		}
		r = gone
		switch {
		case as[*client.TurnStarted](e) != nil:
			t.mu.Lock()
			t.id = e.SessionID
			t.mu.Unlock()
		case e.End != nil && e.End.Completed:
			r = completed
		case e.End != nil:
			r = stopped
		}
	}
	return r
}

// judge tells what an error means for the turn.
func (t *talk) judge(err error) result {
	switch {
	case errors.Is(err, client.ErrModelUnavailable):
		// Of the end of a failed turn a client tells by the error alone.
		t.events.add(t.events.from(t.recorder.last()), seen{what: sawOther})
		return failed
	case errors.Is(err, client.ErrSessionBusy):
		return busy
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, context.Canceled):
		return gone
	}
	t.w.faultf("session %d (%s, %s), turn %d: %v", t.number, t.id, t.shape.name, t.turn, err)
	return failed
}

func recording(r *recorder) client.Option {
	return client.WithConnectOptions(connect.WithInterceptors(r))
}

// watcher follows a session without taking part.
type watcher struct {
	t        *talk
	restless bool // comes and goes
	events   chains
	recorder recorder
}

func (t *talk) newWatcher(who string, restless bool) *watcher {
	w := &watcher{t: t, restless: restless, events: chains{who: who, events: true}, recorder: recorder{chains: chains{who: who + "'s stream"}}}
	t.watchers = append(t.watchers, w)
	return w
}

// watch follows the session from its beginning until it is over.
func (w *watcher) watch(ctx context.Context) {
	c := client.New(w.t.url, append(w.t.w.credential(), client.WithHTTPClient(w.t.newPhone().client()), recording(&w.recorder),
		client.WithReconnect(client.ReconnectPolicy{Base: 4 * time.Millisecond, Cap: 150 * time.Millisecond, MaxElapsed: time.Minute}))...)
	defer c.CloseIdleConnections()
	last := int64(0)
	for ctx.Err() == nil {
		id, over := w.t.sessionID()
		if id == "" {
			if over || !rest(ctx, 3*time.Millisecond) {
				return
			}
			continue
		}
		chain := w.events.from(last)
		patience := -1
		if w.restless {
			patience = rand.IntN(120)
		}
		some, left := false, false
		for e, err := range c.Attach(ctx, id, client.Observe(), client.WithAfterSeq(last)) {
			if errors.Is(err, client.ErrModelUnavailable) {
				last = w.recorder.last() // the end of a failed turn
				some = true
				break
			}
			if err != nil {
				if !errors.Is(err, client.ErrUnavailable) && ctx.Err() == nil {
					w.t.w.faultf("session %d (%s): %s: %v", w.t.number, id, w.events.who, err)
				}
				left = true
				break
			}
			some = true
			w.events.add(chain, seenOfEvent(e))
			last = max(last, e.Seq)
			if patience--; patience == 0 {
				left = true
				break
			}
		}
		if over && !some && !left {
			return
		}
		rest(ctx, time.Duration(1+rand.IntN(20))*time.Millisecond)
	}
}

// reopen lets a session have more turns that was over.
func (t *talk) reopen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = false
}

// evidence is all that is known about the session, once nothing of it runs.
func (t *talk) evidence(records []record.Record) evidence {
	e := evidence{
		seed: t.seed, number: t.number, id: t.id, shape: t.shape, records: records,
		attempts: t.w.provider.of(t.number), results: t.w.provider.resultSeen,
		downs: t.w.provider.downsOf(t.number), sums: t.w.provider.sumsOf(t.number), bills: t.w.provider.billsOf(t.number),
		shared: t.w.shared, runs: t.runs, died: t.died, outcome: t.outcome,
		chains: slices.Concat(t.events.all, t.recorder.all),
	}
	for _, w := range t.watchers {
		e.chains = slices.Concat(e.chains, w.events.all, w.recorder.all)
	}
	e.pursuit = t.pursuit
	return e
}

func (w *world) takeProblems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.problems
	w.problems = nil
	return out
}
