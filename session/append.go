package session

import (
	"context"
	"fmt"
	"time"
)

// commit makes entries durable, applies them and shows them. Entries of several
// goroutines that wait at the same time become one append; those of one call are
// never in two. It refuses when ctx has ended; once the entries are in the queue
// ctx no longer matters. It returns the last record.
func (s *Session) commit(ctx context.Context, entries ...*entry) (Record, error) {
	last := entries[len(entries)-1]
	s.mu.Lock()
	if err := s.refusesLocked(ctx, entries); err != nil {
		s.mu.Unlock()
		return Record{}, err
	}
	for _, e := range entries {
		e.done = make(chan struct{})
		if e.kind == KindTurnEnded {
			e.turn.ending = true
		}
	}
	s.queue = append(s.queue, entries...)
	if s.flushing {
		s.mu.Unlock()
		<-last.done
		return last.rec, last.err
	}
	s.flushing = true
	for len(s.queue) > 0 {
		s.flushLocked()
	}
	s.flushing = false
	s.mu.Unlock()
	return last.rec, last.err
}

// refusesLocked says why entries may not be written. Only the start of a turn,
// and what happens to one that waits for its start, may be about another turn
// than the session's.
func (s *Session) refusesLocked(ctx context.Context, entries []*entry) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.broken != nil:
		return s.broken
	}
	for _, e := range entries {
		switch e.kind {
		case KindTurnStarted, KindTurnResumed, KindTurnQueued, KindTurnDropped:
		default:
			if e.turn != s.turn || e.turn.ending || e.turn.ended != nil {
				return Errorf(codeInvalid, "turn %s is over", e.turn.id)
			}
		}
	}
	return nil
}

// flushLocked writes the queue in one append. It gives the lock up while the
// store works; the flushing flag keeps other writers out.
func (s *Session) flushLocked() {
	batch := s.queue
	s.queue = nil
	b := Batch{SessionID: s.id, After: s.seq}
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i, e := range batch {
		e.rec = Record{Seq: s.seq + int64(i) + 1, TurnID: e.turn.id, Kind: e.kind, Time: now, Data: e.data}
		b.Records = append(b.Records, e.rec)
		b.Shared = append(b.Shared, e.shared...)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	err := s.store.Append(ctx, b)
	cancel()
	s.mu.Lock()
	if err != nil {
		s.broken = &Error{
			Code:    codeUnavailable,
			Message: "the session's log cannot be written",
			Err:     fmt.Errorf("session %s: append after %d: %w", s.id, b.After, err),
		}
		batch = append(batch, s.queue...)
		s.queue = nil
		for _, e := range batch {
			e.err = s.broken
			close(e.done)
		}
		if s.turn != nil {
			s.turn.cancel(s.broken) // nothing it waits for can be recorded any more
		}
		return
	}
	for _, e := range batch {
		s.applyLocked(e.rec, e.fact, e.turn)
		it := item{pos: position(e.rec.Seq, 0), rec: e.rec, fact: e.fact, size: len(e.data)}
		if e.kind == KindTurnStarted {
			it.snapshot = e.turn.snapshot
		}
		s.publishLocked(it)
		close(e.done)
	}
}
