package session

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
)

const (
	// adoptEvery is how often a server asks its Owners for sessions that are due.
	adoptEvery = 500 * time.Millisecond
	// adoptMost is how many it takes at a time.
	adoptMost = 32
)

// adopt takes sessions that are due until ctx ends: those that a server has left when it stopped or died, and those
// whose time has come. It looks each adoptEvery, and when the bus says that there is one. It also lets go of what could
// not be let go before, and answers what servers ask that do not reach this one.
func (m *Manager) adopt(ctx context.Context) {
	tick := time.NewTicker(adoptEvery)
	defer tick.Stop()
	rest := time.NewTimer(0) // fires when the next look may begin
	defer rest.Stop()
	wake, end := m.woken()
	defer end()
	for {
		select {
		case <-ctx.Done():
			m.letGoRest()
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-wake:
		}
		m.letGoRest()
		if ctx.Err() == nil {
			m.adoptAll(ctx)
			m.adoptObserved(ctx)
			m.answer(ctx)
		}
		rest.Reset(adoptLeast)
	}
}

// letGoRest lets go of what could not be let go before.
func (m *Manager) letGoRest() {
	m.mu.Lock()
	lingering, rest := m.lingering, maps.Clone(m.unreleased)
	m.lingering = nil
	clear(m.unreleased)
	m.mu.Unlock() // release takes it
	for _, ref := range lingering {
		m.release(ref)
	}
	for key, u := range rest {
		m.letGo(key, u)
	}
}

// adoptAll takes sessions that are due, as many as there is room for turns. The next round retries what fails.
func (m *Manager) adoptAll(ctx context.Context) {
	room := lock.Get(&m.mu, func() int {
		n, _ := m.countLocked("")
		return min(m.limits().MaxTurns-n, adoptMost)
	})
	if room <= 0 {
		return
	}
	keys, err := m.owners.Due(ctx, room)
	if err != nil {
		if ctx.Err() == nil {
			m.log.LogAttrs(ctx, slog.LevelDebug, "sessions that are due cannot be read",
				slog.String("error", err.Error()))
		}
		return
	}
	for _, key := range slices.Compact(keys) {
		if err := m.adoptOne(ctx, key); err != nil && !refusal.IsGone(err) && !isElsewhere(err) && ctx.Err() == nil {
			m.log.LogAttrs(ctx, slog.LevelWarn, "a turn is left open", slog.String("session", key),
				slog.String("error", err.Error()))
		}
	}
}

// observes notes that an observer keeps a session here, which may have found it before a server that resumes turns did:
// that of a dead server, or one that is due.
func (m *Manager) observes(s *live.Session) {
	if m.owners != nil && s.IsSuspended() {
		lock.Do(&m.mu, func() { m.observed[s.Key()] = struct{}{} })
	}
}

// adoptObserved resumes turns of observed sessions, which Owners do not offer: they have an owner. The next round
// retries what there was no room for.
func (m *Manager) adoptObserved(ctx context.Context) {
	for _, key := range lock.Get(&m.mu, func() []string { return slices.Collect(maps.Keys(m.observed)) }) {
		s := m.sessionInMemory(key)
		var err error
		if s != nil && s.IsSuspended() {
			err = m.adoptOne(ctx, key)
		}
		if err != nil || s == nil || !s.IsSuspended() || s.Prospect() == phase.OnlyWaits {
			lock.Do(&m.mu, func() { delete(m.observed, key) })
		}
	}
}

// adoptOne resumes the open turn of a session if it can work without a client. A turn that waits is no longer due.
func (m *Manager) adoptOne(ctx context.Context, key string) error {
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	s := ref.Value
	s.Resuming.Lock()
	defer s.Resuming.Unlock()
	s.Lease.DueIn(Never)
	if s.Inherits() {
		defer m.release(ref)
		return m.closeInherited(ctx, s)
	}
	m.clientsLost(s)
	if !s.IsOpen() {
		defer m.release(ref)
		if err := m.advance(ctx, ref); !errors.Is(err, errNoRoom) {
			return err
		}
		return nil // its release says when it is due
	}
	prospect := s.Prospect()
	if m.probation.Quarantined(s.AttemptsNow()) {
		prospect = phase.Works
	}
	if !s.IsOpen() || s.RunningOrOver() != nil || prospect == phase.OnlyWaits {
		m.release(ref)
		return nil
	}
	m.sessions.Keep(ref) // resume releases one, and what follows needs the other
	defer m.release(ref)
	if _, err = m.resume(ctx, ref, nil); err == nil {
		return nil
	}
	if wait := dueAfter(errors.Is(err, retry.ErrUnavailable)); errors.Is(err, errNoRoom) ||
		errors.Is(err, errSuspectRuns) || errors.Is(err, retry.ErrUnavailable) {
		s.Lease.DueIn(max(wait, refusal.Later))
		return nil
	}
	return err
}

// dueAfter is when a suspended turn is due: at once, or later because the store could not be used.
func dueAfter(failed bool) time.Duration {
	if failed {
		return refusal.Later
	}
	return 0
}
