package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lease"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
)

// Owners decide which of several servers over one store owns a session. The owner alone has the session in memory for
// use, writes to its log and drives its turn. A Manager owns a session while somebody uses it: a call, a client, an
// observer, a turn that runs. Then it lets go, and keeps what it has read for the case that nobody else has owned the
// session when it claims it again.
//
// Sessions are named by their keys. All methods may be called from any goroutine. An error that is none of those below
// may pass: the call is made again, or the session is offered again.
//
// The implementation tells the manager what happens to what it owns: [Manager.Lost] and [Manager.LostAll]. They may be
// called from any goroutine, and do not call back. What others ask of it the manager asks for itself (Asked).
//
// A session that its first append makes needs no claim: the append has Batch.Create and the epoch 1, and the store
// makes its writer the owner under that epoch in the same transaction. A session that is made in another way, by
// Store.Create or Store.Fork, has no owner and the epoch 0.
type Owners interface {
	// Claim makes this server the owner of a session, under an epoch above all that the session had, also if it is the
	// owner already. From then on the store refuses appends under lower epochs (store.ErrFenced). It returns *Elsewhere
	// if another server that lives owns the session, and store.ErrNoSession for a session that there is not. A session
	// whose owner has died becomes due by the claim; otherwise a claim leaves as it is when the session is due.
	Claim(ctx context.Context, key string) (Claim, error)
	// Release ends the ownership under an epoch. Under another epoch, and for a session that there is not, it changes
	// nothing. due says when the session is offered by Due: after that time by the clock of the store, never (Never),
	// or as it was to be (SameDue).
	Release(ctx context.Context, key string, epoch int64, due time.Duration) error
	// Owner returns the address of the server that owns a session; "" is nobody that lives, or this server.
	Owner(ctx context.Context, key string) (address string, err error)
	// Standing returns the last record of a session, whether it has an owner, also this server or one that is dead, and
	// whether its log was purged, all of one moment. It returns store.ErrNoSession for a session that there is not.
	Standing(ctx context.Context, key string) (last int64, owned, purged bool, err error)
	// Ask says to the owner of a session, through the store, that this server does not reach it: it follows the session
	// in the log alone or, with wants, has clients that want to take part in it. Who goes on asking says so again each
	// second. settled is the position that the owner has said with Settle under its epoch, 0 for none. heard is
	// false, and nothing is asked, while a server lives that is too old to hear it. It returns store.ErrNoSession for a
	// session that there is not.
	Ask(ctx context.Context, key string, wants bool) (settled int64, heard bool, err error)
	// Asked calls f with what others have asked of sessions of this server in the last seconds, as it knew a while ago:
	// whether somebody follows a session in the log alone, and the answer so far; and the address of a server whose
	// clients want to take part in it, "" for none. It waits for nothing but f.
	Asked(f func(key string, follows bool, settled int64, wants string))
	// Settle says to those that follow a session of this server, which has claimed it under an epoch, before which
	// position the log lacks nothing.
	Settle(ctx context.Context, key string, epoch, settled int64) error
	// Another returns the address of another server that lives and takes sessions; "" is none. It returns at once.
	Another() (address string)
	// Due returns at most that many sessions without an owner whose time has come, and sessions whose owner has died, a
	// fair share of them if there are other servers. It claims none: the manager claims what it takes.
	Due(ctx context.Context, most int) (keys []string, err error)
}

// What Owners.Release may get in place of a time.
const (
	Never   = lease.Never
	SameDue = lease.Same
)

// Claim is what a server has claimed.
type Claim struct {
	// Epoch is that of the ownership. Every append has it as Batch.Epoch.
	Epoch int64
	// LastSeq and Archived are those of the session at the moment of the claim.
	LastSeq  int64
	Archived bool
}

// Elsewhere is the error of a claim of a session that another server owns. It is the cause of an error that clients
// see, and is not shown to them.
type Elsewhere struct { //nolint:errname // a place, to whoever asks
	// Address is where the owner serves other servers.
	Address string
}

func (e *Elsewhere) Error() string {
	return "session: the server at " + e.Address + " owns the session"
}

// IsMoved reports whether an error says that another server owns a session that this one had, or that this one lets go
// of it: who asks again finds the owner. What was asked was not done, unless [IsUnsure].
func IsMoved(err error) bool { return halt.IsMoved(err) }

// IsUnsure reports whether an error of IsMoved leaves open whether what was asked was done.
func IsUnsure(err error) bool { return halt.IsUnsure(err) }

// errOwnerless is the error of what a server that stops does not begin any more: a turn, or a claim of a session that
// nobody owns.
var errOwnerless = fault.Errorf(fault.Unavailable, "the server is stopping; try again").After(refusal.Soon)

// IsOwnerless reports whether an error says that this server is stopping, and that the session has no owner yet: what
// was asked was not done, and another server does it.
func IsOwnerless(err error) bool { return errors.Is(err, errOwnerless) }

// isElsewhere reports whether another server owns a session, or is about to.
func isElsewhere(err error) bool {
	_, ok := errors.AsType[*Elsewhere](err)
	return ok || IsMoved(err) || IsOwnerless(err)
}

// OwnerOf returns the address of the server that owns a session; "" is this one, or nobody.
func (m *Manager) OwnerOf(ctx context.Context, id string) (address string, err error) {
	if m.owners == nil || id == "" {
		return "", nil
	}
	key, err := m.keyOf(ctx, id)
	if err != nil || m.sessionInMemory(key) != nil {
		return "", err
	}
	return m.ownerOf(ctx, key)
}

// leavesLocked reports whether this server leaves sessions and turns to others.
func (m *Manager) leavesLocked() bool { return m.draining || m.front }

// Takes reports whether this server takes sessions that nobody owns.
func (m *Manager) Takes() bool { return !lock.Get(&m.mu, m.leavesLocked) }

// Another returns the address of another server over the store that takes sessions; "" is none.
func (m *Manager) Another() string {
	if m.owners == nil {
		return ""
	}
	return m.owners.Another()
}

func (m *Manager) ownerOf(ctx context.Context, key string) (address string, err error) {
	err = m.store.Try(ctx, retry.BeRead, func(ctx context.Context) (err error) {
		address, err = m.owners.Owner(ctx, key)
		return err
	})
	return address, err
}

// claim claims a session, unless the server stops. It returns store.ErrNoSession, a *fault.Error with *Elsewhere as its
// cause, errOwnerless, or an error of the database.
func (m *Manager) claim(ctx context.Context, key string) (c Claim, err error) {
	var elsewhere *Elsewhere
	if to := m.gaveTo(key); to != "" {
		elsewhere = &Elsewhere{Address: to}
	} else if !m.Takes() {
		address, err := m.ownerOf(ctx, key)
		switch {
		case err != nil:
			return Claim{}, err
		case address == "":
			return Claim{}, errOwnerless
		}
		elsewhere = &Elsewhere{Address: address}
	} else {
		err = m.store.Try(ctx, retry.BeRead, func(ctx context.Context) (err error) {
			if c, err = m.owners.Claim(ctx, key); errors.As(err, &elsewhere) {
				return nil
			}
			return err
		})
	}
	if elsewhere != nil {
		return Claim{}, &fault.Error{
			Code: fault.Unavailable, RetryAfter: refusal.Soon, Err: elsewhere,
			Message: fmt.Sprintf("another server runs session %q: try again", tenant.ID(key)),
		}
	}
	if err == nil {
		lock.Do(&m.mu, func() { delete(m.unreleased, key) })
	}
	return c, err
}

// load reads a session, whose owner this server becomes first. lapsed is what it has in memory from an earlier claim,
// or nil.
func (m *Manager) load(ctx context.Context, key string, lapsed *live.Session) (*live.Session, error) {
	if m.owners == nil {
		return live.Load(ctx, m.env(), key)
	}
	c, err := m.claim(ctx, key)
	if err != nil {
		if lapsed != nil {
			lapsed.LeaveMemory()
		}
		return nil, err
	}
	if lapsed != nil {
		if lapsed.Lease.Epoch()+1 == c.Epoch && lapsed.Has(c.LastSeq, c.Archived) {
			lapsed.Lease.Hold(c.Epoch)
			lapsed.Stay()
			return lapsed, nil
		}
		lapsed.LeaveMemory()
	}
	s, err := live.Load(ctx, m.env(), key)
	if err != nil {
		m.letGo(key, unreleased{c.Epoch, SameDue})
		return nil, err
	}
	s.Lease.Hold(c.Epoch)
	return s, nil
}

// hold keeps a session from being used by others, here or elsewhere, for a change that needs no log; but a user that
// this server has already stays, and then the session is returned. done ends that. Without Owners it does nothing.
func (m *Manager) hold(ctx context.Context, key string) (s *live.Session, done func(), err error) {
	for m.owners != nil {
		ref, found := m.sessions.Use(key)
		if found {
			err := ref.Wait(ctx)
			if err == nil {
				return ref.Value, func() { m.release(ref) }, nil
			}
			if ctx.Err() == nil {
				m.sessions.Remove(ref) // so that the next try does not find the same error
			}
			m.release(ref)
			if ctx.Err() != nil || isElsewhere(err) {
				return nil, nil, err
			}
			continue
		}
		if old, ok := ref.Lapsed(); ok {
			old.LeaveMemory()
		}
		c, err := m.claim(ctx, key)
		end := func() {
			m.sessions.Remove(ref) // who waits for it looks again
			ref.Set(nil, errKept)
			m.release(ref)
		}
		if err != nil && !errors.Is(err, store.ErrNoSession) {
			end()
			return nil, nil, err
		}
		return nil, func() {
			end()
			m.letGo(key, unreleased{c.Epoch, SameDue})
		}, nil
	}
	return nil, func() {}, nil
}

// release ends a reference. A session without references stays in memory for a while, unless it is useless. With
// Owners, it is let go; one that still writes is let go by adoptAll.
func (m *Manager) release(ref *sessionRef) {
	m.advanceDue(ref)
	if m.owners != nil && m.lingers(ref) {
		return
	}
	m.released(ref, m.sessions.Release(ref))
}

// releaseObserver is release for a user that only observes.
func (m *Manager) releaseObserver(ref *sessionRef) {
	m.advanceDue(ref)
	m.released(ref, m.sessions.ReleaseObserver(ref))
}

// released lets a session go whose last user has left.
func (m *Manager) released(ref *sessionRef, last bool) {
	s, ok := ref.Now()
	if !ok {
		return
	}
	wait, waits := m.awaitGoal(s)
	if m.owners == nil || !last {
		return
	}
	if epoch, due, held := s.Lease.LetGo(); held && !s.IsUnmade() {
		if turnID, when := s.ClientsLost(); turnID != "" && due < 0 {
			due = max(when.Left(), 0) + live.ReturnTime // this server's own timer comes first
		}
		if waits && due < 0 {
			if due = wait; due == 0 {
				due = refusal.Later // advanceDue could not
			}
		}
		m.letGo(s.Key(), unreleased{epoch, due})
	}
}

// lingers keeps a reference for later if its session still writes: results that were taken while the store stalled.
func (m *Manager) lingers(ref *sessionRef) bool {
	s, ok := ref.Now()
	if !ok || !s.IsWriting() || s.IsBroken() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endSweep == nil || m.draining {
		return false
	}
	m.lingering = append(m.lingering, ref)
	return true
}

// unreleased is a session that is to be let go.
type unreleased struct {
	epoch int64
	due   time.Duration
}

// letGoTimeout bounds one try to let a session go.
const letGoTimeout = 2 * time.Second

// letGo lets a session go. What fails is done again by adoptAll.
func (m *Manager) letGo(key string, u unreleased) {
	if u.epoch == 0 { // there was no such session
		return
	}
	ctx, cancel := context.WithTimeout(m.store.Writing(), letGoTimeout)
	defer cancel()
	if err := m.owners.Release(ctx, key, u.epoch, u.due); err != nil {
		m.log.LogAttrs(ctx, slog.LevelDebug, "a session that is not used is not let go yet",
			slog.String("session", key), slog.String("error", err.Error()))
		lock.Do(&m.mu, func() { m.unreleased[key] = u })
		return
	}
	if u.due == 0 {
		m.Wake()
	}
}

// Lost says that another server owns sessions of this one, or is about to: they leave memory, nothing more is written
// to them, and their turns are left to that server. Those that use them get an error of IsMoved.
func (m *Manager) Lost(keys ...string) {
	for _, key := range keys {
		if s := m.sessionInMemory(key); s != nil {
			s.Lose()
		}
	}
}

// Held returns the sessions that this server owns in memory, with the epochs of their claims. It may be called from any
// goroutine.
func (m *Manager) Held() map[string]int64 {
	var all []*live.Session
	m.sessions.Each(func(s *live.Session, _, _ int) { all = append(all, s) })
	held := map[string]int64{}
	for _, s := range all {
		if epoch, is := s.Lease.Held(); is && !s.IsUnmade() {
			held[s.Key()] = epoch
		}
	}
	return held
}

// LostAt is Lost for sessions that are still held under the epochs of claims.
func (m *Manager) LostAt(claims map[string]int64) {
	for key, epoch := range claims {
		if s := m.sessionInMemory(key); s != nil {
			if now, held := s.Lease.Held(); held && now == epoch {
				s.Lose()
			}
		}
	}
}

// acquireAt is acquire for a client that has a position of the session.
func (m *Manager) acquireAt(ctx context.Context, id string, after *int64) (*sessionRef, error) {
	ref, err := m.acquire(ctx, id)
	if err != nil || !m.isStale(ctx, ref.Value, after) {
		return ref, err
	}
	m.release(ref)
	return m.acquire(ctx, id)
}

// isStale reports whether a session ends before a position that a client has, while its log goes on: another server has
// taken the session and written to it, and this one does not know yet. The session is lost then.
func (m *Manager) isStale(ctx context.Context, s *live.Session, after *int64) bool {
	if m.owners == nil || after == nil || position.Record(*after) <= s.Applied() {
		return false
	}
	last, _, _, err := m.owners.Standing(ctx, s.Key())
	if err != nil || s.IsWriting() || last <= s.Applied() {
		return false // the position is judged by what is known
	}
	s.Lose()
	return true
}

// LostAll is Lost for all sessions: this server cannot prove any more that it lives, and does not know what it owns.
// What it claims afterwards it claims as another server, which finds what it had before like what others have left.
func (m *Manager) LostAll() {
	var all []*live.Session
	m.sessions.Each(func(s *live.Session, users, _ int) {
		if users > 0 {
			all = append(all, s)
		}
	})
	lock.Do(&m.mu, func() { clear(m.unreleased) })
	m.store.Accounts.LostAll()
	m.places.LostAll()
	for _, s := range all {
		s.Lose()
	}
}
