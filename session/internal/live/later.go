package live

import (
	"context"
	"slices"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
)

// maxLater bounds the entries of a session that wait for its next append.
const maxLater = 64

// AppendLater is Append for an event that nobody waits for, without state and calls: it comes into the log with the
// next append of the session, right before what that writes. The record has its sequence number, and no time. Such an
// event is
//
//   - one that the log implies, such as that results are given to the model: a run that begins again makes it again;
//   - the response of a model with which the run is about to end. It is durable before another model call begins.
//
// A run that ends has all of its events in the log, however it ends. Where an append is under way or is retried,
// AppendLater waits for its own.
func (r *Run) AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	rec := record.Record{TurnID: r.t.id, Kind: record.KindEvent, Data: data}
	// What a tenant with a budget has spent must be known when the reservation of the call ends.
	if ev.Usage == nil || !r.s.store.Accounts.Bounds(tenant.Of(r.s.key)) {
		e := &entry{turn: r.t, attempt: r.a, kind: rec.Kind, data: data, fact: ev, done: make(chan struct{})}
		if rec.Seq = r.s.later(ctx, e); rec.Seq > 0 {
			return rec, nil
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

// writeLater writes what AppendLater has left, if any of it is a model's response or if all is set, and returns when
// that is durable.
func (s *Session) writeLater(all bool) {
	s.mu.Lock()
	waiting := s.waiting
	all = all || slices.ContainsFunc(waiting, func(e *entry) bool { return record.UsageOf(e.fact) != nil })
	if all = all && len(waiting) > 0; all {
		s.flushing = true
		s.flushLocked()
	}
	s.mu.Unlock()
	if all {
		<-waiting[len(waiting)-1].done
	}
}
