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

// Manager holds the sessions of one server and is their only writer. Its methods may be called from any
// goroutine.
type Manager struct {
	*lists
	store  *sessionStore
	runner Runner
	log    *slog.Logger
	limits limits.Limits
	turns  sync.WaitGroup // the goroutines that run turns
	room   chan struct{}  // holds one signal: there is room for another turn

	probation *probation.Probation[*Session]
	readers   readers.Readers[*SessionWatcher]
	sessions  *table.Table[*Session]
	exclusive lock.Keyed[work]

	mu       sync.Mutex // protects the fields below
	running  map[*attempt]struct{}
	cancels  map[string]*time.Timer // by session, see cancelLater
	starting int
	draining bool // no new turns
	stopping bool // turns are suspended
	endSweep context.CancelFunc
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
		log:       cfg.Logger,
		limits:    cfg.Limits,
		probation: probation.New[*Session](cfg.Limits.QuarantineAfter),
		sessions:  newTable(cfg.Limits),
		running:   map[*attempt]struct{}{},
		cancels:   map[string]*time.Timer{},
		room:      make(chan struct{}, 1),
	}
	m.store = newSessionStore(cfg, func(err error) {
		m.suspendAll()
		if cfg.OnFatal != nil {
			cfg.OnFatal(err)
		}
	})
	m.lists = &lists{Store: m.store.Store, Live: live{m}, Retention: cfg.Limits.Retention, Logger: cfg.Logger}
	m.store.cleared = m.cleared
	m.store.calmed = func(s *Session) { m.resetAttempts(s, false) }
	return m, nil
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
	return m.store.ready(ctx)
}

// Request asks for a turn.
type Request struct {
	// SessionID names an existing session; "" starts a new one.
	SessionID string
	// TurnID is the id of the new turn; for "" the manager makes one. An id that the
	// session already has is a CONFLICT.
	TurnID string
	// Create makes the session that SessionID names, if there is none.
	Create bool
	// Agent is the agent tree. Nil repeats the last tree and tools of an existing session.
	Agent *agentdv1.Agent
	// Tools are what the client offers.
	Tools []*agentdv1.Tool
	// Prompt is the text of the user, and Parts are the rest of the prompt. One of
	// them is not empty.
	Prompt string
	Parts  record.Parts
	// Instruction is appended to that of each agent, for this turn.
	Instruction string
	// InitialState are keys to set before the turn runs. Numbers may be of type
	// json.Number, which keeps their digits.
	InitialState map[string]any
	// StateField is the name of InitialState in errors and warnings; "" is initial_state.
	StateField string
	// Keys are the caller's own provider keys.
	Keys Keys
	// OnDisconnect says what happens to the turn when its last client leaves. By
	// default it continues, and waits when it needs a client.
	OnDisconnect record.OnDisconnect
	// OnBusy says what happens when the session already runs a turn.
	OnBusy agentdv1.OnBusy
	// Budget is what the turn may spend.
	Budget record.Budget
	// SessionBudget, if set, is what the session may spend from its beginning. If the
	// session has a budget of its own, this one only tightens it, for this turn. If it
	// has none, this one also applies to later turns, until a request brings another.
	SessionBudget *record.Budget
	// ToolTimeout is how long a client may take for a call of a tool that has no
	// timeout of its own; 0 is the server's default.
	ToolTimeout time.Duration
	// Raw asks for a RawPayload of each try of a model call of the turn.
	Raw bool
	// by is who sends the request, and warnings are what Start left out of it. Start sets both.
	by       principal.Principal
	warnings []record.Warning
	// Once, if it has a key, keeps the request from starting a second turn.
	Once Once
}

// warnRaw is the code of a warning: a principal that is no operator asked for raw payloads of a server with
// an instruction of its own, which a provider may repeat.
const warnRaw = "raw_payloads_ignored"

// Start checks the request, records the turn and runs it in the background: at once or, if OnBusy says
// so, after other turns. The turn does not depend on ctx. An error that a client may see is of type
// *fault.Error. After an error nothing is recorded, except for UNAVAILABLE, when the outcome of the write
// stayed unknown for Limits.StorePatience. A request whose key has already started a turn returns
// *Repeated.
func (m *Manager) Start(ctx context.Context, req Request) (*Turn, error) {
	req.by = principal.Of(ctx)
	req.StateField = cmp.Or(req.StateField, "initial_state")
	req.OnBusy = cmp.Or(req.OnBusy, reject)
	req.InitialState, req.warnings = shared.Permitted(req.by, req.StateField, req.InitialState)
	if req.Raw && req.by.Role != principal.Operator && m.limits.Instruction != "" {
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
		return fault.Errorf(fault.Invalid,
			"turn_id: an id that the caller chooses has 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, "+
				"a letter or a digit first (received %q)", req.TurnID).
			Breaking("turn_id", fault.RuleFormat)
	case len(req.Instruction) > m.limits.MaxPromptBytes:
		return fault.Errorf(fault.LimitExceeded, "instruction has %d bytes, at most %d are allowed",
			len(req.Instruction), m.limits.MaxPromptBytes).
			Breaking("instruction", fault.RuleRange).
			Over("instruction_bytes", m.limits.MaxPromptBytes, len(req.Instruction))
	case req.Agent == nil && req.SessionID == "":
		return fault.Errorf(fault.Invalid, "agent is missing: a new session needs an agent tree").
			Breaking("agent", fault.RuleRequired)
	case req.Agent == nil && len(req.Tools) > 0:
		return fault.Errorf(fault.Invalid,
			"tools without agent: send the agent tree too, or neither to run the session's last ones again").
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

// errNoRoom marks the refusal of a turn when the limit of running turns is reached.
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

// admitEnd counts in m.turns a caller that ends a suspended turn. It takes no place of a running turn.
func (m *Manager) admitEnd() error {
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

// admitted ends what admit began: the turn is running by now, or did not start.
func (m *Manager) admitted() {
	defer m.signalRoom()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starting--
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
		return nil, fault.Errorf(fault.Precondition,
			"session %q is archived: make it active with UpdateSession before it takes a new turn", s.id)
	}
	for range startTries {
		t, launched, err := m.tryStart(ctx, ref, spec, req)
		switch {
		case errors.Is(err, errIdle):
			continue // the turn to wait for has just ended
		case err == nil && !launched:
			m.release(ref)
			m.turns.Done()
		}
		return t, err
	}
	return nil, fault.Errorf(fault.Busy, "session %q starts one turn after the other; try again", s.id).
		After(refusal.Soon)
}

// startTries bounds how often tryStart is called when it races with the ends of other turns.
const startTries = 8

// tryStart starts a turn or queues its prompt. launched reports whether a goroutine drives the turn: that
// goroutine then owns ref and one count of m.turns.
func (m *Manager) tryStart(
	ctx context.Context, ref *sessionRef, spec *record.Spec, req Request,
) (_ *Turn, launched bool, err error) {
	s := ref.Value
	if s.inherits() { // a recovery may close it now
		if err := lock.Get(&s.resuming, func() error { return m.closeInherited(ctx, s) }); err != nil {
			return nil, false, err
		}
	}
	asks := s.asksPerson()
	switch {
	case asks != "" && req.OnBusy == reject:
		return nil, false, fault.Errorf(fault.Busy,
			"session %q runs a turn that waits for a person (interaction %q); "+
				"resolve it, cancel the turn, or say on_busy", s.id, asks).
			OfTurn(s.openTurn())
	case req.OnBusy == inject, asks != "" && req.OnBusy == enqueue:
		if s.isOpen() { // it may be suspended
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
		m.launchNext(ctx, ref, next)
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
	m.launch(ctx, ref, run)
	return t, true, nil
}

// limit sets what the turn may spend.
func (s *Session) limit(spec *record.Spec, req Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limitLocked(spec, &record.TurnStarted{Budget: req.Budget, SessionBudget: req.SessionBudget})
}

// isOpen reports whether the session has a turn that has started and not ended.
func (s *Session) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn != nil && s.turn.ended == nil
}

// openTurn returns the id of the turn that has started and not ended, or "".
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

// launch runs a turn on its own goroutine, which releases ref.
func (m *Manager) launch(ctx context.Context, ref *sessionRef, run *Run) {
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
		m.signalRoom()
		if next != nil {
			m.launchNext(ctx, ref, next)
		}
		s.retire(t)
		m.release(ref)
		close(run.a.done)
	}()
}

// run marks a turn as running. stop ends the context of its goroutine.
func (s *Session) run(t *Turn, stop context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.enter(turnRunning)
	t.cancel = stop
	if t.stop != nil { // stopped before it ran
		stop(t.stop)
	}
	s.restartDeadline(t.attempt)
	s.reconcileLocked()
}

// errSuspended is the error that watchers of a suspended turn receive.
var errSuspended = fault.Errorf(fault.Unavailable, "the turn goes on later: attach again with session_id and after_seq")

// drive runs a turn to its end and records the end. It runs on the turn's own goroutine and returns the
// turn to run next.
func (m *Manager) drive(ctx context.Context, run *Run) (next *Run) {
	t, s := run.t, run.s
	defer run.a.cancel(nil)
	err := m.run(ctx, run)
	run.a.keys = nil
	// A turn does not fail because the store does.
	unread := errors.Is(err, retry.ErrUnavailable) && context.Cause(ctx) == nil
	if err != nil && errors.Is(context.Cause(ctx), ErrSuspended) || unread {
		// The next server must look at a turn that is canceled when its clients stay away.
		m.resetAttempts(s, lock.Get(&s.mu, func() bool { return t.phase == turnSuspending && !t.onDisconnect.Cancel }))
		s.stopRunning(t, errSuspended)
		level, attrs := slog.LevelInfo, []slog.Attr{slog.String("session", s.id), slog.String("turn", t.id)}
		if unread {
			m.clientsLost(s)
			level, attrs = slog.LevelWarn, append(attrs, slog.String("error", fault.As(err).Err.Error()))
		}
		m.log.LogAttrs(ctx, level, "turn put aside", attrs...)
		return nil
	}
	end := &record.TurnEnded{Completed: err == nil}
	if err != nil {
		// The cause of the context says more than the runner's error.
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
		m.resetAttempts(s, false)
	}
	m.cleared(s)
	if merr == nil {
		s.stopRunning(t, nil)
	} else {
		s.stopRunning(t, fault.As(merr))
		m.clientsLost(s)
		err = errors.Join(err, merr)
	}
	m.logTurn(run.a, end, err)
	return next
}

// run calls the engine and returns its panic as an error.
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

// logValue returns an error as the server logs it. An error of the chain that is a slog.LogValuer leaves
// out what only the client may read.
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
