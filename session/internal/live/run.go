package live

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
)

// ReadPage is how many records one read of the log asks for.
const ReadPage = 512

// Run gives a Runner access to the turn that it drives. Its methods may be called from any goroutine until
// Runner.Run returns.
type Run struct {
	s     *Session
	t     *Turn
	a     *attempt       // of t
	state map[string]any // owned by the run; handed out as copies
	atEnd []*entry       // appended before the turn's end; see AppendAtEnd
}

// SessionID returns the session's id.
func (r *Run) SessionID() string { return r.s.id }

// Key returns what a store calls the session.
func (r *Run) Key() string { return r.s.key }

// TurnID returns the turn's id: its caller's own, or "e-" and a random text.
func (r *Run) TurnID() string { return r.t.id }

// Spec returns what the turn runs. It must not be changed.
func (r *Run) Spec() *record.Spec { return r.a.spec }

// Keys returns the caller's own provider keys. It must not be changed.
func (r *Run) Keys() keys.Of { return r.a.keys }

// State returns a copy of the state at the turn's start: the session's keys, the shared keys as "app:…" and
// "user:…", and the turn's own "temp:…".
func (r *Run) State() map[string]any { return maps.Clone(r.state) }

// StartSeq returns the sequence number of the turn's first record.
func (r *Run) StartSeq() int64 { return r.t.startSeq }

// Records yields the session's durable records after a sequence number, in order. It stops at the end of
// the log, and after an error.
func (r *Run) Records(ctx context.Context, after int64) iter.Seq2[record.Record, error] {
	return r.s.records(ctx, after, ReadPage)
}

// Append makes an event durable, then visible, and returns the record. data is the runner's own form of
// ev: Runner.Decode(data) must return ev. It refuses when ctx has ended; once the append has begun, ctx
// no longer matters.
func (r *Run) Append(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	if n := len(ev.Calls); n > r.s.limits().MaxCalls {
		return record.Record{}, fault.Errorf(fault.LimitExceeded,
			"one response asks for %d tool calls, at most %d are allowed", n, r.s.limits().MaxCalls).
			Over("answer_tool_calls", r.s.limits().MaxCalls, n)
	}
	return r.s.commit(ctx, &entry{
		turn:    r.t,
		attempt: r.a,
		kind:    record.KindEvent,
		data:    data,
		fact:    ev,
		shared:  r.s.sharedValues(ev.State),
	})
}

// Delta publishes a piece of a message. It does not block and stores nothing.
func (r *Run) Delta(d record.Delta) { r.s.publishDelta(r.a, d) }

// Marks returns the marks of a message. The event that completes the message must have them.
func (r *Run) Marks(messageID string) record.Marks {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if m := r.a.partials[messageID]; m != nil {
		return m.Marks()
	}
	return nil
}

// BeginCall admits a model call. The call is under way until the caller calls done, when the response is
// recorded or the call has failed. A turn with a call under way is not suspended. most says, for a tenant with a
// budget, what the call can cost at most, which is reserved until done; calls of the tenant that have reserved what
// is missing are waited for. owed says that usage of the call is recorded later, and extends the reservation to then.
//
// When the budget of the turn or of its session is used up, BeginCall waits until no other call of the
// turn is under way, and returns BUDGET_EXHAUSTED: a refusal ends the turn, and the admitted calls must
// be recorded first. So a call under way must not wait for a BeginCall. When ctx ends first, it returns
// the cause. In a server that stops it waits for that: see Run.Wait.
func (r *Run) BeginCall(
	ctx context.Context, call record.ModelCall, most func() record.Spent,
) (done func(owed bool), err error) {
	r.s.writeLater(false)
	release, refused, err := r.reserve(ctx, most)
	if err != nil {
		return nil, err
	}
	over, err := r.admit(ctx, call, refused)
	if err != nil {
		if release != nil {
			release()
		}
		return nil, err
	}
	return func(owed bool) {
		over()
		if release != nil {
			r.a.debts.End(call.Path, lineage.Room(lineage.BranchOf(call.MessageID)), release, owed)
		}
	}, nil
}

// reserve reserves what a call may cost of the tenant's budget; release is nil if it has none. refused is why the call
// must not begin.
func (r *Run) reserve(ctx context.Context, most func() record.Spent) (release func(), refused *fault.Error, err error) {
	payer := tenant.Of(r.s.key)
	if !r.s.store.Accounts.Bounds(payer) {
		return nil, nil, nil
	}
	err = r.Wait(ctx, false, func(ctx context.Context) (err error) {
		release, refused, err = r.s.store.Accounts.Reserve(ctx, payer, most)
		return err
	})
	if err != nil && release != nil {
		release()
	}
	return release, refused, err
}

// admit is BeginCall behind the budget of the tenant; before is why that refuses the call.
func (r *Run) admit(ctx context.Context, call record.ModelCall, before *fault.Error) (done func(), err error) {
	s, t, a := r.s, r.t, r.a
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused error
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if refused = s.exhaustedLocked(t); refused == nil && before != nil {
			refused = before
		}
		if refused == nil || len(a.modelCalls) == 0 {
			return nil
		}
		if a.noCalls == nil {
			a.noCalls = make(chan struct{})
		}
		return a.noCalls
	})
	if err := cmp.Or(err, refused); err != nil {
		return nil, err
	}
	if s.drainsLocked() {
		return nil, s.waitLocked(ctx, &a.held, func(context.Context) error { return nil })
	}
	a.begun++
	key := &call
	if a.modelCalls == nil {
		a.modelCalls = map[*record.ModelCall]time.Time{}
	}
	a.modelCalls[key] = time.Now()
	s.reconcileLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(a.modelCalls, key)
		if len(a.modelCalls) == 0 {
			a.modelCalls = nil
			if a.noCalls != nil {
				close(a.noCalls)
				a.noCalls = nil
			}
		}
		s.reconcileLocked()
	}, nil
}

// Retrying records that a model call is retried.
func (r *Run) Retrying(ctx context.Context, retry record.ModelRetry) error {
	retry.Message = logjson.Readable(retry.Message)
	return r.record(ctx, record.KindModelRetry, &retry)
}

// Await blocks until a call of an appended event is settled, and returns its result. When ctx ends first,
// it returns the cause.
func (r *Run) Await(ctx context.Context, callID string) (record.ToolResult, error) {
	p, res, ok := r.s.lookup(r.t, callID)
	if !ok {
		return record.ToolResult{}, fmt.Errorf("session %s: await of call %q, which no record of turn %s holds",
			r.s.id, callID, r.t.id)
	}
	if p == nil {
		return res, nil
	}
	r.awaits(1)
	defer r.awaits(-1)
	if err := lock.Wait(ctx, p.done); err != nil {
		return record.ToolResult{}, err
	}
	return *p.result, nil
}

func (r *Run) awaits(n int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.a.awaited += n
	r.s.reconcileLocked()
}

// Ask records a call that belongs to no event, and awaits it. A repeat under the same id only awaits.
func (r *Run) Ask(ctx context.Context, call record.ToolCall) (record.ToolResult, error) {
	if _, _, ok := r.s.lookup(r.t, call.ID); !ok {
		if call.Asks != nil {
			asks := *call.Asks // engines share it
			asks.SetNewID()
			call.Asks = &asks
		}
		data, err := logjson.Marshal(call)
		if err != nil {
			return record.ToolResult{}, err
		}
		e := &entry{turn: r.t, attempt: r.a, kind: record.KindToolCall, data: data, fact: &call}
		if _, err := r.s.commit(ctx, e); err != nil {
			return record.ToolResult{}, err
		}
	}
	return r.Await(ctx, call.ID)
}

// ResultNow returns the recorded result of a call of this turn, if it has one now.
func (r *Run) ResultNow(callID string) (record.ToolResult, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	res, ok := r.t.results[callID]
	return res, ok
}

// Result returns the recorded result of a call of this turn, and seals a call without one: later results of
// clients are refused. It is for the end of a run.
func (r *Run) Result(callID string) (record.ToolResult, bool) { return r.s.seal(r.t, callID) }
