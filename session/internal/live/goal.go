package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/goal"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Records of goals are written while s.queueing is held, so that what follows of a goal is decided and written before
// anything else happens to it. The start of a turn needs a reservation besides.

// Expired begins the reason with which the retention ends a turn.
const Expired = "expired: "

// Goal returns the session's goal as it stands.
func (s *Session) Goal() goal.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Goal()
}

// GoalDue returns how long it is until something follows of the session's goal by itself; false is never. While a turn
// is open, that turn's end is what it waits for.
func (s *Session) GoalDue() (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.index.Goal()
	at, ok := g.Due()
	if !ok || s.broken != nil || s.follows || s.openTurnLocked() != "" {
		return 0, false
	}
	return max(at.Sub(s.store.Stamp()), 0), true
}

// steps are entries about a goal on their way into one append, and the goal as it is after them.
type steps struct {
	s       *Session
	aside   *Turn // of entries of no turn
	goal    goal.State
	now     time.Time
	entries []*entry
}

func (s *Session) stepsNow() *steps {
	now := s.store.Stamp()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &steps{s: s, aside: s.turn, goal: s.index.Goal(), now: now}
	if st.aside == nil {
		st.aside = newTurn(s, "")
	}
	return st
}

// add adds a fact of the session.
func (st *steps) add(kind record.Kind, fact any) error {
	data, err := logjson.Marshal(fact)
	if err != nil {
		return fmt.Errorf("session %s: %w", st.s.id, err)
	}
	st.entries = append(st.entries, &entry{turn: st.aside, kind: kind, data: data, fact: fact})
	// The seq says which records follow which; those that are applied are given their own.
	st.goal.Apply(record.Record{Seq: st.s.Applied() + 1, Kind: kind, Time: st.now}, fact)
	return nil
}

// follow adds what follows of the goal, and reports whether its next turn begins. c is the checkpoint of the turn that
// ends in the same append, which is added too; nil for none.
func (st *steps) follow(c *record.GoalCheckpointed, may bool) (starts bool, err error) {
	after := st.goal
	at := record.Record{Seq: st.s.Applied() + 1, Time: st.now}
	if c != nil {
		after.Apply(at, c)
	}
	var next goal.Next
	switch archived := lock.Get(&st.s.mu, func() bool { return st.s.archived }); {
	case c != nil && c.Stop != 0:
		next = goal.Next{Ends: c.Stop, Message: c.Failure}
	case !after.IsOpen():
	case archived && after.Turn == "":
		next = goal.Next{Ends: agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED, Message: "the session is archived"}
	case may:
		next = after.Next(st.now)
	}
	switch {
	case c == nil:
		c = next.Waits
	case next.Waits != nil:
		c.Wait, c.Until = next.Waits.Wait, next.Waits.Until
	case next.Ends != 0:
		c.Stop = next.Ends
	}
	if c != nil {
		if err := st.add(record.KindGoalCheckpointed, c); err != nil {
			return false, err
		}
	}
	if next.Ends != 0 {
		return false, st.add(record.KindGoalEnded, st.goal.Over(next.Ends, next.Message, "", st.now))
	}
	return next.Starts, nil
}

// afterTurn returns the checkpoint of the end of a turn, nil if it is none of a goal. Entries that wait for the append
// of the end count.
func (s *Session) afterTurn(t *Turn, end *record.TurnEnded, g *goal.State, now time.Time) *record.GoalCheckpointed {
	if !g.IsOpen() || g.Turn != t.id {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.index.Clone()
	for i, e := range s.waiting {
		x.Note(record.Record{Seq: s.seq + int64(i) + 1, TurnID: e.turn.id, Kind: e.kind, Time: now}, e.fact)
	}
	is, _ := x.Turn(s.key, t.id, 0)
	ended := goal.Ended{Turn: t.id, Usage: is.Usage, Final: is.Output, Said: t.said}
	switch {
	case end.Completed:
	case end.Code != 0:
		ended.Outcome, ended.Why, ended.RetryAfter = goal.Failed, end.Message, end.RetryAfter
		ended.Budget = end.Code == agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED
	case end.Reason == Interrupted:
		ended.Outcome = goal.Interrupted
	case strings.HasPrefix(end.Reason, Expired):
		ended.Outcome, ended.Why = goal.Failed, end.Reason
	default:
		ended.Outcome, ended.Why = goal.Stopped, end.Reason
	}
	return g.AfterTurn(ended, now)
}

// startNext returns the next turn of the goal with its first fact.
func (st *steps) startNext() (*Turn, *record.TurnStarted, error) {
	fact := st.goal.NextTurn()
	spec, err := fact.ReadSpec()
	if err != nil {
		return nil, nil, fmt.Errorf("session %s: the tree of its goal: %w", st.s.id, err)
	}
	t := newTurn(st.s, newTurnID())
	t.attempt = t.newAttempt()
	t.spec = spec
	return t, fact, nil
}

// startEntry returns the start of a turn, and its driver. whole is the state without what fact writes.
func (s *Session) startEntry(t *Turn, fact *record.TurnStarted, whole map[string]any) (*entry, *Driver, error) {
	writeState(whole, fact.State)
	lock.Do(&s.mu, func() { // a watcher of a queued turn may read it now
		t.snapshot = whole
		s.limitLocked(t.spec, fact)
	})
	data, err := logjson.Marshal(fact)
	if err != nil {
		return nil, nil, err
	}
	e := &entry{turn: t, kind: record.KindTurnStarted, data: data, fact: fact, shared: s.sharedValues(fact.State)}
	state := maps.Clone(whole)
	writeState(state, fact.Temp)
	return e, &Driver{a: t.attempt, run: &Run{s: s, t: t, a: t.attempt, state: state}}, nil
}

// keep fills s.queueing for a caller that writes about the goal; done empties it.
func (s *Session) keep(ctx context.Context) (done func(), err error) {
	if stall := lock.Get(&s.mu, func() error { return s.stall }); stall != nil { // who keeps it waits for the store
		return nil, retry.Unavailable(retry.TakeWrites, stall)
	}
	select {
	case s.queueing <- struct{}{}:
		return func() { <-s.queueing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// BeginGoal records the beginning of a goal, with the start of its first turn unless it waits or ends at once: then
// there is no driver. The caller has reserved the session, which has no open turn.
func (s *Session) BeginGoal(ctx context.Context, p prompt.Prompt) (*Driver, error) {
	s.adopt(p.By, p.Labels)
	done, err := s.keep(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkState(p.Spec, whole, p.Started); err != nil {
		return nil, err
	}
	st := s.stepsNow()
	if st.goal.IsOpen() {
		return nil, s.ErrWorks()
	}
	fact := *p.Goal
	fact.ID = "g-" + strings.ToLower(rand.Text())
	if err := st.add(record.KindGoalStarted, &fact); err != nil {
		return nil, err
	}
	starts, err := st.follow(nil, true)
	if err != nil {
		return nil, err
	}
	var next *Driver
	id := ""
	if starts {
		t, first, err := st.startNext()
		if err != nil {
			return nil, err
		}
		first.Trace = p.Started.Trace
		t.spec, t.keys, id = p.Spec, p.Keys, t.id
		t.spec.Prompt, t.spec.Goal = first.Prompt, &first.Goal.Tools
		e, d, err := s.startEntry(t, first, whole)
		if err != nil {
			return nil, err
		}
		st.entries, next = append(st.entries, e), d
	}
	last := st.entries[len(st.entries)-1]
	last.key = p.KeyOf(s.key, id)
	for _, e := range st.entries { // refused together or not at all
		e.asked = true
	}
	if _, err := s.commit(ctx, st.entries...); err != nil {
		return nil, err
	}
	return next, nil
}

// ErrWorks refuses a second driver of the session's goal, and what does not wait for it.
func (s *Session) ErrWorks() error {
	g := s.Goal()
	if !g.IsOpen() { // it has ended meanwhile
		return fault.Errorf(fault.Busy, "session %q has just ended a goal: try again", s.id).After(refusal.Soon)
	}
	return fault.Errorf(fault.Busy, "session %q works on goal %s already, driven by %s: "+
		"wait for its end, stop it, or start another one in a session of its own", s.id, g.F.ID, s.store.Holder).
		OfTurn(g.Turn)
}

// StepGoal writes what follows of the session's goal while no turn is open: the start of its next turn, its end, or
// that it waits. The caller has reserved the session; next, if there is one, takes over the reservation.
func (s *Session) StepGoal(ctx context.Context) (next *Driver, err error) {
	done, err := s.keep(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.OpenTurn() != "" || len(s.queuedNow()) > 0 {
		return nil, nil
	}
	st := s.stepsNow()
	starts, err := st.follow(nil, true)
	if err != nil {
		return nil, err
	}
	if starts {
		whole, err := s.wholeState(ctx)
		if err != nil {
			return nil, err
		}
		t, fact, err := st.startNext()
		if err != nil {
			return nil, err
		}
		e, d, err := s.startEntry(t, fact, whole)
		if err != nil {
			return nil, err
		}
		st.entries, next = append(st.entries, e), d
	}
	if len(st.entries) == 0 {
		return nil, nil
	}
	if _, err := s.commit(ctx, st.entries...); err != nil {
		return nil, err
	}
	return next, nil
}

// TellGoal records what a caller does to the goal, if decide returns a fact for the goal as it stands; its error is
// returned. It returns the goal as it stands then.
func (s *Session) TellGoal(
	ctx context.Context, decide func(g *goal.State, now time.Time) (record.Kind, any, error),
) (goal.State, error) {
	done, err := s.keep(ctx)
	if err != nil {
		return goal.State{}, err
	}
	defer done()
	st := s.stepsNow()
	kind, fact, err := decide(&st.goal, st.now)
	if err != nil || fact == nil {
		return st.goal, err
	}
	if err := st.add(kind, fact); err != nil {
		return goal.State{}, err
	}
	st.entries[0].asked = true
	if _, err := s.commit(ctx, st.entries...); err != nil {
		return goal.State{}, err
	}
	return s.Goal(), nil
}

// Inject records a message for the goal's next turn. It returns how many wait.
func (s *Session) Inject(ctx context.Context, text, key string) (int, error) {
	g, err := s.TellGoal(ctx, func(g *goal.State, _ time.Time) (record.Kind, any, error) {
		switch {
		case g.Seq == 0:
			return "", nil, fault.Errorf(fault.Precondition,
				"session %q has no goal: send it a prompt (CreateTurn), or start a goal", s.id)
		case g.HasKey(key):
			return "", nil, nil
		}
		fact := &record.MessageInjected{Text: logjson.Readable(text), Key: key, By: principal.Of(ctx).ID}
		return record.KindMessageInjected, fact, nil
	})
	return g.Waiting(), err
}
