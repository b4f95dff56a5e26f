package session

import (
	"context"
	"time"
)

// Where a follower neither hears nor reaches the owner of its session, it follows the log alone; see follower.

// lookAlone follows the log, whose last record is known, and looks whether there is a better way.
func (f *follower) lookAlone(ctx context.Context, last int64) error {
	if s := f.m.sessionInMemory(f.key); s != nil {
		if _, held := s.Lease.Held(); held {
			return errUnheard
		}
	}
	f.ask()
	settled, heard, err := f.m.owners.Ask(ctx, f.key, false)
	switch {
	case err != nil:
		return f.reachedTo(ctx, f.s, err)
	case !heard:
		return errUnheard
	}
	s := f.s
	if s == nil {
		s, err = f.open(ctx, last)
	}
	if err == nil {
		err = s.FollowAlone(ctx, last, settled)
	}
	return f.reachedTo(ctx, s, err)
}

// isUnheard reports whether an image was waited for, and none came.
func (f *follower) isUnheard() bool {
	return !f.since.IsZero() && (time.Since(f.since) >= followFor || !f.m.carries())
}

// try begins to find out whether the owner is reached, unless that is under way, or was a moment ago.
func (f *follower) try(ctx context.Context) {
	if f.trying || f.m.reach == nil || time.Since(f.tried) < followTry {
		return
	}
	f.trying, f.tried = true, time.Now()
	f.m.follows.running.Go(func() { f.reached <- f.m.reachesOwner(ctx, f.key) })
}

// attempted waits for a try that is under way.
func (f *follower) attempted() {
	if f.trying {
		<-f.reached
	}
}

// reachesOwner reports whether this server reaches the owner of a session, or has nobody to reach: it owns the session
// itself, or nobody does. It waits for some seconds at most.
func (m *Manager) reachesOwner(ctx context.Context, key string) bool {
	if m.reach == nil {
		return true
	}
	address, err := m.owners.Owner(ctx, key)
	return err == nil && (address == "" || m.reach(ctx, address))
}
