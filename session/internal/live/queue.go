package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A queued prompt is a record (TurnQueued). One append holds the end of a turn and the start of the next,
// so that no crash can come between them.

// ErrIdle reports that there is no turn to wait for.
var ErrIdle = errors.New("session: no turn runs")

// queueLocked applies TurnQueued: it puts the turn into the queue.
func (s *Session) queueLocked(t *Turn, seq int64, f *record.TurnQueued) {
	t.enter(phase.TurnQueued)
	t.waits, t.queuedSeq = f, seq
	if s.turn != nil {
		t.besideSeq = s.turn.startSeq
	}
	t.onDisconnect, t.toolTimeout = f.OnDisconnect, f.ToolTimeout
	if f.Inject {
		t.into = f.Into
	}
	if f.Front {
		s.queued = slices.Insert(s.queued, 0, t)
	} else {
		s.queued = append(s.queued, t)
	}
}

// queuedLocked returns a queued turn.
func (s *Session) queuedLocked(id string) (*Turn, bool) {
	i := slices.IndexFunc(s.queued, func(t *Turn) bool { return t.id == id })
	if i < 0 {
		return nil, false
	}
	return s.queued[i], true
}

// unqueueLocked removes a turn from the queue and returns it, or nil if it is not queued.
func (s *Session) unqueueLocked(id string) *Turn {
	i := slices.IndexFunc(s.queued, func(t *Turn) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	t := s.queued[i]
	s.queued = slices.Delete(s.queued, i, i+1)
	t.leave.Stop()
	return t
}

// nowLocked returns the turn that a client of t takes part in: t, or the turn that t's prompt is, or is to
// become, a message of.
func (s *Session) nowLocked(t *Turn) *Turn {
	if s.turn != nil && t.ended == nil && t.into != "" && s.turn.id == t.into {
		return s.turn
	}
	return t
}

func (s *Session) now(t *Turn) *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked(t)
}

// Enqueue records a prompt that waits for the running turn. It returns ErrIdle if no turn runs.
func (s *Session) Enqueue(ctx context.Context, p prompt.Prompt) (*Turn, error) {
	started := p.Started
	if err := s.stateFits(ctx, started.State); err != nil {
		return nil, err
	}
	select {
	case s.queueing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.queueing }()
	running, ahead := s.attemptToWaitFor()
	switch {
	case running == nil:
		return nil, ErrIdle
	case !p.By.Finds(s.MadeBy()):
		return nil, fault.Errorf(fault.SessionNotFound, "session %q does not exist", s.id)
	case ahead >= s.limits().MaxQueued:
		return nil, fault.Errorf(fault.Busy, "session %q runs a turn and %d more wait, the limit",
			s.id, s.limits().MaxQueued).
			OfTurn(running.t.id).Over("queued_turns", s.limits().MaxQueued, ahead+1)
	}
	fact := &record.TurnQueued{
		TurnStarted: *started, Inject: p.OnBusy == prompt.Inject, Front: p.OnBusy == prompt.Interrupt,
		Patient: p.OnBusy == prompt.Wait, Into: running.t.id,
	}
	if !fact.Front {
		fact.Ahead = ahead
	}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkState(p.Spec, whole, started); err != nil {
		return nil, err
	}
	id, err := s.NameTurn(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	t := newTurn(s, id)
	t.attempt = t.newAttempt()
	p.Spec.Checked = nil // models and prices may change before it starts
	t.spec, t.keys = p.Spec, p.Keys
	e := &entry{turn: t, kind: record.KindTurnQueued, data: data, fact: fact, key: p.KeyOf(s.key, t.id), asked: true}
	if _, err := s.commit(ctx, e); err != nil {
		return nil, err
	}
	if p.OnBusy == prompt.Interrupt {
		running.halt(Interrupted)
	}
	return t, nil
}

// attemptToWaitFor returns the running attempt and the number of queued turns. It returns nil if no turn
// runs, or the turn is already suspending or ending.
func (s *Session) attemptToWaitFor() (running *attempt, ahead int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.phase != phase.TurnRunning {
		return nil, 0
	}
	return t.attempt, len(s.queued)
}

// queuedNow returns the queued turns in order.
func (s *Session) queuedNow() []*Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.queued)
}

// NameTurn returns the id of a new turn: a random one for "", else the wanted id. An id that the session
// already has is a CONFLICT. The id stays free only while the caller keeps other turns from being recorded.
func (s *Session) NameTurn(ctx context.Context, wanted string) (string, error) {
	if wanted == "" {
		return newTurnID(), nil
	}
	_, err := s.store.Row(ctx, store.RowTurn, s.key, wanted)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return wanted, nil
	case err != nil:
		return "", fmt.Errorf("session %s: turn %s: %w", s.id, wanted, err)
	}
	return "", fault.Errorf(fault.Conflict,
		"turn_id: session %q has a turn %q; "+
			"choose another id, or repeat the request that has started it with its idempotency_key", s.id, wanted).
		OfTurn(wanted).Breaking("turn_id", fault.RuleConflict)
}

func newTurnID() string { return "e-" + strings.ToLower(rand.Text()) }

// Injected claims the prompts that wait to be injected and returns them in order. The runner appends an
// event for each before its next model call.
func (r *Run) Injected() []prompt.Injected {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var out []prompt.Injected
	for _, t := range r.s.queued {
		if t.waits.Inject && t.phase == phase.TurnQueued && t.stop == nil && t.into == r.t.id {
			t.enter(phase.TurnClaimed)
			out = append(out, prompt.Injected{ID: t.id, Text: t.waits.Prompt, Parts: t.waits.Parts, By: t.waits.By})
		}
	}
	return out
}

// unclaimLocked returns prompts to the queue that a run has claimed and not appended.
func (s *Session) unclaimLocked() {
	for _, t := range s.queued {
		if t.phase == phase.TurnClaimed {
			t.enter(phase.TurnQueued)
		}
	}
}

// Finish records the end of an attempt's turn. The same append holds, in this order, the events of
// AppendAtEnd, the end, how the session's goal stands, and the start of the next queued turn, or of the next one of the
// goal. finish reserves the session for that turn and returns its attempt.
func (s *Session) Finish(ctx context.Context, d *Driver, end *record.TurnEnded) (next *Driver, err error) {
	return s.finish(ctx, d, end, true)
}

// finish is Finish; without goes no turn of the goal follows.
func (s *Session) finish(ctx context.Context, d *Driver, end *record.TurnEnded, goes bool) (next *Driver, err error) {
	t, run := d.a.t, d.run
	s.queueing <- struct{}{}
	defer func() { <-s.queueing }()
	end.Spoke = s.unfinished(t)
	if end.Receipt != nil {
		t.addLate(end.Receipt)
	}
	data, err := logjson.Marshal(end)
	if err != nil {
		return nil, err
	}
	entries := slices.Concat(run.atEnd, []*entry{{turn: t, kind: record.KindTurnEnded, data: data, fact: end}})
	drops, queued, err := s.nextQueued(ctx)
	if err != nil {
		return nil, err
	}
	st := s.stepsNow()
	starts, err := st.follow(s.afterTurn(t, end, &st.goal, st.now), goes && queued == nil)
	if err != nil {
		return nil, err
	}
	entries = slices.Concat(entries, drops, st.entries)
	begins, fact := queued, (*record.TurnStarted)(nil)
	switch {
	case queued != nil:
		fact = new(queued.waits.TurnStarted)
		s.withReports(fact)
		lock.Do(&s.mu, func() { queued.spec.Prompt = fact.Prompt })
	case starts:
		if begins, fact, err = st.startNext(); err != nil {
			return nil, err
		}
		if !d.a.closes { // else the keys are none
			begins.keys = d.a.keys
		}
	}
	if begins != nil {
		whole, err := s.wholeState(ctx)
		if err != nil {
			return nil, err
		}
		writeState(whole, run.stateAtEnd())
		e, started, err := s.startEntry(begins, fact, whole)
		if err != nil {
			return nil, err
		}
		entries, next = append(entries, e), started
	}
	own := next != nil && s.reserveNext(t)
	if _, err := s.commit(context.Background(), entries...); err != nil {
		if own {
			s.Unreserve()
		}
		return nil, err
	}
	return next, nil
}

// nextQueued returns the queued turn that starts next, with its spec, nil for none; and the drops of those before it
// that cannot start.
func (s *Session) nextQueued(ctx context.Context) (drops []*entry, next *Turn, err error) {
	for _, q := range s.queuedNow() {
		err := s.stateFits(ctx, q.waits.State)
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.LimitExceeded {
			next = q // wholeState returns any other error
			break
		}
		drop := &record.TurnDropped{Reason: err.Error(), Code: fault.LimitExceeded, Message: err.Error()}
		data, err := logjson.Marshal(drop)
		if err != nil {
			return nil, nil, err
		}
		drops = append(drops, &entry{turn: q, kind: record.KindTurnDropped, data: data, fact: drop})
	}
	if next == nil || next.spec != nil {
		return drops, next, nil
	}
	spec, err := next.waits.ReadSpec() // it was read from the log
	if err != nil {
		return nil, nil, fmt.Errorf("session %s: turn %s: %w", s.id, next.id, err)
	}
	lock.Do(&s.mu, func() { next.spec = spec })
	return drops, next, nil
}

// reserveNext reserves the session for the turn that follows t. It reports false if t does not run: then
// the caller already has the reservation.
func (s *Session) reserveNext(t *Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.runs() {
		return false
	}
	// Whoever started t is about to release its reservation; the context never ends.
	_ = lock.Await(context.Background(), &s.mu, func() <-chan struct{} { return s.starting })
	s.starting = make(chan struct{})
	return true
}

// unfinished returns the paths of the agents with a partial.
func (s *Session) unfinished(t *Turn) [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths [][]string
	for _, m := range t.partials {
		if !slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, m.Path) }) {
			paths = append(paths, m.Path)
		}
	}
	slices.SortFunc(paths, slices.Compare)
	return paths
}

// LacksKey reports whether a turn of finish must wait for a client with its provider key. Such a turn is
// suspended, and its watchers receive errResumedLater.
func (d *Driver) LacksKey() bool {
	s, t := d.a.t.s, d.a.t
	s.mu.Lock()
	defer s.mu.Unlock()
	lacks := func(provider string) bool { return t.keys[provider] == "" }
	if t.stop != nil || !slices.ContainsFunc(s.lastSpec.OwnKeys, lacks) {
		return false
	}
	t.enter(phase.TurnSuspended)
	s.failLocked(t, halt.ErrResumedLater, false)
	return true
}

// Unqueue marks that a turn of finish is no longer queued. Its clients may have left by then.
func (d *Driver) Unqueue() {
	s, t := d.a.t.s, d.a.t
	s.mu.Lock()
	defer s.mu.Unlock()
	t.waits = nil
	switch attended := s.attendedLocked(); {
	case attended:
		t.cancelAt = clock.Due{}
	case t.cancelAt.IsZero():
		t.cancelAt = s.store.In(t.onDisconnect.Grace)
	}
}
