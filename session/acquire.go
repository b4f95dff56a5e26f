package session

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/table"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// sessionRef is a counted reference to a session in memory: acquire returns it, release ends it.
type sessionRef = table.Entry[*live.Session]

// newTable returns the table of the sessions in memory. A broken session leaves it even while it has users.
func newTable(limits limits.Limits, lapses bool) *table.Table[*live.Session] {
	return table.New(table.Policy[*live.Session]{
		MaxIdle: limits.MaxIdleSessions,
		Lapses:  lapses,
		Broken:  (*live.Session).IsBroken,
		Useless: (*live.Session).Useless,
		Left:    (*live.Session).LeaveMemory,
	})
}

// errKept is the error of a session that was to be removed and still exists.
var errKept = errors.New("session: not removed")

// acquire returns a reference to the session that a caller names, which it loads if needed; "" makes a new
// session.
func (m *Manager) acquire(ctx context.Context, id string) (*sessionRef, error) {
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return nil, err
	}
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := notFound(ref.Value, principal.Of(ctx)); err != nil {
		m.release(ref)
		return nil, err
	}
	return ref, nil
}

// acquireKey is acquire for the key of a session.
func (m *Manager) acquireKey(ctx context.Context, key string) (*sessionRef, error) {
	for {
		if ref, err := m.tryAcquire(ctx, key, false); !errors.Is(err, errKept) {
			return ref, err
		}
	}
}

// acquireToStart is acquire for a turn that is about to start. With create, a session that does not exist
// is made under its id; its first record makes it in the store. Without create, a session that is not in
// the store yet does not exist.
func (m *Manager) acquireToStart(ctx context.Context, id string, create bool) (*sessionRef, error) {
	if id == "" || !create {
		ref, err := m.acquire(ctx, id)
		if err == nil && id != "" && ref.Value.IsUnmade() {
			m.release(ref)
			return nil, refusal.NoSession(ref.Value.Key())
		}
		return ref, err
	}
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return nil, err
	}
	for {
		ref, err := m.tryAcquire(ctx, key, true)
		if err == nil || !errors.Is(err, errKept) && fault.As(err).Code != fault.SessionNotFound {
			return ref, err
		}
		// Another caller has looked for it without create, or has just removed it.
	}
}

// idPattern matches the ids that callers may choose for sessions and turns.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// tryAcquire is acquireKey, or errKept. With create it makes the session of the key if there is none; then
// SESSION_NOT_FOUND is the error of another caller's tryAcquire.
func (m *Manager) tryAcquire(ctx context.Context, key string, create bool) (*sessionRef, error) {
	fresh := key == ""
	if fresh {
		key = newSessionKey(ctx, "")
	}
	ref, found := m.sessions.Use(key)
	if found {
		if err := ref.Wait(ctx); err != nil {
			m.release(ref)
			return nil, err
		}
		return ref, nil
	}
	var s *live.Session
	var err error
	if !fresh {
		// Other callers may wait for this read, so it does not end with ctx.
		readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		lapsed, _ := ref.Lapsed()
		s, err = m.load(readCtx, key, lapsed)
		cancel()
	}
	var refused error // for this caller only
	if errors.Is(err, store.ErrNoSession) {
		err = refusal.NoSession(key)
		if create {
			refused = checkChosenID(tenant.ID(key))
			fresh = refused == nil
		}
	}
	if fresh {
		s, err = live.MakeSession(m.env(), key, principal.Of(ctx)), nil
		if m.owners != nil {
			s.Lease.Hold(1) // of its first append
		}
	}
	ref.Set(s, err)
	if err == nil && !fresh {
		if m.owners != nil {
			m.moved(key)
		}
		if st := s.Team(); st.Open() > 0 {
			m.wakeLater(key, 0)
		}
	}
	if refused != nil {
		err = refused
	}
	if err != nil {
		m.release(ref)
		return nil, err
	}
	return ref, nil
}

// checkChosenID refuses an id under which a caller may not make a session.
func checkChosenID(id string) error {
	if !idPattern.MatchString(id) {
		return fault.Errorf(fault.Invalid,
			"session_id %.140q: there is no such session, and none is made under that id: "+
				"it must be 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first", id).
			Breaking("session_id", fault.RuleFormat)
	}
	return nil
}

// sessionInMemory returns a session that is in memory and loaded, or nil.
func (m *Manager) sessionInMemory(key string) *live.Session {
	ref := m.sessions.Find(key)
	if ref == nil {
		return nil
	}
	s, _ := ref.Now()
	return s
}

// whileUnused calls f for a session without users other than observers; with users it returns ErrConflict.
// Callers of acquire wait meanwhile: they get gone if f succeeds, else the session. Observers get gone.
func (m *Manager) whileUnused(key string, gone *fault.Error, f func() error) error {
	ref := m.sessions.Replace(key, func(s *live.Session) { s.EndObservers(gone) })
	if ref == nil {
		return store.ErrConflict
	}
	var c Claim
	var err error
	if m.owners != nil {
		if c, err = m.claim(context.Background(), key); errors.Is(err, store.ErrNoSession) {
			err = nil // f finds that out
		}
	}
	if err == nil {
		err = f()
	}
	if m.owners != nil {
		defer m.letGo(key, unreleased{c.Epoch, SameDue})
	}
	if err == nil {
		ref.Set(nil, gone)
	} else {
		m.sessions.Remove(ref) // the next acquire reloads it
		ref.Set(nil, errKept)
	}
	m.release(ref)
	m.rouseReaders(key)
	return err
}

// env returns what the sessions of the manager share.
func (m *Manager) env() live.Env {
	return live.Env{Store: m.store, Runner: m.runner, Host: host{m}}
}

// reader returns a session that is only read from.
func (m *Manager) reader(key string) *live.Session {
	env := m.env()
	env.Host = nil
	return live.NewSession(env, key)
}

// host is the manager as its sessions call it.
type host struct{ *Manager }

// Present calls f with a session, and resumes its suspended turn: a caller may keep a Turn for longer than
// its session stays in memory.
func (h host) Present(ctx context.Context, key string, f func(*live.Session) error) error {
	ref, err := h.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	defer h.release(ref)
	if err := f(ref.Value); err != nil || !ref.Value.IsSuspended() {
		return err
	}
	h.resumeAfter(ctx, ref.Value, nil)
	return nil
}

// CancelTurn cancels a turn; see Manager.CancelTurn.
func (h host) CancelTurn(ctx context.Context, key, turnID, reason string) error {
	return h.cancelTurn(ctx, key, turnID, reason)
}

// FirstRecord returns the record with which a turn began, or was queued.
func (h host) FirstRecord(ctx context.Context, key, turnID string) (int64, error) {
	return h.lists.FirstRecord(ctx, key, turnID)
}

// Interaction returns an interaction of a session.
func (h host) Interaction(ctx context.Context, key, id string) (*index.Interaction, error) {
	return h.lists.Interaction(ctx, key, id)
}

// Cleared ends the probation of a session's turn.
func (h host) Cleared(s *live.Session) { h.cleared(s) }

// Calmed resets the attempts of a session's turn.
func (h host) Calmed(s *live.Session) { h.resetAttempts(s, false) }

// Rouse notifies the SessionWatchers of a session.
func (h host) Rouse(key string) { h.rouseReaders(key) }

// loadTimeout bounds the reading of a log, which no caller can cancel.
const loadTimeout = time.Minute
