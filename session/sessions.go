package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
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
// the same key returns the session that the first request made, as it is now. An error that a client may
// see is of type *fault.Error.
func (m *Manager) CreateSession(ctx context.Context, names Names, budget record.Budget, o Once) (index.Session, error) {
	if err := names.check(names.Labels); err != nil {
		return index.Session{}, err
	}
	if err := budget.Check("budget"); err != nil {
		return index.Session{}, err
	}
	done, err := m.once(ctx, principal.Of(ctx).Key()+scopeSession, o)
	if before, ok := errors.AsType[*Repeated](err); ok {
		return m.Session(ctx, before.SessionID)
	}
	if err != nil {
		return index.Session{}, err
	}
	defer done()
	if err := m.store.Refuses(); err != nil {
		return index.Session{}, err
	}
	s := m.newSession(ctx, names)
	s.Budget = budget
	err = m.store.Create(ctx, s, o.names(principal.Of(ctx).Key()+scopeSession, s.ID, ""))
	switch {
	case s.IsTooMany(err):
		return index.Session{}, refusal.TooManySessions(s.MaxOfTenant)
	case err != nil:
		return index.Session{}, fmt.Errorf("session %s: create: %w", s.ID, err)
	}
	made, err := m.lists.Session(ctx, s.ID)
	return seen(made), err
}

func (m *Manager) newSession(ctx context.Context, n Names) store.NewSession {
	by := principal.Of(ctx)
	return store.NewSession{
		ID: newSessionKey(ctx), CreatedAt: m.store.Stamp(), Creator: by.Key(), Labels: n.Labels, ClientRef: n.ClientRef,
		DropToolPayloads: n.DropToolPayloads, MaxOfTenant: m.limits().SessionsOf(by.Tenant),
	}
}

// UpdateSession changes a session at the present time, which replaces c.At, and returns the changed
// session. A budget applies at once, also to a running turn. A session of another version is a
// *fault.Error of code CONFLICT.
func (m *Manager) UpdateSession(ctx context.Context, id string, c store.Change) (index.Session, error) {
	names := Names{}
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
	key := keyOf(ctx, id)
	done, err := m.exclusive.Lock(ctx, work{scopeUpdate, key})
	if err != nil {
		return index.Session{}, err
	}
	defer done()
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
	if ref := m.sessions.Find(key); ref != nil {
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
	for range deleteTries {
		done, err := m.tryDelete(ctx, keyOf(ctx, id))
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
	open := ref.Value.IsOpen()
	m.release(ref)
	if err != nil || !open {
		return err
	}
	return m.cancelTurn(ctx, key, "", why)
}
