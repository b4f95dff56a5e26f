package session

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/tail"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// loadTimeout bounds the reading of a log that no caller waits to cancel.
const loadTimeout = time.Minute

// Session is one durable conversation. All of its state is what applying its
// records in order gives: see apply, the one function that changes it.
type Session struct {
	id      string
	store   *patient
	runner  Runner
	limits  limits.Limits
	manager *Manager    // whose session it is; nil if it is only read from
	alarms  alarm.Group // of mu

	resuming sync.Mutex    // held while an open turn is made to run again; taken before mu
	queueing chan struct{} // full while a turn is queued, dropped, or ends; filled before mu is taken

	mu          sync.Mutex          // protects the fields below
	owner       principal.Principal // who has made it
	seq         int64               // of the last durable record
	lastAt      time.Time           // when that was written
	state       map[string]any
	sizes       map[string]int // of the keys of state, in bytes
	stateBytes  int            // their sum
	index       *index.Index
	archived    bool              // it takes no new turns
	create      *store.NewSession // to be made by its first append; nil once it is in the store
	lastSpec    *record.TurnStarted
	own         record.Budget // what the session may spend, as it was made or updated; zero for what nobody has said
	asked       record.Budget // that of the last request that came with a session budget; see sessionBudgetLocked
	wall        time.Duration // how long the turns that are over took
	turn        *Turn         // the last turn, running or over; nil before the first
	queued      []*Turn       // turns that wait for their start, in order
	starting    chan struct{} // a turn is being started; closed when that is over
	broken      error         // an append's outcome is unknown: the log must be read again
	stall       error         // an append is tried again: why it was not taken
	queue       []*entry
	flushing    bool      // some goroutine is in flush
	tail        tail.Tail // of what was written here
	watchers    map[*Watcher]struct{}
	deltas      int // since the last record
	clientsSeen int
	attempts    int64 // Head.Attempts
}

// entry is a record on its way into the log.
type entry struct {
	turn     *Turn
	attempt  *attempt // whose entry it is, nil for no attempt's; of KindTurnResumed the one to come
	kind     record.Kind
	data     []byte
	fact     any // what data says, by kind: see Kind; of an event *Event
	shared   []store.SharedValue
	reserved *shared.Reservation // of shared
	key      *store.Key          // names what the entry makes
	asked    bool                // a client waits for it: refused when the store cannot take writes
	settles  *pending            // the call it is the result of; protected by Session.mu
	resolves *pending            // the call about which a person has said something
	rec      record.Record       // set before done is closed
	err      error               // set before done is closed
	done     chan struct{}       // closed when the entry is durable or has failed; see commit
	released bool                // done is closed; protected by Session.mu
}

// load reads a session's log. A panic over what it holds is an error: others may
// wait for the session.
func load(ctx context.Context, store *patient, runner Runner, limits limits.Limits, id string) (_ *Session, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("session %s: reading the log panicked: %v", id, p)
		}
	}()
	info, err := store.Info(ctx, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("session %s: %w", id, err)
	case info.Purged > 0 && info.Purged == info.LastSeq:
		return nil, refusal.Purged(id)
	}
	s := newSession(store, runner, limits, id)
	s.owner = info.Owner()
	s.archived, s.own, s.attempts, s.index = info.Archived, info.Budget, info.Attempts, &index.Index{Inherited: info.Inherited}
	for rec, err := range s.records(ctx, 0, readPage) {
		if err != nil {
			return nil, err
		}
		fact, err := s.decode(rec)
		if err != nil {
			return nil, err
		}
		s.applyLocked(rec, fact, s.subject(rec, fact))
	}
	if t := s.turn; t != nil && t.phase == turnStarting {
		t.enter(turnSuspended)
	}
	return s, nil
}

// subject returns the turn that a record read from the log is about.
func (s *Session) subject(rec record.Record, fact any) *Turn {
	switch f := fact.(type) {
	case *record.TurnStarted:
		t, waited := s.queuedLocked(rec.TurnID)
		if !waited {
			t = newTurn(s, rec.TurnID)
		}
		t.attempt, t.waits = t.noAttempt(), nil
		t.snapshot = maps.Clone(s.state)
		writeState(t.snapshot, f.State)
		return t
	case *record.TurnQueued:
		t := newTurn(s, rec.TurnID)
		t.attempt = t.newAttempt()
		return t
	case *record.TurnDropped:
		t, waited := s.queuedLocked(rec.TurnID)
		if !waited {
			t = newTurn(s, rec.TurnID)
			t.attempt = t.newAttempt()
		}
		return t
	default:
		return s.turn
	}
}

func newSession(store *patient, runner Runner, limits limits.Limits, id string) *Session {
	s := &Session{
		id:       id,
		store:    store,
		runner:   runner,
		limits:   limits,
		queueing: make(chan struct{}, 1),
		state:    map[string]any{},
		sizes:    map[string]int{},
		index:    &index.Index{},
		watchers: map[*Watcher]struct{}{},
	}
	s.alarms = alarm.NewGroup(&s.mu, s.reconcileLocked)
	return s
}

// records yields the records after a sequence number, pageLen to a read. The end
// of the log, as far as it is kept, is not read.
func (s *Session) records(ctx context.Context, after int64, pageLen int) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for {
			if kept, ok := s.kept(after); ok {
				for _, rec := range kept {
					if !yield(rec, nil) {
						return
					}
				}
				return
			}
			page, err := s.store.Read(ctx, s.id, after, pageLen)
			if err != nil {
				yield(record.Record{}, fmt.Errorf("session %s: read after %d: %w", s.id, after, err))
				return
			}
			for _, rec := range page {
				if rec.Seq != after+1 {
					yield(record.Record{}, fmt.Errorf("session %s: record %d follows %d", s.id, rec.Seq, after))
					return
				}
				after = rec.Seq
				if !yield(rec, nil) {
					return
				}
			}
			if store.LastPage(page, pageLen) {
				return
			}
		}
	}
}

// kept returns the records after a sequence number if the session keeps them all.
func (s *Session) kept(after int64) ([]record.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.After(after)
}

// decode reads what a record says.
func (s *Session) decode(rec record.Record) (any, error) {
	fact, err := rec.Decode(s.runner.Decode)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	return fact, nil
}

// applyLocked is the one function that changes what a session knows. It runs
// for each durable record, in order, when the record is written and when the
// log is read.
func (s *Session) applyLocked(rec record.Record, fact any, t *Turn) {
	s.seq, s.lastAt, s.deltas = rec.Seq, rec.Time, 0
	s.index.Note(rec, fact)
	if u := record.UsageOf(fact); u != nil {
		t.usage = t.usage.Add(*u)
	}
	switch f := fact.(type) {
	case *record.TurnStarted:
		s.turn = t
		t.enter(turnStarting)
		s.unqueueLocked(t.id)
		t.into, t.onDisconnect, t.toolTimeout = "", f.OnDisconnect, f.ToolTimeout
		// Its time begins when its start is written.
		t.startSeq, t.started, t.began = rec.Seq, rec.Time, s.store.Began(rec.Time)
		s.lastSpec = f
		if f.SessionBudget != nil {
			s.asked = *f.SessionBudget
		}
		s.mergeStateLocked(f.State)
	case *record.TurnResumed:
		s.unclaimLocked()
	case *record.TurnQueued:
		s.queueLocked(t, rec.Seq, f)
	case *record.TurnDropped:
		s.unqueueLocked(t.id)
		t.ended = f.End()
		t.enter(turnEnded)
		close(t.done)
	case *record.Event:
		s.mergeStateLocked(f.State)
		if f.Injected != "" {
			if q := s.unqueueLocked(f.Injected); q != nil {
				q.enter(turnInjected)
				close(q.done)
				if q.stop != nil { // its client has taken it back meanwhile
					t.haltLocked(q.stop.reason)
				}
			}
			t.injected = append(t.injected, f.Injected)
		}
		if f.Usage != nil {
			t.called++
		}
		delete(t.partials, f.MessageID)
		t.openStep(f.Calls)
		for _, call := range f.Calls {
			s.openCallLocked(t, call)
		}
	case *record.ToolCall:
		t.openStep([]record.ToolCall{*f})
		s.openCallLocked(t, *f)
	case *record.ToolResult:
		s.settledLocked(t, f)
	case *record.InteractionResolved:
		s.resolvedLocked(t, f)
	case *record.ClientsLeft:
		s.clientsLeftLocked(t, f)
	case *record.TurnEnded:
		t.ended = f
		if s.lastSpec != nil {
			s.lastSpec = s.lastSpec.WithoutParts()
		}
		if t.startSeq > s.index.Inherited {
			s.wall += max(rec.Time.Sub(t.started), 0) // the clock may have been set back
		}
		t.enter(turnEnded)
		for _, p := range t.pending {
			p.enter(s, callSettled)
		}
		clear(t.pending)
		clear(t.partials)
		s.unclaimLocked()
	}
}

// settledLocked takes the result of a call.
func (s *Session) settledLocked(t *Turn, res *record.ToolResult) {
	t = s.nowLocked(t)
	t.results[res.CallID] = *res
	t.closeSteps()
	if p := t.pending[res.CallID]; p != nil {
		delete(t.pending, res.CallID)
		p.enter(s, callSettled)
		p.result = res
		close(p.done)
	}
}

// lookup finds a call of a turn: pending, or with its result.
func (s *Session) lookup(t *Turn, callID string) (p *pending, res record.ToolResult, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := t.pending[callID]; p != nil {
		return p, record.ToolResult{}, true
	}
	res, ok = t.results[callID]
	return nil, res, ok
}

// settleAs settles a call without an answer of the client.
func (s *Session) settleAs(ctx context.Context, t *Turn, callID string, o record.Outcome, text string) error {
	res := record.ToolResult{CallID: callID, Outcome: o, Error: text}
	data, err := logjson.Marshal(res)
	if err != nil {
		return err
	}
	return s.settle(ctx, t, res, data)
}

// settle records the result of a call. See Turn.Answer for what it refuses.
func (s *Session) settle(ctx context.Context, t *Turn, res record.ToolResult, data []byte) error {
	t, p, err := s.callToSettle(ctx, t, &res)
	if p == nil || err != nil {
		return err
	}
	_, err = s.commit(ctx, &entry{turn: t, kind: record.KindToolResult, data: data, fact: &res, settles: p})
	return err
}

// callToSettle returns the call of a result, which nobody else may settle from now on, and
// its turn. It returns neither if the call has the same result already.
func (s *Session) callToSettle(ctx context.Context, t *Turn, res *record.ToolResult) (*Turn, *pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, p, err := s.callLocked(ctx, t, res)
	if err != nil {
		return nil, nil, err
	}
	first, settled := t.results[res.CallID]
	if p != nil && p.phase == callRecording {
		first, settled = *p.recording, true
	}
	switch {
	case settled && first.Equal(*res):
		return nil, nil, nil
	case settled:
		return nil, nil, fault.Errorf(fault.Invalid, "tool call %q: this answer came too late, the call is already settled "+
			"(%s)", res.CallID, first.Outcome)
	case p == nil:
		return nil, nil, fault.Errorf(fault.Invalid, "tool call %q: no such call is open in this turn", res.CallID)
	case p.phase == callSealed:
		return nil, nil, errTooLate(res.CallID)
	case p.call.Asks != nil && res.Outcome == record.Answered:
		return nil, nil, fault.Errorf(fault.Invalid, "tool call %q waits for a person, no client is asked for it: resolve "+
			"the interaction", res.CallID)
	}
	s.recordLocked(p, res)
	return t, p, nil
}

// recordLocked says that a result of a call is on its way into the log: see triedLocked.
func (s *Session) recordLocked(p *pending, res *record.ToolResult) {
	p.enter(s, callRecording)
	p.recording, p.tried = res, make(chan struct{})
	s.reconcileLocked()
}

// callLocked finds the call of a result, nil if it is not open, in the turn as it is now.
// What a person says about it comes first. A call that is sealed by a run which ends is
// waited for, if a client gives the result: where that run is suspended, or its end cannot
// be written, the turn goes on and the call is open again. It gives the lock up meanwhile.
func (s *Session) callLocked(ctx context.Context, of *Turn, res *record.ToolResult) (t *Turn, p *pending, err error) {
	waited := false
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		t = s.nowLocked(of)
		p = t.pending[res.CallID]
		switch {
		case p == nil:
			return nil
		case p.phase == callResolving:
			return p.tried
		case res.Outcome != record.Answered && res.Outcome != record.Cancelled:
			return nil
		case p.phase == callSealed, t.phase == turnEnding && p.phase != callRecording:
			waited = true
			return t.done
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil && waited && t.ended != nil:
		return nil, nil, errTooLate(res.CallID)
	}
	return t, p, nil
}

func errTooLate(callID string) error {
	return fault.Errorf(fault.Invalid, "tool call %q: this answer came too late, the turn is over", callID)
}

// seal returns the result of a call. One that has none gets none any more; a
// result that is on its way is waited for.
func (s *Session) seal(t *Turn, callID string) (record.ToolResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The context never ends.
	_ = lock.Await(context.Background(), &s.mu, func() <-chan struct{} {
		if p := t.pending[callID]; p != nil && p.isBusy() {
			return p.tried
		}
		return nil
	})
	if p := t.pending[callID]; p != nil && p.phase != callSealed {
		p.enter(s, callSealed)
	}
	res, ok := t.results[callID]
	return res, ok
}

// publishLocked shows an item to all watchers; each learns which of the fact's
// calls its client is asked for.
func (s *Session) publishLocked(it render.Item) {
	for w := range s.watchers {
		it.Offered = nil
		if it.Fact != nil && w.offered != nil && s.nowLocked(w.t) == s.turn {
			for _, id := range opens(it.Fact) {
				p := s.turn.pending[id]
				if p != nil && p.open() && (p.owner == w || p.owner == nil && w.offered[p.call.Name]) {
					it.Offered = append(it.Offered, id)
				}
			}
		}
		w.push(it)
	}
	s.rouse()
}

// opens are the ids of the calls that a fact may open for clients.
func opens(fact any) []string {
	if f, ok := fact.(*record.InteractionResolved); ok {
		return []string{f.ID}
	}
	var ids []string
	for _, call := range record.CallsOf(fact) {
		ids = append(ids, call.ID)
	}
	return ids
}

// failLocked tells the watchers, also those to come, that the turn's end could
// not be recorded. They take no part in what becomes of the turn later.
// Where the turn only waits, those who observe it stay.
func (s *Session) failLocked(t *Turn, err *fault.Error, waits bool) {
	t.failed = err
	for w := range s.watchers {
		if w.asks || !waits || s.broken != nil {
			w.fail(err)
			delete(s.watchers, w)
		}
	}
}
