package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/probation"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/internal/readers"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/storage"
	"github.com/apzuk3/agentd/session/internal/table"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Manager holds the sessions of one server and is their only writer. Its methods may be called from any
// goroutine.
type Manager struct {
	lists  *index.Lists
	store  *storage.Store
	runner Runner
	agent  keptAgent
	log    *slog.Logger
	turns  sync.WaitGroup // the goroutines that run turns
	room   chan struct{}  // holds one signal: there is room for another turn

	probation *probation.Probation[*live.Session]
	readers   readers.Readers[*SessionWatcher]
	sessions  *table.Table[*live.Session]
	owners    Owners                                         // nil: all sessions are this server's
	front     bool                                           // see Config.Front
	bus       hints                                          // nil: none
	reach     func(ctx context.Context, address string) bool // see Config.Reach
	below     Below                                          // see Config.Below
	childless func() string                                  // see Config.ChildrenWaitFor

	noBackground bool          // see Config.NoBackgroundAgents
	places       *share.Places // of turns; nil: this server has no others
	exclusive    lock.Keyed[work]
	follows      follows
	endHints     func() // of serveHints

	mu        sync.Mutex // protects the fields below
	running   map[*live.Driver]struct{}
	runningOf map[string]int         // how many of them are of each tenant
	starting  map[string]int         // turns about to start, by tenant
	cancels   map[string]*time.Timer // by session, see cancelLater
	wakes     map[string]*wake       // by session, see wakeLater
	draining  bool                   // no new turns
	stopping  bool                   // turns are suspended
	stops     stops
	// With Owners: references to sessions that still write, and sessions that could not be let go.
	lingering  []*sessionRef
	unreleased map[string]unreleased
	observed   map[string]struct{}      // sessions of this server whose turns an observer may keep suspended
	yielding   map[string]*live.Session // those that are to be let go because another server wants them
	given      map[string]handed        // those that were, for a while
	endSweep   context.CancelFunc
}

// NewManager returns a manager with no session in memory. A session is read from the store when a client
// asks for it.
func NewManager(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	m := &Manager{
		runner:    cfg.Runner,
		agent:     cfg.Agent,
		log:       cfg.Logger,
		probation: probation.New[*live.Session](cfg.Limits.QuarantineAfter),
		sessions:  newTable(cfg.Limits, cfg.Owners != nil),
		owners:    cfg.Owners,
		front:     cfg.Front,
		bus:       cfg.Bus,
		reach:     cfg.Reach,
		below:     cfg.Below,
		childless: cfg.ChildrenWaitFor,

		noBackground: cfg.NoBackgroundAgents,
		places:       cfg.Places,
		unreleased:   map[string]unreleased{},
		observed:     map[string]struct{}{},
		yielding:     map[string]*live.Session{},
		given:        map[string]handed{},
		running:      map[*live.Driver]struct{}{},
		runningOf:    map[string]int{},
		starting:     map[string]int{},
		cancels:      map[string]*time.Timer{},
		wakes:        map[string]*wake{},
		stops:        stops{cut: map[*live.Driver]string{}},
		room:         make(chan struct{}, 1),
	}
	m.store = storage.New(storage.Config{
		Store: cfg.Store, Logger: cfg.Logger, Now: cfg.Now, Limits: cfg.Limits, OnToolResult: cfg.OnToolResult,
		Slices: cfg.Slices,
		OnFatal: func(err error) {
			m.suspendAll()
			if cfg.OnFatal != nil {
				cfg.OnFatal(err)
			}
		},
	})
	m.endHints = m.serveHints()
	m.lists = &index.Lists{Store: m.store.Store, Live: inMemory{m}, Retention: cfg.Limits.Retention, Logger: cfg.Logger}
	return m, nil
}

// limits returns the limits as they are now.
func (m *Manager) limits() *limits.Limits { return m.store.Limits() }

// SetLimits changes the limits of turns to come, and what is checked later of running ones; timers that
// run keep their times. What NewManager has derived from the limits stays: MaxIdleSessions, Retention in
// lists, QuarantineAfter, StorePatience and those of shared keys. An invalid l changes nothing.
func (m *Manager) SetLimits(l limits.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	m.store.SetLimits(l.WithDefaults())
	return nil
}

// signalRoom signals that there is room for another turn.
func (m *Manager) signalRoom() {
	select {
	case m.room <- struct{}{}:
	default:
	}
}

// Ready reports whether turns can be started and recorded.
func (m *Manager) Ready(ctx context.Context) error {
	return m.store.Ready(ctx)
}

// Start checks the request, records the turn and runs it in the background: at once or, if OnBusy says
// so, after other turns. The turn does not depend on ctx. An error that a client may see is of type
// *fault.Error. After an error nothing is recorded, except for UNAVAILABLE, when the outcome of the write
// stayed unknown for Limits.StorePatience. A request whose key has already started a turn returns
// *Repeated.
func (m *Manager) Start(ctx context.Context, req Request) (*Turn, error) {
	req.by, req.trace = principal.Of(ctx), tracecontext.In(ctx)
	req.StateField = cmp.Or(req.StateField, "initial_state")
	req.OnBusy = cmp.Or(req.OnBusy, prompt.Reject)
	req.InitialState, req.warnings = shared.Permitted(req.by, req.StateField, req.InitialState)
	if req.Raw && req.by.Role != principal.Operator && m.limits().Instruction != "" {
		req.Raw = false
		req.warnings = shared.AddWarnings(req.warnings, record.Warning{
			Code: warnRaw, Field: "raw_payloads",
			Message: "raw_payloads was ignored: " +
				"a provider may repeat the server's own instruction, which is for operators",
		})
	}
	if err := m.checkRequest(req); err != nil {
		return nil, err
	}
	scope := req.by.Key() + scopeTurn
	done, err := m.once(ctx, scope, req.Once)
	if err != nil {
		return nil, err
	}
	defer done()
	for {
		t, err := m.startAdmitted(ctx, req)
		switch {
		case errors.Is(err, store.ErrKeyTaken): // by another server
			return nil, m.madeBefore(ctx, scope, req.Once)
		case IsMoved(err) && !IsUnsure(err) && ctx.Err() == nil: // nothing was written: the next try finds the owner
		default:
			return t, err
		}
	}
}

// startAdmitted starts a turn if there is room for it.
func (m *Manager) startAdmitted(ctx context.Context, req Request) (*Turn, error) {
	if err := m.admit(req.by.Tenant, true); err != nil {
		return nil, err
	}
	defer m.admitted(req.by.Tenant)
	if req.Fork {
		return m.startOnFork(ctx, req)
	}
	return m.start(ctx, req)
}

// errNoRoom marks the refusal of a turn when the limit of running turns is reached.
var errNoRoom = errors.New("session: as many turns run as may")

// admit counts a turn of a tenant that is about to start. One that is not new has its place among those of the tenant.
func (m *Manager) admit(tenant string, isNew bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leavesLocked() {
		return errOwnerless
	}
	n, own := m.countLocked(tenant)
	if n >= m.limits().MaxTurns {
		return &fault.Error{
			Code: fault.Unavailable, Err: errNoRoom, RetryAfter: refusal.Later,
			Message: fmt.Sprintf("the server runs %d turns, its limit is %d", n, m.limits().MaxTurns),
			Limit:   &fault.Limit{Name: "turns", Value: int64(m.limits().MaxTurns), Received: int64(n + 1)},
		}
	}
	if most := m.limits().MaxTenantTurns; isNew && tenant != "" && own >= most {
		return &fault.Error{
			Code: fault.Unavailable, Err: errNoRoom, RetryAfter: refusal.Later,
			Message: fmt.Sprintf("the tenant runs %d turns, its limit is %d", own, most),
			Limit:   &fault.Limit{Name: "tenant_turns", Value: int64(most), Received: int64(own + 1)},
		}
	}
	if err := m.store.Refuses(); err != nil {
		return err
	}
	m.starting[tenant]++
	m.turns.Add(1)
	return nil
}

// countLocked returns how many turns run or are about to start, and how many of those are a tenant's.
func (m *Manager) countLocked(tenant string) (all, own int) {
	all, own = len(m.running), m.starting[tenant]
	for _, n := range m.starting {
		all += n
	}
	return all, own + m.runningOf[tenant]
}

// admitEnd counts in m.turns a caller that ends a suspended turn. It takes no place of a running turn.
func (m *Manager) admitEnd() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leavesLocked() {
		return errOwnerless
	}
	if err := m.store.Refuses(); err != nil {
		return err
	}
	m.turns.Add(1)
	return nil
}

// admitted ends what admit began: the turn is running by now, or did not start.
func (m *Manager) admitted(tenant string) {
	defer m.signalRoom()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting[tenant]--; m.starting[tenant] == 0 {
		delete(m.starting, tenant)
	}
}

// start is Start for an admitted request. Whoever ends the turn calls m.turns.Done.
func (m *Manager) start(ctx context.Context, req Request) (started *Turn, err error) {
	var ref *sessionRef
	defer func() {
		if started == nil { // also when the engine panics
			if ref != nil {
				m.release(ref)
			}
			m.turns.Done()
		}
	}()
	if ref, err = m.acquireToStart(ctx, req.SessionID, req.Create); err != nil {
		return nil, err
	}
	s := ref.Value
	if len(req.Seed) > 0 {
		req.OnBusy = prompt.Reject // a new session is not busy
	}
	if err := checkSeed(s, len(req.Seed)); err != nil {
		return nil, err
	}
	if _, err = s.NameTurn(ctx, req.TurnID); err != nil {
		return nil, err // before the request changes anything
	}
	spec, err := m.specOf(ctx, s, &req)
	if err != nil {
		return nil, err
	}
	agent, warnings := shared.PermittedTree(req.by, spec.Agent)
	spec.Agent, req.warnings = agent, shared.AddWarnings(req.warnings, warnings...)
	if m.noBackground {
		agent, warnings := shared.WithoutBackground(spec.Agent)
		spec.Agent, req.warnings = agent, shared.AddWarnings(req.warnings, warnings...)
	}
	spec.Prompt, spec.Parts = req.Prompt, req.Parts
	spec.Before, spec.After, spec.Raw = m.limits().Instruction, req.Instruction, req.Raw
	spec.PlanMode, spec.Mode = req.PlanMode, req.Mode
	if req.goal != nil {
		spec.Goal = &req.goal.Tools
	}
	s.Limit(spec, req.Budget, req.SessionBudget)
	if err := m.runner.Check(ctx, spec, req.Keys); err != nil {
		return nil, err
	}
	if err := takesTurns(s); err != nil {
		return nil, err
	}
	p, err := req.prompt(spec)
	if err != nil {
		return nil, err
	}
	leave, err := m.place(ctx, tenant.Of(s.Key()))
	if err != nil {
		return nil, err
	}
	defer leave()
	m.tendChildrenNow(ctx, s)
	for range startTries {
		t, launched, err := m.tryStart(ctx, ref, p)
		switch {
		case errors.Is(err, live.ErrIdle):
			continue // the turn to wait for has just ended
		case err == nil && !launched:
			m.release(ref)
			m.turns.Done()
		}
		return t, err
	}
	return nil, fault.Errorf(fault.Busy, "session %q starts one turn after the other; try again", s.ID()).
		After(refusal.Soon)
}

// startTries bounds how often tryStart is called when it races with other starts: each lost race is a turn that another
// caller has started and that is over already.
const startTries = 64

// tryStart starts a turn or queues its prompt. launched reports whether a goroutine drives the turn: that
// goroutine then owns ref and one count of m.turns.
func (m *Manager) tryStart(
	ctx context.Context, ref *sessionRef, p prompt.Prompt,
) (_ *Turn, launched bool, err error) {
	s := ref.Value
	if err := notFound(s, p.By); err != nil {
		return nil, false, err
	}
	if s.Inherits() { // a recovery may close it now
		if err := lock.Get(&s.Resuming, func() error { return m.closeInherited(ctx, s) }); err != nil {
			return nil, false, err
		}
	}
	asks := s.AsksPerson()
	switch g := s.Goal(); {
	case p.Goal != nil && g.IsOpen():
		return nil, false, s.ErrWorks()
	case p.OnBusy == prompt.Reject && g.IsOpen() && g.Turn != "": // also one that waits for a client
		return nil, false, s.ErrWorks()
	case asks != "" && p.OnBusy == prompt.Reject:
		return nil, false, fault.Errorf(fault.Busy,
			"session %q runs a turn that waits for a person (interaction %q); "+
				"resolve it, cancel the turn, or say on_busy", s.ID(), asks).
			OfTurn(s.OpenTurn())
	case p.OnBusy == prompt.Inject, p.OnBusy == prompt.Wait, asks != "" && p.OnBusy == prompt.Enqueue:
		if s.IsOpen() { // it may be suspended
			if _, err := m.resumeOpen(ctx, s.Key(), p.Keys); err != nil {
				return nil, false, afterStart(ctx, s, err)
			}
		}
	default:
		if err := s.InterruptWaiting(ctx, p.OnBusy); err != nil {
			return nil, false, err
		}
	}
	if p.OnBusy != prompt.Reject {
		if err := m.setLabels(ctx, s, p.Labels); err != nil {
			return nil, false, err
		}
		t, err := s.Enqueue(ctx, p)
		if !errors.Is(err, live.ErrIdle) {
			return t, false, err
		}
	}
	if err := s.Reserve(); err != nil {
		if p.OnBusy != prompt.Reject {
			err = afterStart(ctx, s, err)
		}
		return nil, false, err
	}
	next, err := s.GiveWay(ctx)
	if next != nil {
		m.launchNext(ctx, ref, next)
		return nil, false, live.ErrIdle
	}
	defer s.Unreserve()
	if err != nil {
		return nil, false, err
	}
	if err := checkSeed(s, len(p.Started.Seed)); err != nil { // nobody else makes the session from here on
		return nil, false, err
	}
	if err := notFound(s, p.By); err != nil {
		return nil, false, err
	}
	if err := m.setLabels(ctx, s, p.Labels); err != nil {
		return nil, false, err
	}
	begin := s.Begin
	if p.Goal != nil {
		begin = s.BeginGoal
	}
	d, err := begin(ctx, p)
	if err == nil && d == nil {
		err = &noTurn{s.ID()}
	}
	if err != nil {
		return nil, false, err
	}
	m.launch(ctx, ref, d)
	return d.Turn(), true, nil
}

// afterStart waits for the turn that somebody else is starting if that is what err is about, and returns live.ErrIdle:
// tryStart is called again then.
func afterStart(ctx context.Context, s *live.Session, err error) error {
	if !isBusy(err) {
		return err
	}
	if err := s.AwaitStart(ctx); err != nil {
		return err
	}
	return live.ErrIdle
}

// isBusy reports whether a turn of the session runs, or is about to.
func isBusy(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && e.Code == fault.Busy
}
