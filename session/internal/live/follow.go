package live

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/record"
)

// A session that another server writes can be followed: its watchers receive here what they would there. One goroutine
// applies the records of the log, deltas as the owner hints at them, and images in place of hints that were lost. It
// must not apply a record while it may lack deltas from before: a watcher that has received the record gets none of
// these any more.
//
// Where nobody hears the owner, the log alone is followed, up to the position before which it lacks nothing, as the
// owner says through the store (see Session.Settled). So a watcher lacks no delta from before what it has received, and
// may go on anywhere.
//
// A session that is followed writes nothing, has no timers, and its turns enter the phases of a log that is being read.

// Follow reads the log of a session up to a record, to follow it. One goroutine calls the methods that begin with
// Follow.
func Follow(ctx context.Context, env Env, key string, upTo int64) (*Session, error) {
	s, err := load(ctx, env, key, upTo)
	if err != nil {
		return nil, err
	}
	s.follows = true
	if s.turn == nil || s.turn.ended != nil {
		return s, nil
	}
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, err
	}
	s.shareLocked(s.turn, whole)
	return s, nil
}

// shareLocked gives the state at a turn's start the keys that sessions share, as they are now.
func (s *Session) shareLocked(t *Turn, whole map[string]any) {
	state := maps.Clone(t.snapshot)
	for k, v := range whole {
		if _, set := state[k]; !set && shared.ScopeOf(k) != "" {
			state[k] = v
		}
	}
	t.snapshot = state
}

// FollowTo applies the records up to one that is in the log, and publishes them. All deltas from before it were
// published.
func (s *Session) FollowTo(ctx context.Context, upTo int64) error {
	return s.followTo(ctx, upTo, true)
}

func (s *Session) followTo(ctx context.Context, upTo int64, shows bool) error {
	at := s.Applied()
	if at >= upTo {
		return nil
	}
	for rec, err := range s.records(ctx, at, ReadPage) {
		if err != nil {
			return err
		}
		if rec.Seq > upTo {
			break
		}
		if err := s.followOne(ctx, rec, shows); err != nil {
			return err
		}
		at = rec.Seq
	}
	if at < upTo {
		return fmt.Errorf("session %s: its log ends at %d, the owner has written %d", s.id, at, upTo)
	}
	return nil
}

// Applied returns the last record that the session has applied.
func (s *Session) Applied() int64 { return lock.Get(&s.mu, func() int64 { return s.seq }) }

// followOne applies a record, and publishes it if told so.
func (s *Session) followOne(ctx context.Context, rec record.Record, shows bool) error {
	fact, err := s.decode(rec)
	if err != nil {
		return err
	}
	var whole map[string]any
	if rec.Kind == record.KindTurnStarted {
		if whole, err = s.wholeState(ctx); err != nil {
			return err
		}
	}
	if rec.Kind == record.KindTurnEnded {
		taken := s.recent.Take() // the log may have other data of the turn now
		defer taken()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.replayLocked(rec, fact)
	if err != nil {
		return err
	}
	if rec.Kind == record.KindTurnStarted {
		s.shareLocked(t, whole)
	}
	if rec.Kind == record.KindTurnResumed {
		t.attempt = t.noAttempt() // the messages of the one before are void
	}
	if !shows {
		return nil
	}
	it := render.FactItem(rec, fact)
	it.Size = len(rec.Data)
	if rec.Kind == record.KindTurnStarted {
		it.State = t.snapshot
	}
	s.publishLocked(it)
	return nil
}

// FollowDelta publishes a delta of the open turn.
func (s *Session) FollowDelta(pos int64, d record.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.ended != nil || position.Record(pos) != s.seq {
		return
	}
	m := t.partials[d.MessageID]
	if m == nil {
		m = &render.Partial{ID: d.MessageID, Path: d.Path}
		if t.partials == nil {
			t.partials = map[string]*render.Partial{}
		}
		t.partials[d.MessageID] = m
	}
	it := m.Add(pos, d)
	if len(s.watchers) > 1 {
		it.Shared = new(render.Shared)
	}
	s.publishLocked(it)
}

// FollowUnserved notifies the watchers that no client can run an open call.
func (s *Session) FollowUnserved(callID string, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	if t == nil || t.pending[callID] == nil {
		return
	}
	p := t.pending[callID]
	p.unserved, p.expires = true, expires
	u := render.Unserved{Call: p.call, Expires: expires}
	for w := range s.watchers {
		if w.turnLocked() == t {
			w.push(render.Item{Unserved: &u})
		}
	}
}

// FollowImage applies the records up to that of an image. Watchers continue from the log and from what the image has.
func (s *Session) FollowImage(ctx context.Context, img Image) error {
	partials := make(map[string]*render.Partial, len(img.Partials))
	for _, i := range img.Partials {
		p, err := render.PartialOf(i)
		if err != nil {
			return fmt.Errorf("session %s: image of message %s: %w", s.id, i.ID, err)
		}
		partials[p.ID] = p
	}
	if err := s.followTo(ctx, img.Applied, false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.lagLocked()
	s.alone = false
	if t := s.turn; t != nil && t.ended == nil {
		t.partials = partials
		for _, u := range img.Unserved {
			if p := t.pending[u.Call.ID]; p != nil {
				p.unserved, p.expires = true, u.Expires
			}
		}
	}
	return nil
}

// FollowLog applies the records up to one, the last of a session that has nothing beside its log. Watchers continue
// from the log, which has the deltas that were not published.
func (s *Session) FollowLog(ctx context.Context, upTo int64) error {
	if s.Applied() >= upTo && !lock.Get(&s.mu, func() bool { return s.alone }) {
		return nil
	}
	err := s.followTo(ctx, upTo, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.alone = false
	}
	s.lagLocked()
	return err
}

// FollowAlone applies the records up to one, of a session whose owner is not heard. Watchers receive what comes before
// settled, which is what Settled has returned at the owner, or the greatest of such positions so far.
func (s *Session) FollowAlone(ctx context.Context, upTo, settled int64) error {
	err := s.followTo(ctx, upTo, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alone {
		s.alone, s.settled = true, 0
		if s.turn != nil {
			clear(s.turn.partials)
		}
	}
	if settled > s.settled {
		s.settled = settled
		s.lagLocked()
	}
	return err
}

// Settled returns the position before which the log lacks nothing: the messages that are not in it by now begin to be
// shown there, or later.
func (s *Session) Settled() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := position.Of(s.seq, position.Deltas+s.deltas)
	if t := s.turn; t != nil && t.ended == nil {
		for _, m := range t.partials {
			if first := m.First(); first > 0 {
				settled = min(settled, first)
			}
		}
	}
	return settled
}

// lagLocked has the watchers continue from the log.
func (s *Session) lagLocked() {
	for w := range s.watchers {
		w.backlog.Lag()
	}
	s.rouse()
}
