package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/probation"
	"github.com/apzuk3/agentd/session/internal/readers"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/table"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Manager holds the sessions of one server and is their only writer. Its
// methods may be called from any goroutine.
type Manager struct {
	*lists
	store  *patient
	runner Runner
	log    *slog.Logger
	limits limits.Limits
	turns  sync.WaitGroup // the goroutines that run turns
	room   chan struct{}  // holds one signal: a turn may start that could not before

	probation *probation.Probation[*Session]
	readers   readers.Readers[*SessionWatcher]
	sessions  *table.Table[*Session]
	exclusive lock.Keyed[work]

	mu       sync.Mutex // protects the fields below
	running  map[*attempt]struct{}
	cancels  map[string]*time.Timer // by session: see cancelLater
	starting int
	draining bool // no new turns
	stopping bool // turns are suspended
	endSweep context.CancelFunc
}

// NewManager returns a manager without sessions; they are read from the store
// when a client asks for them.
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
		log:       cfg.Logger,
		limits:    cfg.Limits,
		probation: probation.New[*Session](cfg.Limits.QuarantineAfter),
		sessions:  newTable(cfg.Limits),
		running:   map[*attempt]struct{}{},
		cancels:   map[string]*time.Timer{},
		room:      make(chan struct{}, 1),
	}
	m.store = newPatient(cfg, func(err error) {
		m.suspendAll()
		if cfg.OnFatal != nil {
			cfg.OnFatal(err)
		}
	})
	m.lists = &lists{Store: m.store.Store, Live: live{m}, Retention: cfg.Limits.Retention, Logger: cfg.Logger}
	m.store.cleared = m.cleared
	m.store.calmed = func(s *Session) { m.settle(s, false) }
	return m, nil
}

// freed says that a turn may start that could not before.
func (m *Manager) freed() {
	select {
	case m.room <- struct{}{}:
	default:
	}
}

// Ready reports whether turns can be started and recorded.
func (m *Manager) Ready(ctx context.Context) error {
	return m.store.ready(ctx)
}

// Request asks for a turn.
type Request struct {
	// SessionID names an existing session; "" starts a new one.
	SessionID string
	// TurnID is the id of the new turn; "" has the manager choose one. An id of a turn
	// that the session has is a CONFLICT.
	TurnID string
	// Create makes the session that SessionID names, if there is none.
	Create bool
	// Agent is the tree. Nil on an existing session: its last tree and tools.
	Agent *agentdv1.Agent
	// Tools are what the client offers.
	Tools []*agentdv1.Tool
	// Prompt is what the user says, and Parts are more of it; one of them says
	// something.
	Prompt string
	Parts  record.Parts
	// Instruction is put behind that of each agent, for this turn.
	Instruction string
	// InitialState are keys to set before the turn runs. Numbers may be of type
	// json.Number, as they are written.
	InitialState map[string]any
	// StateField is what InitialState is called in what the client is told, "" for
	// initial_state.
	StateField string
	// Keys are the caller's own provider keys.
	Keys Keys
	// OnDisconnect is what becomes of the turn when its last client is gone. By
	// default it goes on, and waits when it needs a client.
	OnDisconnect record.OnDisconnect
	// OnBusy is what happens when the session already runs a turn.
	OnBusy agentdv1.OnBusy
	// Budget is what the turn may spend.
	Budget record.Budget
	// SessionBudget, if set, is what the session may spend from its beginning. Where the
	// session has a budget of its own, it counts for this turn and only tightens that;
	// where it has none, it counts for the turns that follow too, until another one comes.
	SessionBudget *record.Budget
	// ToolTimeout is how long a client may take to answer a call of a tool that
	// has no timeout of its own; 0 is the server's default.
	ToolTimeout time.Duration
	// Raw asks for a RawPayload of each try of a model call of the turn.
	Raw bool
	// by and warnings are who asks, and what of the request was left out; set by Start.
	by       principal.Principal
	warnings []record.Warning
	// Once, if it has a key, keeps the request from starting a second turn.
	Once Once
}

// warnRaw is the code of the warning about raw payloads that a principal that is no operator asks for where the
// server has an instruction of its own: a provider may repeat it.
const warnRaw = "raw_payloads_ignored"

// Start checks the request, records the turn and has it run in the background,
// at once or, if OnBusy says so, after others; the turn does not depend on ctx.
// An error that a client may see is of type *fault.Error; then nothing has been
// recorded, unless the store did not say for Limits.StorePatience whether it has
// (UNAVAILABLE). A request whose key has started a turn before is *Repeated.
func (m *Manager) Start(ctx context.Context, req Request) (*Turn, error) {
	req.by = principal.Of(ctx)
	req.StateField = cmp.Or(req.StateField, "initial_state")
	req.OnBusy = cmp.Or(req.OnBusy, reject)
	req.InitialState, req.warnings = shared.Permitted(req.by, req.StateField, req.InitialState)
	if req.Raw && req.by.Role != principal.Operator && m.limits.Instruction != "" {
		req.Raw = false
		req.warnings = shared.AddWarnings(req.warnings, record.Warning{
			Code: warnRaw, Field: "raw_payloads",
			Message: "raw_payloads was ignored: a provider may repeat the server's own instruction, " +
				"which is for operators",
		})
	}
	if err := m.checkRequest(req); err != nil {
		return nil, err
	}
	done, err := m.once(ctx, req.by.Key()+scopeTurn, req.Once)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := m.admit(); err != nil {
		return nil, err
	}
	defer m.admitted()
	return m.start(ctx, req)
}

func (m *Manager) checkRequest(req Request) error {
	if err := m.limits.CheckPrompt(req.Prompt, req.Parts); err != nil {
		return err
	}
	switch {
	case req.TurnID != "" && !idPattern.MatchString(req.TurnID):
		return fault.Errorf(fault.Invalid, "turn_id: an id that the caller chooses has 1 to 128 of A-Z, a-z, 0-9 and "+
			". _ : @ -, a letter or a digit first (received %q)", req.TurnID).Breaking("turn_id", fault.RuleFormat)
	case len(req.Instruction) > m.limits.MaxPromptBytes:
		return fault.Errorf(fault.LimitExceeded, "instruction has %d bytes, at most %d are allowed",
			len(req.Instruction), m.limits.MaxPromptBytes).
			Breaking("instruction", fault.RuleRange).
			Over("instruction_bytes", m.limits.MaxPromptBytes, len(req.Instruction))
	case req.Agent == nil && req.SessionID == "":
		return fault.Errorf(fault.Invalid, "agent is missing: a new session needs an agent tree").
			Breaking("agent", fault.RuleRequired)
	case req.Agent == nil && len(req.Tools) > 0:
		return fault.Errorf(fault.Invalid, "tools without agent: send the agent tree too, or neither to run the "+
			"session's last ones again").
			Breaking("agent", fault.RuleRequired)
	}
	if err := req.Budget.Check("budget"); err != nil {
		return err
	}
	if req.SessionBudget != nil {
		if err := req.SessionBudget.Check("session_budget"); err != nil {
			return err
		}
	}
	if len(req.InitialState) > 0 {
		data, err := logjson.Marshal(req.InitialState)
		if err != nil {
			return fault.Errorf(fault.Invalid, "%s: %v", req.StateField, err).Breaking(req.StateField, fault.RuleFormat)
		}
		if n := len(data); n > m.limits.MaxStateBytes {
			return fault.Errorf(fault.LimitExceeded, "%s takes %d bytes as JSON, at most %d are allowed",
				req.StateField, n, m.limits.MaxStateBytes).
				Breaking(req.StateField, fault.RuleRange).Over("initial_state_bytes", m.limits.MaxStateBytes, n)
		}
	}
	return nil
}

// errNoRoom marks the refusal of a turn because as many run as may.
var errNoRoom = errors.New("session: as many turns run as may")

// admit counts a turn that is about to start.
func (m *Manager) admit() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return fault.Errorf(fault.Unavailable, "the server is stopping")
	}
	if n := len(m.running) + m.starting; n >= m.limits.MaxTurns {
		return &fault.Error{
			Code: fault.Unavailable, Err: errNoRoom, RetryAfter: refusal.Later,
			Message: fmt.Sprintf("the server runs %d turns, its limit is %d", n, m.limits.MaxTurns),
			Limit:   &fault.Limit{Name: "turns", Value: int64(m.limits.MaxTurns), Received: int64(n + 1)},
		}
	}
	if err := m.store.refuses(); err != nil {
		return err
	}
	m.starting++
	m.turns.Add(1)
	return nil
}

// enter counts who is about to end a turn that runs nowhere, in m.turns: no more
// turns run for it.
func (m *Manager) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return fault.Errorf(fault.Unavailable, "the server is stopping")
	}
	if err := m.store.refuses(); err != nil {
		return err
	}
	m.turns.Add(1)
	return nil
}

// admitted says that what admit has counted runs by now, or never will.
func (m *Manager) admitted() {
	defer m.freed()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starting--
}

// start has m.turns counted up; whoever ends the turn counts it down.
func (m *Manager) start(ctx context.Context, req Request) (started *Turn, err error) {
	var h *held
	defer func() {
		if started == nil { // also when the engine panics
			if h != nil {
				m.release(h)
			}
			m.turns.Done()
		}
	}()
	if h, err = m.acquireToStart(ctx, req.SessionID, req.Create); err != nil {
		return nil, err
	}
	s := h.Value
	if _, err = s.nameTurn(ctx, req.TurnID); err != nil {
		return nil, err // before the request changes anything
	}
	spec := &record.Spec{Agent: req.Agent, Tools: req.Tools}
	if req.Agent == nil {
		if spec, err = s.repeatSpec(); err != nil {
			return nil, err
		}
	}
	agent, warnings := shared.PermittedTree(req.by, spec.Agent)
	spec.Agent, req.warnings = agent, shared.AddWarnings(req.warnings, warnings...)
	spec.Prompt, spec.Parts = req.Prompt, req.Parts
	spec.Before, spec.After, spec.Raw = m.limits.Instruction, req.Instruction, req.Raw
	s.limit(spec, req)
	if err := m.runner.Check(ctx, spec, req.Keys); err != nil {
		return nil, err
	}
	if s.isArchived() {
		return nil, fault.Errorf(fault.Precondition, "session %q is archived: make it active with UpdateSession "+
			"before it takes a new turn", s.id)
	}
	for range startTries {
		t, launched, err := m.tryStart(ctx, h, spec, req)
		switch {
		case errors.Is(err, errIdle):
			continue // the turn it was to wait for has just ended
		case err == nil && !launched:
			m.release(h)
			m.turns.Done()
		}
		return t, err
	}
	return nil, fault.Errorf(fault.Busy, "session %q starts one turn after the other; try again", s.id).After(refusal.Soon)
}

// startTries is how often a start that races with the ends of other turns is
// tried.
const startTries = 8

// tryStart starts a turn, or records one that waits. launched tells whether its
// goroutine uses h and is counted in m.turns.
func (m *Manager) tryStart(
	ctx context.Context, h *held, spec *record.Spec, req Request,
) (_ *Turn, launched bool, err error) {
	s := h.Value
	if s.inherits() { // a recovery may be at work on it
		if err := lock.Get(&s.resuming, func() error { return m.closeInherited(ctx, s) }); err != nil {
			return nil, false, err
		}
	}
	asks := s.asksPerson()
	switch {
	case asks != "" && req.OnBusy == reject:
		return nil, false, fault.Errorf(fault.Busy, "session %q runs a turn that waits for a person (interaction %q); "+
			"resolve it, cancel the turn, or say on_busy", s.id, asks).
			OfTurn(s.openTurn())
	case req.OnBusy == inject, asks != "" && req.OnBusy == enqueue:
		if s.isOpen() { // it may have been suspended
			if _, err := m.resumeLast(ctx, AttachRequest{SessionID: s.id, Keys: req.Keys}); err != nil {
				return nil, false, err
			}
		}
	default:
		if err := s.interruptWaiting(ctx, req.OnBusy); err != nil {
			return nil, false, err
		}
	}
	if req.OnBusy != reject {
		t, err := s.enqueue(ctx, spec, req)
		if !errors.Is(err, errIdle) {
			return t, false, err
		}
	}
	if err := s.reserve(); err != nil {
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Busy && req.OnBusy != reject {
			if err = s.awaitStart(ctx); err == nil {
				err = errIdle
			}
		}
		return nil, false, err
	}
	next, err := m.closeOpen(ctx, s, interrupted)
	if next != nil {
		m.launchNext(ctx, h, next)
		return nil, false, errIdle
	}
	defer s.unreserve()
	if err != nil {
		return nil, false, err
	}
	t, run, err := s.begin(ctx, spec, req)
	if err != nil {
		return nil, false, err
	}
	m.launch(ctx, h, run)
	return t, true, nil
}

// limit sets what the turn may spend.
func (s *Session) limit(spec *record.Spec, req Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limitLocked(spec, &record.TurnStarted{Budget: req.Budget, SessionBudget: req.SessionBudget})
}

// isOpen tells whether the last turn has not ended.
func (s *Session) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn != nil && s.turn.ended == nil
}

// openTurn is the id of the turn that has started and not ended, "" for none.
func (s *Session) openTurn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openTurnLocked()
}

func (s *Session) openTurnLocked() string {
	if s.turn == nil || s.turn.ended != nil {
		return ""
	}
	return s.turn.id
}

// launch has a turn run on a goroutine of its own, which lets go of h.
func (m *Manager) launch(ctx context.Context, h *held, run *Run) {
	t, s := run.t, run.s
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.run(t, stop)
	lock.Do(&m.mu, func() {
		m.running[run.a] = struct{}{}
		if m.stopping {
			stop(ErrSuspended)
		}
	})
	go func() {
		defer m.turns.Done()
		next := m.drive(ctx, run)
		lock.Do(&m.mu, func() { delete(m.running, run.a) })
		m.freed()
		if next != nil {
			m.launchNext(ctx, h, next)
		}
		s.retire(t)
		m.release(h)
		close(run.a.done)
	}()
}

// run has a turn run on a goroutine that stop ends.
func (s *Session) run(t *Turn, stop context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(turnRunning)
	t.cancel = stop
	if t.stop != nil { // before it ran
		stop(t.stop)
	}
	s.restartDeadline(t.attempt)
	s.reconcileLocked()
}

// errSuspended is what watchers are told of a turn that is suspended.
var errSuspended = fault.Errorf(fault.Unavailable, "the turn goes on later: attach again with session_id and after_seq")

// drive runs a turn to its end and records it. It runs on the turn's own
// goroutine, and returns the turn to run next.
func (m *Manager) drive(ctx context.Context, run *Run) (next *Run) {
	t, s := run.t, run.s
	defer run.a.cancel(nil)
	err := m.run(ctx, run)
	run.a.keys = nil
	// A turn does not fail because the store does.
	unread := errors.Is(err, retry.ErrUnavailable) && context.Cause(ctx) == nil
	if err != nil && errors.Is(context.Cause(ctx), ErrSuspended) || unread {
		// A turn that is canceled at a time has to be looked at when a server starts.
		m.settle(s, lock.Get(&s.mu, func() bool { return t.phase == turnSuspending && !t.onDisconnect.Cancel }))
		s.stopRunning(t, errSuspended)
		level, attrs := slog.LevelInfo, []slog.Attr{slog.String("session", s.id), slog.String("turn", t.id)}
		if unread {
			m.lost(s)
			level, attrs = slog.LevelWarn, append(attrs, slog.String("error", fault.As(err).Err.Error()))
		}
		m.log.LogAttrs(ctx, level, "turn put aside", attrs...)
		return nil
	}
	end := &record.TurnEnded{Completed: err == nil}
	if err != nil {
		// What made the context end says more than what the runner made of it.
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if stop, ok := errors.AsType[*stopped](err); ok {
			end, err = stop.end(), nil
		} else {
			end = new(record.TurnEnded).Fail(fault.As(err))
		}
	}
	next, merr := s.finish(context.WithoutCancel(ctx), run, end)
	if merr != nil {
		m.settle(s, false)
	}
	m.cleared(s)
	if merr == nil {
		s.stopRunning(t, nil)
	} else {
		s.stopRunning(t, fault.As(merr))
		m.lost(s)
		err = errors.Join(err, merr)
	}
	m.logTurn(run.a, end, err)
	return next
}

// run contains a panic of the engine.
func (m *Manager) run(ctx context.Context, run *Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the engine panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return m.runner.Run(ctx, run)
}

func (m *Manager) logTurn(a *attempt, end *record.TurnEnded, err error) {
	t := a.t
	u := lock.Get(&t.s.mu, func() record.Usage { return t.usage })
	attrs := []slog.Attr{
		slog.String("session", t.s.id),
		slog.String("turn", t.id),
		slog.String("agent", a.spec.Agent.GetName()),
		slog.Bool("completed", end.Completed),
		slog.Int64("model_calls", u.Calls),
		slog.Int64("tokens", u.Total),
		slog.Float64("cost_usd", u.Cost.Dollars()),
		slog.Duration("took", time.Since(t.began)),
	}
	if u.Unpriced > 0 {
		attrs = append(attrs, slog.Int64("unpriced_calls", u.Unpriced))
	}
	level := slog.LevelInfo
	if end.Code != 0 {
		attrs = append(attrs, slog.String("code", end.Code.String()))
	} else if !end.Completed {
		attrs = append(attrs, slog.String("reason", "stopped by the client"))
	}
	if err != nil {
		level = slog.LevelWarn
		cause := err
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Err != nil {
			cause = e.Err
		}
		if end.Code == fault.Internal || end.Code == 0 {
			level = slog.LevelError
		}
		attrs = append(attrs, slog.Attr{Key: "error", Value: logValue(cause)})
	}
	m.log.LogAttrs(context.Background(), level, "turn ended", attrs...)
}

// logValue is an error as a log may hold it: one in the chain may leave out what
// is for the client alone.
func logValue(err error) slog.Value {
	type valuer interface {
		error
		slog.LogValuer
	}
	if v, ok := errors.AsType[valuer](err); ok {
		return v.LogValue()
	}
	return slog.StringValue(err.Error())
}
