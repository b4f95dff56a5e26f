package live

import (
	"context"

	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
)

const maxLater = 64 // entries of a session that wait for its next append

// AppendLater is Append for an event that nobody waits for, without state and calls: it comes into the log with the
// next append of the session, right before what that writes. The record has its sequence number, and no time. It is for
// what the log implies, such as that results are given to the model, which a run that begins again makes again, and for
// the response with which a run is about to end, which is durable before another model call begins. A run that ends has
// all of its events in the log. Where an append is under way or is retried, AppendLater waits for its own.
func (r *Run) AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	// What a tenant with a budget has spent must be known when the reservation of the call ends.
	if ev.Usage == nil || !r.s.store.Accounts.Bounds(tenant.Of(r.s.key)) {
		e := &entry{turn: r.t, attempt: r.a, kind: record.KindEvent, data: data, fact: ev, done: make(chan struct{})}
		if seq := r.s.later(ctx, e); seq > 0 {
			return record.Record{Seq: seq, TurnID: r.t.id, Kind: e.kind, Data: data}, nil
		}
	}
	return r.Append(ctx, data, ev)
}

// later keeps an entry for the next append and returns its sequence number, or 0 if it cannot.
func (s *Session) later(ctx context.Context, e *entry) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushing || len(s.waiting) == maxLater || s.refusesLocked(ctx, []*entry{e}) != nil {
		return 0
	}
	s.waiting = append(s.waiting, e)
	return s.seq + int64(len(s.waiting))
}

// writeLater makes durable what AppendLater has left, if a model's response is among it or if all is set.
func (s *Session) writeLater(all bool) {
	last := lock.Get(&s.mu, func() (last *entry) {
		for _, last = range s.waiting {
			all = all || record.UsageOf(last.fact) != nil
		}
		if all = all && last != nil && !halt.IsMoved(s.broken); all {
			s.flushing = true
			s.flushLocked()
		}
		return last
	})
	if all {
		<-last.done
	}
}
