package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/account"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/probation"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/storage"
	"github.com/apzuk3/agentd/session/internal/tail"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// commit makes entries durable, applies them and publishes them. It returns the last record. Entries of
// several goroutines that wait at the same time become one append; those of one call are never in two. It
// refuses when ctx has ended; once the entries are queued, ctx no longer matters.
//
// During a stall, commit refuses what a client waits for, returns at once for the result of a call, which
// is written later, and waits for everything else.
func (s *Session) commit(ctx context.Context, entries ...*entry) (record.Record, error) {
	last := entries[len(entries)-1]
	if err := s.write(ctx, entries, s.reserveState(ctx, entries)); err != nil {
		return record.Record{}, err
	}
	<-last.done
	if last.later() {
		return record.Record{}, last.err // rec may still be written by the goroutine of the append
	}
	return last.rec, last.err
}

// write queues entries, and writes the queue unless another goroutine does. It ends the entries with an
// error if refused is not nil, or if the session cannot take them now.
func (s *Session) write(ctx context.Context, entries []*entry, refused error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused == nil {
		s.prepareLocked(entries)
		refused = s.refusesLocked(ctx, entries)
	}
	if refused != nil {
		for _, e := range entries {
			e.overLocked(refused)
		}
		return refused
	}
	for _, e := range entries {
		e.done = make(chan struct{})
		if e.queued != nil {
			e.queued()
		}
		if e.kind == record.KindTurnEnded {
			e.turn.enter(phase.TurnEnding)
			e.turn.endTried = e.done
		}
		if s.stall != nil && e.later() {
			e.release(nil)
		}
	}
	s.queue = append(s.queue, entries...)
	if !s.flushing {
		s.flushing = true
		s.flushLocked()
	}
	return nil
}

// prepareLocked completes entries before they are queued.
func (s *Session) prepareLocked(entries []*entry) {
	for _, e := range entries {
		if e.settles != nil || e.resolves != nil || e.raises != nil || e.answers != nil {
			e.turn = s.nowLocked(e.turn) // the turn may have been resumed since the call was looked up
		}
	}
	if slices.ContainsFunc(entries, func(e *entry) bool { return e.turn.isClosing() }) {
		for _, e := range entries { // refused together or not at all
			e.asked = true
		}
	}
}

// refusesLocked returns why entries may not be written. Entries belong to the session's last turn, except
// for the start of a turn, what happens to a queued one, and a request for summaries.
func (s *Session) refusesLocked(ctx context.Context, entries []*entry) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.broken != nil:
		return s.broken
	case s.follows:
		return halt.ErrMoved
	}
	for _, e := range entries {
		if s.stall != nil && e.asked {
			return retry.Unavailable(retry.TakeWrites, s.stall)
		}
		switch e.kind {
		case record.KindTurnStarted, record.KindTurnResumed, record.KindTurnQueued, record.KindTurnDropped:
		default:
			if e.kind.OfSession() {
				continue
			}
			late := e.attempt != nil && e.attempt != e.turn.attempt
			if late || e.turn != s.turn || e.turn.phase == phase.TurnEnding || e.turn.phase == phase.TurnEnded {
				return fault.Errorf(fault.Invalid, "turn %s is over", e.turn.id)
			}
		}
	}
	return nil
}

// later reports whether nobody waits for the entry during a stall: a client that has returned a result may
// send more messages.
func (e *entry) later() bool { return e.settles != nil && !e.asked }

// release unblocks the goroutine that waits for the entry.
func (e *entry) release(err error) {
	if !e.released {
		e.released, e.err = true, err
		close(e.done)
	}
}

// overLocked ends the entry: it is durable, or err says why it never will be.
func (e *entry) overLocked(err error) {
	e.reserved.Done(err == nil)
	e.reserved = nil
	if e.done != nil {
		if e.kind == record.KindTurnEnded && err != nil {
			e.turn.unend() // not written: it may be retried
		}
		e.release(err)
	}
	if e.settles != nil {
		e.settles.triedLocked(e.turn.s)
	}
	if e.resolves != nil {
		e.resolves.triedLocked(e.turn.s)
	}
	if e.raises != nil {
		e.raises.endRaiseLocked()
	}
	if e.answers != nil {
		e.answers.triedLocked()
	}
}

// flight is an append under way.
type flight struct {
	entries []*entry
	batch   store.Batch
	unsure  bool      // an earlier try may have written it
	since   time.Time // of the first try, or of the last one that is known to have written nothing
	paused  *attempt  // whose deadline is stopped
	taken   func()    // set from before the first try on if the append ends a turn, see recent.Log.Take
}

// endsTurn reports whether the append ends a turn: then a store may change what the log has of the turn.
func (f *flight) endsTurn() bool {
	return slices.ContainsFunc(f.entries, func(e *entry) bool { return e.kind == record.KindTurnEnded })
}

// flushLocked writes what waits and the queue, one append after the other. It gives up the lock while the store works;
// the flag flushing keeps other writers out. When the store cannot take an append now, a goroutine of the
// server retries it, and the flag stays set.
func (s *Session) flushLocked() {
	for len(s.waiting)+len(s.queue) > 0 {
		f := &flight{entries: append(s.waiting, s.queue...), since: time.Now()}
		s.waiting, s.queue = nil, nil
		if err := s.tryLocked(f); err != nil && !s.overcomeLocked(f, err) {
			if s.store.Flushers.Spawn(func() { s.retryFlight(f) }) {
				return
			}
			s.breakLocked(f, halt.ErrResumedLater)
		}
	}
	s.flushing = false
	s.drainLocked()
}

// retryFlight retries an append until it is written or given up, then writes the queue.
func (s *Session) retryFlight(f *flight) {
	waits := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		more := false
		lock.Without(&s.mu, func() { more = s.store.Pause(context.Background(), &waits) })
		if !more {
			s.breakLocked(f, halt.ErrResumedLater)
			break
		}
		if err := s.tryLocked(f); err == nil || s.overcomeLocked(f, err) {
			break
		}
	}
	s.flushLocked()
}

// tryLocked makes one try of an append. After a success it applies and publishes the records.
func (s *Session) tryLocked(f *flight) error {
	if !f.unsure { // else it must be the same append, byte for byte
		if err := s.numberLocked(f); err != nil {
			return err
		}
	}
	var err error
	if f.endsTurn() && f.taken == nil {
		f.taken, s.tail = s.recent.Take(), tail.Tail{} // the store may soon have other data
	}
	lock.Without(&s.mu, func() {
		err = s.store.Accounts.Append(&f.batch, func() error { return s.store.Write(f.batch) })
	})
	if err != nil {
		return err // what may be taken out of the log is read again from the store alone
	}
	if f.taken != nil {
		defer f.taken() // after the tail is without it too
	}
	s.unstallLocked(f, true)
	s.create = nil
	s.steppedLocked(f.batch.Attempts)
	for _, e := range f.entries {
		if e.kind == record.KindTurnResumed {
			e.turn.attempt = e.attempt
			e.turn.enter(phase.TurnStarting)
		}
		s.reportLocked(e)
		if ev, ok := e.fact.(*record.Event); ok && ev.Usage != nil && e.attempt != nil {
			e.attempt.debts.Settle(ev.Path, lineage.Room(ev.Branch))
		}
		s.applyLocked(e.rec, e.fact, e.turn)
		s.reportedLocked(e.fact)
		s.reconcileLocked()
		s.tail.Add(e.rec)
		it := render.FactItem(e.rec, e.fact)
		it.Size = len(e.data)
		if e.kind == record.KindTurnStarted {
			it.State = e.turn.snapshot
		}
		s.publishLocked(it)
		e.overLocked(nil)
	}
	return nil
}

// numberLocked makes the batch of a flight and gives its records their sequence numbers.
func (s *Session) numberLocked(f *flight) error {
	now := s.store.Stamp()
	f.batch = store.Batch{SessionID: s.key, Create: s.create, After: s.seq, Epoch: s.Lease.Epoch()}
	x := s.index.Clone()
	for i, e := range f.entries {
		e.rec = record.Record{Seq: s.seq + int64(i) + 1, TurnID: e.turn.id, Kind: e.kind, Time: now, Data: e.data}
		if e.kind.OfSession() {
			e.rec.TurnID = ""
		}
		f.batch.Records = append(f.batch.Records, e.rec)
		if probation.IsStep(e.kind) {
			f.batch.Attempts = 1
		}
		f.batch.Shared = append(f.batch.Shared, e.shared...)
		if e.key != nil { // turns of one session begin one by one
			f.batch.Key = e.key
		}
		if u := record.UsageOf(e.fact); u != nil {
			f.batch.Spent.Tokens += u.Total
			f.batch.Spent.Cost += u.Cost
		}
		rows, err := x.Rows(s.key, e.rec, e.fact)
		if err != nil {
			return fmt.Errorf("%w: session %s: turn %s: %w", store.ErrMalformed, s.id, e.turn.id, err)
		}
		f.batch.Rows = append(f.batch.Rows, rows...)
	}
	if f.batch.Spent != (record.Spent{}) {
		f.batch.Payer, f.batch.PaidOn = tenant.Of(s.key), account.Day(now)
	}
	f.batch.Usage, f.batch.LastTurn, f.batch.LastStatus = x.Usage, x.Last, x.LastAs
	return nil
}

// overcomeLocked handles the error of an append. It reports false when the append has to be retried.
func (s *Session) overcomeLocked(f *flight, err error) bool {
	full := errors.Is(err, store.ErrFull)
	switch {
	case f.batch.Create.IsTooMany(err):
		s.breakLocked(f, refusal.TooManySessions(f.batch.Create.MaxOfTenant))
		return true
	case f.batch.Create != nil && errors.Is(err, store.ErrSessionExists), errors.Is(err, store.ErrFenced):
		s.loseLocked(f)
		return true
	case errors.Is(err, store.ErrKeyTaken): // by another server
		f.refuse(err, func(e *entry) bool { return e.key != nil })
		return len(f.entries) == 0
	case retry.Known(err), errors.Is(err, store.ErrFailed), !full && time.Since(f.since) >= s.store.Patience():
		s.breakLocked(f, &fault.Error{
			Code:    fault.Unavailable,
			Message: "the session's log cannot be written",
			Err:     fmt.Errorf("session %s: append after %d: %w", s.id, f.batch.After, err),
		})
		return true
	case !full:
		f.unsure = true
	case !f.unsure:
		f.refuse(retry.Unavailable(retry.TakeWrites, err), func(e *entry) bool { return e.asked })
		if len(f.entries) == 0 {
			return true
		}
	}
	if full {
		f.since = time.Now()
	}
	s.stall = err
	s.queue = refuse(s.queue, retry.Unavailable(retry.TakeWrites, err), func(e *entry) bool { return e.asked })
	for _, entries := range [][]*entry{f.entries, s.queue} {
		for _, e := range entries {
			if e.later() {
				e.release(nil)
			}
		}
	}
	if full || time.Since(f.since) >= storage.StallAfter {
		s.store.Stalls.Begin(s, s.key, err)
		if t := s.turn; t != nil && t.deadline.IsSet() {
			t.stalled, f.paused = true, t.attempt // the deadline stops during a stall
			s.reconcileLocked()
		}
	}
	return false
}

// refuse refuses entries of a flight of which nothing was written.
func (f *flight) refuse(err error, which func(*entry) bool) {
	f.unsure, f.entries = false, refuse(f.entries, err, which)
	if f.taken != nil && !f.endsTurn() {
		f.taken()
		f.taken = nil
	}
}

// refuse refuses some entries, and returns the others.
func refuse(entries []*entry, err error, which func(*entry) bool) []*entry {
	var rest []*entry
	for _, e := range entries {
		if which(e) {
			e.overLocked(err)
		} else {
			rest = append(rest, e)
		}
	}
	return rest
}

// unstallLocked ends the stall of a flight.
func (s *Session) unstallLocked(f *flight, written bool) {
	s.stall = nil
	s.store.Stalls.End(s, written)
	if f.paused != nil && f.paused == s.turn.attempt && written {
		s.turn.stalled = false
		s.restartDeadline(s.turn.attempt)
		s.reconcileLocked()
	}
}

// breakLocked breaks the session: it writes nothing more, and its log has to be reloaded.
func (s *Session) breakLocked(f *flight, why *fault.Error) {
	s.unstallLocked(f, false)
	s.broken = why
	entries := slices.Concat(f.entries, s.queue)
	s.queue = nil
	for _, e := range entries {
		e.overLocked(s.broken)
	}
	if s.turn != nil {
		s.turn.cancel(s.broken) // nothing of the turn can be recorded any more
	}
}
