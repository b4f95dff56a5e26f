package live

import (
	"context"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/lease"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/ownkeys"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/recent"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/internal/storage"
	"github.com/apzuk3/agentd/session/internal/tail"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Session is one durable conversation. Its state follows from its records: applyLocked applies them in
// order and alone changes it.
type Session struct {
	key    string // under which the store has it
	id     string // which callers name within their tenant
	store  *storage.Store
	runner Runner
	host   Host        // nil for a session that is only read from
	alarms alarm.Group // of mu
	Lease  lease.Lease // of the owner of the session
	recent *recent.Log // what watchers have read; nil for a session that is only read from

	Tending  sync.Mutex    // held while children are started and looked at; taken before mu
	Resuming sync.Mutex    // held while an open turn is resumed; taken before mu
	queueing chan struct{} // full while a turn is queued, dropped, or ends; filled before mu is taken

	mu          sync.Mutex          // protects the fields below
	owner       principal.Principal // who made it
	seq         int64               // of the last durable record
	lastAt      time.Time           // the time of that record
	state       *ownkeys.Keys
	index       *index.Index
	archived    bool              // it takes no new turns
	create      *store.NewSession // to be made by its first append; nil once it is in the store
	lastSpec    *record.TurnStarted
	own         record.Budget // the session's own budget, by CreateSession or UpdateSession
	summarizes  int64         // the last record that asks for summaries; 0 is none
	focus       string        // what they are to keep
	reported    chan struct{} // closed when a child reports; nil if nobody waits
	asked       record.Budget // the session budget of the last request with one; see sessionBudgetLocked
	wall        time.Duration // the duration of all turns that have ended
	turn        *Turn         // the last turn, running or over; nil before the first
	queued      []*Turn       // in order
	starting    chan struct{} // not nil while the session is reserved; closed by Unreserve
	broken      error         // an append has failed for good: the log must be reloaded
	stall       error         // why an append is being retried
	waiting     []*entry      // for the next append, see AppendLater; none while flushing is set
	queue       []*entry
	flushing    bool      // a goroutine writes the queue
	tail        tail.Tail // the last records written here
	watchers    map[*Watcher]struct{}
	deltas      int // since the last record
	clientsSeen int
	attempts    int64 // the value of Head.Attempts
	yields      bool  // it is to be owned by another server, see Yield
	tap         tap
	follows     bool // another server writes it, see Follow; never changes
	alone       bool // only its log is known, and watchers are shown no record beyond settled; see FollowAlone
	settled     int64
}

// limits returns the limits as they are now.
func (s *Session) limits() *limits.Limits { return s.store.Limits() }

// Key returns the key under which the store has the session.
func (s *Session) Key() string { return s.key }

// ID returns the session's id, which is its own within its tenant.
func (s *Session) ID() string { return s.id }

// entry is a record on its way into the log.
type entry struct {
	turn     *Turn
	attempt  *attempt // which writes the entry, nil for none; of KindTurnResumed the new one
	kind     record.Kind
	data     []byte
	fact     any // what data says; the type follows from the kind
	shared   []store.SharedValue
	reserved *shared.Reservation // of shared
	key      *store.Key          // names what the entry makes
	queued   func()              // if not nil, called when the entry has its place in the queue
	asked    bool                // a client waits for it: refused when the store cannot take writes
	settles  *pending            // the call whose result it is; protected by Session.mu
	resolves *pending            // the call whose own interaction it resolves
	raises   *pending            // the call about which it asks
	answers  *raised             // the question that it resolves
	rec      record.Record       // set before done is closed
	err      error               // set before done is closed
	done     chan struct{}       // closed when the entry is durable or has failed; see commit
	released bool                // done is closed; protected by Session.mu
}

// applyLocked is the one function that changes the state of a session. It runs for each durable record, in
// order, when the record is written and when the log is read.
func (s *Session) applyLocked(rec record.Record, fact any, t *Turn) {
	s.seq, s.lastAt, s.deltas = rec.Seq, rec.Time, 0
	s.index.Note(rec, fact)
	if u := record.UsageOf(fact); u != nil {
		t.usage = t.usage.Add(*u)
	}
	switch f := fact.(type) {
	case *record.TurnStarted:
		s.turn = t
		t.enter(phase.TurnStarting)
		s.unqueueLocked(t.id)
		t.into, t.onDisconnect, t.toolTimeout, t.trace = "", f.OnDisconnect, f.ToolTimeout, f.Trace
		// The turn's time begins with this record.
		t.startSeq, t.started, t.began = rec.Seq, rec.Time, s.store.Began(rec.Time)
		s.lastSpec = f
		if f.SessionBudget != nil {
			s.asked = *f.SessionBudget
		}
		s.state.Merge(f.State)
	case *record.TurnResumed:
		s.unclaimLocked()
	case *record.TurnQueued:
		s.queueLocked(t, rec.Seq, f)
	case *record.TurnDropped:
		s.unqueueLocked(t.id)
		t.ended = f.End()
		t.enter(phase.TurnEnded)
		close(t.done)
	case *record.Event:
		s.state.Merge(f.State)
		t.said = t.said.Add(f.Goal)
		if f.Injected != "" {
			if q := s.unqueueLocked(f.Injected); q != nil {
				q.enter(phase.TurnInjected)
				close(q.done)
				if q.stop != nil { // its client has canceled it meanwhile
					t.haltLocked(q.stop.Reason)
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
		s.applyResultLocked(t, f)
	case *record.Question:
		s.applyRaisedLocked(t, f)
	case *record.InteractionResolved:
		s.applyResolutionLocked(t, f)
	case *record.ClientsLeft:
		s.applyClientsLeftLocked(t, f)
	case *record.CompactionAsked:
		s.summarizes, s.focus = rec.Seq, f.Focus
	case *record.TurnEnded:
		t.ended = f
		if s.lastSpec != nil {
			s.lastSpec = s.lastSpec.WithoutParts()
		}
		if t.startSeq > s.index.Inherited {
			s.wall += max(rec.Time.Sub(t.started), 0) // the clock may have been set back
		}
		t.enter(phase.TurnEnded)
		for _, p := range t.pending {
			p.enter(s, phase.CallSettled)
		}
		clear(t.pending)
		clear(t.partials)
		s.unclaimLocked()
	}
}

// applyResultLocked settles a call: it has its result.
func (s *Session) applyResultLocked(t *Turn, res *record.ToolResult) {
	t = s.nowLocked(t)
	t.results[res.CallID] = *res
	if before := len(t.steps); t.closeSteps() < before {
		t.wakeLocked()
	}
	if p := t.pending[res.CallID]; p != nil {
		delete(t.pending, res.CallID)
		p.enter(s, phase.CallSettled)
		p.result = res
		close(p.done)
	}
}

// lookup returns a call of a turn: the pending call, or its result.
func (s *Session) lookup(t *Turn, callID string) (p *pending, res record.ToolResult, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := t.pending[callID]; p != nil {
		return p, record.ToolResult{}, true
	}
	res, ok = t.results[callID]
	return nil, res, ok
}

// settleAs settles a call without a result of a client.
func (s *Session) settleAs(ctx context.Context, t *Turn, callID string, o record.Outcome, text string) error {
	res := record.ToolResult{CallID: callID, Outcome: o, Error: text}
	data, err := logjson.Marshal(res)
	if err != nil {
		return err
	}
	return s.settle(ctx, t, entry{data: data, fact: &res})
}

// settle records the result of a call, whose entry it completes. See Turn.SubmitResult for what it refuses.
func (s *Session) settle(ctx context.Context, t *Turn, e entry) error {
	t, p, err := s.callToSettle(ctx, t, e.fact.(*record.ToolResult))
	if p == nil || err != nil {
		return err
	}
	e.turn, e.kind, e.settles = t, record.KindToolResult, p
	_, err = s.commit(ctx, &e)
	return err
}

// callToSettle claims the call of a result for the caller, and returns it with its turn. It returns
// neither if the call has the same result already.
func (s *Session) callToSettle(ctx context.Context, t *Turn, res *record.ToolResult) (*Turn, *pending, error) {
	who := principal.Of(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	t, p, err := s.callLocked(ctx, t, res)
	if err != nil {
		return nil, nil, err
	}
	first, settled := t.results[res.CallID]
	if p != nil && p.phase == phase.CallRecording {
		first, settled = *p.recording, true
	}
	switch {
	case settled && first.Equal(*res):
		return nil, nil, nil
	case settled:
		return nil, nil, fault.Errorf(fault.Invalid,
			"tool call %q: this result came too late, the call is already settled (%s)", res.CallID, first.Outcome)
	case p == nil && t.ended != nil, p != nil && p.phase == phase.CallSealed:
		return nil, nil, errTooLate(res.CallID)
	case p == nil:
		return nil, nil, fault.Errorf(fault.Invalid, "tool call %q: no such call is open in this turn", res.CallID)
	case !who.Runs(p.call.Name):
		return nil, nil, fault.Errorf(fault.Denied,
			"tool call %q is one of the tool %q, which the token does not allow", res.CallID, p.call.Name)
	case p.call.Asks != nil && res.Outcome == record.Returned:
		return nil, nil, fault.Errorf(fault.Invalid,
			"tool call %q waits for a person, no client is asked for it: resolve the interaction", res.CallID)
	}
	s.recordLocked(p, res)
	return t, p, nil
}

// recordLocked marks that a result of a call is on its way into the log. triedLocked ends that.
func (s *Session) recordLocked(p *pending, res *record.ToolResult) {
	p.enter(s, phase.CallRecording)
	p.recording, p.tried = res, make(chan struct{})
	s.reconcileLocked()
}

// callLocked returns the pending call of a result, nil if there is none, and the turn that has it now. It
// waits for a resolution under way. For a result of a client it also waits for the run that has sealed
// the call: if that run is suspended, or its end cannot be written, the call is open once more. While it
// waits, it gives up the lock.
func (s *Session) callLocked(ctx context.Context, of *Turn, res *record.ToolResult) (t *Turn, p *pending, err error) {
	waited := false
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		t = s.nowLocked(of)
		p = t.pending[res.CallID]
		switch {
		case p == nil:
			return nil
		case p.phase == phase.CallResolving:
			return p.tried
		case res.Outcome != record.Returned && res.Outcome != record.Cancelled:
			return nil
		}
		over := p.fateLocked(t)
		waited = waited || over != nil
		return over
	})
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil && waited && t.ended != nil:
		return nil, nil, errTooLate(res.CallID)
	}
	return t, p, nil
}

// fateLocked returns what is closed when it is known what becomes of a call whose run has sealed it, or is ending: it
// is settled, or open once more. It returns nil for any other call.
func (p *pending) fateLocked(t *Turn) <-chan struct{} {
	if p.phase == phase.CallSealed || t.phase == phase.TurnEnding && p.phase != phase.CallRecording {
		return t.done
	}
	return nil
}

func errTooLate(callID string) error {
	return fault.Errorf(fault.Invalid, "tool call %q: this result came too late, the turn is over", callID)
}

// seal returns the result of a call. It waits for a result that is being recorded, and seals a call that
// has none.
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
	if p := t.pending[callID]; p != nil && p.phase != phase.CallSealed {
		p.enter(s, phase.CallSealed)
	}
	res, ok := t.results[callID]
	return res, ok
}

// publishLocked sends an item to all watchers, each with the calls of the fact that are offered to its
// client.
func (s *Session) publishLocked(it render.Item) {
	for w := range s.watchers {
		it.Offered = nil
		if it.Fact != nil && w.offered != nil && s.nowLocked(w.t) == s.turn {
			for _, id := range it.Opens() {
				if p := s.turn.pending[id]; p != nil && s.showsOfferLocked(p, w) {
					it.Offered = append(it.Offered, id)
				}
			}
		}
		w.push(it)
	}
	s.tapLocked(it)
	s.rouse()
}

// showsOfferLocked reports whether a watcher's messages mark a call as offered to its client.
func (s *Session) showsOfferLocked(p *pending, w *Watcher) bool {
	if p.owner == nil {
		return p.open() && w.offered[p.call.Name] && !s.drainsLocked()
	}
	return p.open() && p.owner == w
}

// failLocked ends the watchers of the turn with an error, and those that join until it is resumed. If
// waits, the turn is only suspended and observers stay, unless the session is broken.
func (s *Session) failLocked(t *Turn, err *fault.Error, waits bool) {
	t.failed = err
	for w := range s.watchers {
		if w.asks || !waits || s.broken != nil {
			w.backlog.Fail(err)
			delete(s.watchers, w)
		}
	}
}
