package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Limits of labels and client references, and the retries of a delete.
const (
	maxLabels        = 64
	maxLabelBytes    = 63
	maxLabelValue    = 1024
	maxClientRef     = 256
	maxMetadata      = 16 << 10
	deleteTries      = 64
	deleteRetryAfter = 20 * time.Millisecond
)

// Names are a caller's labels of a session and its reference to it, and what else it says of a new one.
type Names struct {
	// Labels are keys and values of the caller, and ClientRef is its own name of the session.
	Labels    map[string]string
	ClientRef string
	// DropToolPayloads has a new session keep what tools are given and return for the time of their turn alone.
	DropToolPayloads bool
	// ID is the id of a new session that the caller chooses; "" has one made.
	ID string
	// Metadata is the JSON text of an object of the caller's own; "" is none.
	Metadata string
	// Agent names the agent that runs in turns of a new session that bring none, until one does; nil is none.
	Agent *agentdv1.AgentRef
}

func (n Names) check(labels map[string]string) error {
	if err := checkPairs("labels", labels); err != nil {
		return err
	}
	if len(n.ClientRef) > maxClientRef || strings.Contains(n.ClientRef, "\x00") {
		return fault.Errorf(fault.Invalid, "client_ref has %d bytes, at most %d are allowed, none of them 0",
			len(n.ClientRef), maxClientRef).
			Breaking("client_ref", fault.RuleRange)
	}
	return checkMetadata(n.Metadata)
}

// checkMetadata checks the size of a session's metadata, whose form whoever has read the request has checked.
func checkMetadata(text string) error {
	if n := len(text); n > maxMetadata {
		return fault.Errorf(fault.LimitExceeded, "metadata takes %d bytes as JSON, at most %d are allowed",
			n, maxMetadata).
			Breaking("metadata", fault.RuleRange).Over("metadata_bytes", maxMetadata, n)
	}
	return nil
}

// checkPairs checks labels, or what is bounded as they are.
func checkPairs(field string, pairs map[string]string) error {
	if len(pairs) > maxLabels {
		return fault.Errorf(fault.LimitExceeded, "%s: %d of them, at most %d are allowed",
			field, len(pairs), maxLabels).
			Breaking(field, fault.RuleRange).Over(field, maxLabels, len(pairs))
	}
	for k, v := range pairs {
		if k == "" || len(k) > maxLabelBytes || len(v) > maxLabelValue || strings.Contains(k+v, "\x00") {
			return fault.Errorf(fault.Invalid,
				"%s[%.64q]: a key has 1 to %d bytes, a value at most %d, none of them 0",
				field, k, maxLabelBytes, maxLabelValue).
				Breaking(field, fault.RuleRange)
		}
	}
	return nil
}

// CreateSession makes a session without turns and with a budget; the zero Budget is none. A repeat under
// the same key returns the session that the first request made, as it is now. An id that the caller chooses
// takes the place of the key: o.Content tells a repeat. An error that a client may see is of type
// *fault.Error.
func (m *Manager) CreateSession(ctx context.Context, names Names, budget record.Budget, o Once) (index.Session, error) {
	if err := names.check(names.Labels); err != nil {
		return index.Session{}, err
	}
	if err := budget.Check("budget"); err != nil {
		return index.Session{}, err
	}
	scope := principal.Of(ctx).Key() + scopeSession
	if names.ID != "" {
		if err := checkChosen(names.ID, o); err != nil {
			return index.Session{}, err
		}
		scope, o.Key = principal.Of(ctx).Key()+scopeNamed, names.ID
	}
	done, err := m.once(ctx, scope, o)
	if before, ok := errors.AsType[*Repeated](err); ok {
		return m.Session(ctx, before.SessionID)
	}
	if err != nil && names.ID != "" && fault.As(err).Code == fault.Conflict {
		return index.Session{}, refuseUsedID(names.ID)
	}
	if err != nil {
		return index.Session{}, err
	}
	defer done()
	if err := m.store.Refuses(); err != nil {
		return index.Session{}, err
	}
	s := m.newSession(ctx, names)
	if names.Agent != nil {
		_, ref, err := m.registered(ctx, names.Agent, false)
		if err != nil {
			return index.Session{}, err
		}
		s.Agent = pinned(ref)
	}
	s.Budget = budget
	err = m.create(ctx, s, o.names(scope, s.ID, ""), names.ID != "")
	if errors.Is(err, store.ErrKeyTaken) { // by another server
		err = m.madeBefore(ctx, scope, o)
	}
	before, again := errors.AsType[*Repeated](err)
	switch {
	case again:
		return m.Session(ctx, before.SessionID)
	case errors.Is(err, store.ErrSessionExists) && names.ID != "":
		return index.Session{}, refuseUsedID(names.ID)
	case s.IsTooMany(err):
		return index.Session{}, refusal.TooManySessions(s.MaxOfTenant)
	case err != nil:
		return index.Session{}, fmt.Errorf("session %s: create: %w", s.ID, err)
	}
	made, err := m.lists.Session(ctx, s.ID)
	return seen(made), err
}

// create makes a session in the store. While it makes one under an id that the caller has chosen, a turn that is to
// make that session waits, and then finds it.
func (m *Manager) create(ctx context.Context, s store.NewSession, key *store.Key, chosen bool) error {
	if !chosen {
		return m.store.Create(ctx, s, key)
	}
	if _, err := m.store.Head(ctx, s.ID); !errors.Is(err, store.ErrNoSession) {
		if err == nil {
			err = store.ErrSessionExists
		}
		return err
	}
	ref := m.sessions.Replace(s.ID, func(*live.Session) {})
	if ref == nil { // a turn is about to make it
		return store.ErrSessionExists
	}
	err := m.store.Create(ctx, s, key)
	m.sessions.Remove(ref)
	ref.Set(nil, errKept) // who waits looks in the store
	m.release(ref)
	return err
}

// checkChosen checks the id that a caller chooses for a new session.
func checkChosen(id string, o Once) error {
	switch {
	case !idPattern.MatchString(id):
		return fault.Errorf(fault.Invalid,
			"session_id: an id that the caller chooses has 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, "+
				"a letter or a digit first (received %.140q)", id).
			Breaking("session_id", fault.RuleFormat)
	case o.Key != "":
		return fault.Errorf(fault.Invalid,
			"idempotency_key together with session_id: a repeat is known by its session_id, leave out idempotency_key").
			Breaking("idempotency_key", fault.RuleExcluded).Breaking("session_id", fault.RuleExcluded)
	}
	return nil
}

// refuseUsedID refuses an id that a session has.
func refuseUsedID(id string) *fault.Error {
	return fault.Errorf(fault.Conflict,
		"session_id %q is in use, and not by a repeat of this request: choose another id", id).
		Breaking("session_id", fault.RuleConflict)
}

func (m *Manager) newSession(ctx context.Context, n Names) store.NewSession {
	by := principal.Of(ctx)
	return store.NewSession{
		ID: newSessionKey(ctx, n.ID), CreatedAt: m.store.Stamp(), Creator: by.Key(),
		Labels: n.Labels, ClientRef: n.ClientRef, Metadata: n.Metadata, DropToolPayloads: n.DropToolPayloads,
		MaxOfTenant: m.limits().SessionsOf(by.Tenant),
	}
}

// UpdateSession changes a session at the present time, which replaces c.At, and returns the changed
// session. A budget applies at once, also to a running turn. A session of another version is a
// *fault.Error of code CONFLICT.
func (m *Manager) UpdateSession(ctx context.Context, id string, c store.Change) (index.Session, error) {
	names := Names{}
	if c.Metadata != nil {
		names.Metadata = *c.Metadata
	}
	if c.ClientRef != nil {
		names.ClientRef = *c.ClientRef
	}
	if err := names.check(c.Labels); err != nil {
		return index.Session{}, err
	}
	if c.Budget != nil {
		if err := c.Budget.Check("budget"); err != nil {
			return index.Session{}, err
		}
	}
	if err := m.store.Refuses(); err != nil {
		return index.Session{}, err
	}
	// A turn that starts sees the session before or after the change.
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return index.Session{}, err
	}
	done, err := m.exclusive.Lock(ctx, work{scopeUpdate, key})
	if err != nil {
		return index.Session{}, err
	}
	defer done()
	held, letGo, err := m.hold(ctx, key)
	if err != nil {
		return index.Session{}, err
	}
	defer letGo()
	before, err := m.Session(ctx, id)
	if err != nil {
		return index.Session{}, err
	}
	if n := labelsAfter(before.Labels, c.Labels); n > maxLabels {
		return index.Session{}, fault.Errorf(fault.LimitExceeded,
			"labels: the session would have %d of them, at most %d are allowed", n, maxLabels).
			Breaking("labels", fault.RuleRange).Over("labels", maxLabels, n)
	}
	c.At = m.store.Stamp()
	info, err := m.store.Update(ctx, key, c)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return index.Session{}, refusal.NoSession(key)
	case errors.Is(err, store.ErrConflict):
		return index.Session{}, fault.Errorf(fault.Conflict, "version %d: session %q has version %d; read it again",
			c.Version, id, before.Version).
			Breaking("version", fault.RuleConflict)
	case err != nil:
		return index.Session{}, fmt.Errorf("session %s: update: %w", id, err)
	}
	if held != nil {
		held.SetOwn(info)
	} else if ref := m.sessions.Find(key); ref != nil && m.owners == nil {
		err := ref.Wait(ctx)
		if s, ok := ref.Now(); ok {
			s.SetOwn(info)
		} else if ctx.Err() != nil {
			return index.Session{}, err
		}
	}
	now, err := m.lists.SessionNow(ctx, info)
	return seen(now), err
}

// labelsAfter returns the number of labels after a change.
func labelsAfter(have, set map[string]string) int {
	n := len(have)
	for k, v := range set {
		_, had := have[k]
		switch {
		case had && v == "":
			n--
		case !had && v != "":
			n++
		}
	}
	return n
}

// DeleteSession cancels the turns of a session and removes it. A session that stays in use is a
// *fault.Error of code SESSION_BUSY. A store without space still removes sessions without an open turn:
// that frees space.
func (m *Manager) DeleteSession(ctx context.Context, id string) error {
	if err := m.store.Refuses(); err != nil && !errors.Is(err, store.ErrFull) {
		return err
	}
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return err
	}
	for range deleteTries {
		done, err := m.tryDelete(ctx, key)
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(deleteRetryAfter): // the session is in use
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fault.Errorf(fault.Busy, "session %q is in use all the time; try again", id).After(refusal.Later)
}

// tryDelete reports false if the session is in use.
func (m *Manager) tryDelete(ctx context.Context, key string) (done bool, err error) {
	info, err := m.lists.Session(ctx, key)
	if err != nil {
		return false, err
	}
	if info.OpenTurn != "" && info.Purged == 0 {
		if err := m.store.Refuses(); err != nil {
			return false, err
		}
		if err := m.stopAll(ctx, key); err != nil {
			return false, err
		}
	}
	err = m.whileUnused(key, refusal.NoSession(key), func() error {
		head, err := m.store.Head(ctx, key)
		switch {
		case errors.Is(err, store.ErrNoSession):
			return refusal.NoSession(key)
		case err != nil:
			return fmt.Errorf("session %s: %w", key, err)
		case head.OpenTurn != "":
			return store.ErrConflict
		}
		return m.store.Delete(ctx, key, head.LastSeq)
	})
	if errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// stopAll cancels the turns of a session, queued ones first.
func (m *Manager) stopAll(ctx context.Context, key string) error {
	const why = "the session was deleted"
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	if err = ref.Value.AwaitStart(ctx); err == nil { // of which only the store may know yet
		err = ref.Value.DropQueued(ctx, why)
	}
	if g := ref.Value.Goal(); err == nil && g.IsOpen() {
		err = m.stopGoal(ctx, ref.Value)
	}
	open := ref.Value.IsOpen()
	m.release(ref)
	if err != nil || !open {
		return err
	}
	return m.cancelTurn(ctx, key, "", why)
}
