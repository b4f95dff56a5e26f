package live

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/ownkeys"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Load reads the log of a session, by its key, and returns the session. It returns a panic as an error, since
// other callers may wait for the session.
func Load(ctx context.Context, env Env, key string) (*Session, error) {
	s, err := load(ctx, env, key, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if t := s.turn; t != nil && t.phase == phase.TurnStarting {
		t.enter(phase.TurnSuspended)
	}
	return s, nil
}

// load is Load for the records up to one. An open turn is in the phase of a log that is being read.
func load(ctx context.Context, env Env, key string, upTo int64) (_ *Session, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("session %s: reading the log panicked: %v", key, p)
		}
	}()
	info, err := env.Store.Info(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("session %s: %w", key, err)
	case info.Purged > 0 && info.Purged == info.LastSeq:
		return nil, refusal.Purged(key)
	}
	s := NewSession(env, key)
	s.owner = info.Owner()
	s.archived, s.own, s.attempts = info.Archived, info.Budget, info.Attempts
	s.index = &index.Index{Inherited: info.Inherited}
	for rec, err := range s.records(ctx, 0, ReadPage) {
		if err != nil {
			return nil, err
		}
		if rec.Seq > upTo {
			break
		}
		fact, err := s.decode(rec)
		if err == nil {
			_, err = s.replayLocked(rec, fact)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// replayLocked applies a record that is read from the log, and returns its turn.
func (s *Session) replayLocked(rec record.Record, fact any) (*Turn, error) {
	t := s.subject(rec, fact)
	if !rec.Kind.OfSession() && (t == nil || t.ended != nil || t.id != rec.TurnID) {
		return nil, fmt.Errorf("session %s: record %d (%s) is of turn %q, which is not open",
			s.id, rec.Seq, rec.Kind, rec.TurnID)
	}
	s.applyLocked(rec, fact, t)
	return t, nil
}

// subject returns the turn of a record that is read from the log.
func (s *Session) subject(rec record.Record, fact any) *Turn {
	switch f := fact.(type) {
	case *record.TurnStarted:
		t, waited := s.queuedLocked(rec.TurnID)
		if !waited {
			t = newTurn(s, rec.TurnID)
		}
		t.attempt, t.waits = t.noAttempt(), nil
		t.snapshot = s.state.Copy()
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

// NewSession returns a session without records.
func NewSession(env Env, key string) *Session {
	s := &Session{
		key: key, id: tenant.ID(key), store: env.Store, runner: env.Runner, host: env.Host,
		queueing: make(chan struct{}, 1),
		state:    ownkeys.New(),
		index:    &index.Index{},
		watchers: map[*Watcher]struct{}{},
	}
	if s.host != nil {
		s.recent = env.Store.Recent.Log()
	}
	s.alarms = alarm.NewGroup(&s.mu, s.reconcileLocked)
	return s
}

// records yields the records after a sequence number, with pageLen records a read. The tail in memory is
// not read from the store.
func (s *Session) records(ctx context.Context, after int64, pageLen int) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for {
			page, last, err := s.page(ctx, after, pageLen)
			for _, rec := range page {
				after = rec.Seq
				if !yield(rec, nil) {
					return
				}
			}
			if err != nil {
				yield(record.Record{}, err)
			}
			if err != nil || last {
				return
			}
		}
	}
}

// page returns the next records after a sequence number, all that the tail in memory has or at most pageLen from the
// store, and whether there were no more. With an error it returns what comes before the gap that is the error.
func (s *Session) page(ctx context.Context, after int64, pageLen int) (page []record.Record, last bool, err error) {
	if kept, ok := s.kept(after); ok {
		return kept, true, nil
	}
	page, err = s.store.Read(ctx, s.key, after, pageLen)
	if err != nil {
		return nil, false, fmt.Errorf("session %s: read after %d: %w", s.id, after, err)
	}
	for i, rec := range page {
		if follows := after + int64(i); rec.Seq != follows+1 {
			return page[:i], false, fmt.Errorf("session %s: record %d follows %d", s.id, rec.Seq, follows)
		}
	}
	return page, store.LastPage(page, pageLen), nil
}

// kept returns the records after a sequence number if the tail in memory has them all.
func (s *Session) kept(after int64) ([]record.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.After(after)
}

// decode returns the fact of a record.
func (s *Session) decode(rec record.Record) (any, error) {
	fact, err := rec.Decode(s.runner.Decode)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	return fact, nil
}

// LeaveMemory says that the session is no longer the one of its key: nothing of its log is kept any more.
func (s *Session) LeaveMemory() { s.recent.Close() }

// IsUnmade reports whether the session is not in the store yet.
func (s *Session) IsUnmade() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create != nil
}

// IsBroken reports whether the session takes no more writes: its log has to be reloaded.
func (s *Session) IsBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil
}

// Useless reports whether the session leaves memory when nobody uses it: it is broken, has no record, or
// has a suspended turn, whose log is all there is to keep.
func (s *Session) Useless() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.turn != nil && s.turn.ended == nil
	return s.broken != nil || s.seq == 0 || open
}

// ReadIndex returns the index of the log up to a record, and its rows under the id as. The records up to
// inherited are another session's.
func (s *Session) ReadIndex(
	ctx context.Context, inherited, upTo int64, as string,
) (*index.Index, []store.Row, error) {
	x := &index.Index{Inherited: inherited}
	rows, err := x.Read(s.records(ctx, 0, ReadPage), s.decode, upTo, as)
	return x, rows, err
}

// Inherits reports whether the session has inherited its open turn or a queued one.
func (s *Session) Inherits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	inherited := func(t *Turn) bool { return t.queuedSeq <= s.index.Inherited }
	return s.inheritedOpenLocked() || slices.ContainsFunc(s.queued, inherited)
}

func (s *Session) inheritedOpenLocked() bool {
	return s.turn != nil && s.turn.ended == nil && s.turn.startSeq <= s.index.Inherited
}

// MakeSession returns a session that is not in the store yet. Its first record makes it there.
func MakeSession(env Env, key string, owner principal.Principal) *Session {
	s := NewSession(env, key)
	s.owner = owner
	s.create = &store.NewSession{
		ID: key, CreatedAt: s.store.Stamp(), Creator: owner.Key(), MaxOfTenant: s.limits().SessionsOf(owner.Tenant),
	}
	return s
}
