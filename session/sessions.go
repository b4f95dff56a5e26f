package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Limits of what a session is called.
const (
	maxLabels        = 64
	maxLabelBytes    = 63
	maxLabelValue    = 1024
	maxClientRef     = 256
	listSessions     = 64 // that a list reads at a time
	deleteTries      = 64
	deleteRetryAfter = 20 * time.Millisecond
)

func newSessionID() string { return strings.ToLower(rand.Text()) }

// Summary is what is known of a session.
type Summary struct {
	store.Info
	// LastIs is how the last turn is; 0 when there is none.
	LastIs Status
}

// LastPosition is the position of the last thing that has happened in the
// session, 0 before the first.
func (s *Summary) LastPosition() int64 { return position.LastOf(s.LastSeq) }

// Names is what a caller may call a session.
type Names struct {
	// Labels are its own notes, and ClientRef its own name for it.
	Labels    map[string]string
	ClientRef string
}

func (n Names) check(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fault.Errorf(fault.LimitExceeded, "labels: %d of them, at most %d are allowed", len(labels), maxLabels).
			Breaking("labels", fault.RuleRange).Over("labels", maxLabels, len(labels))
	}
	for k, v := range labels {
		if k == "" || len(k) > maxLabelBytes || len(v) > maxLabelValue || strings.Contains(k+v, "\x00") {
			return fault.Errorf(fault.Invalid, "labels[%.64q]: a key has 1 to %d bytes, a value at most %d, none of them 0", k, maxLabelBytes, maxLabelValue).
				Breaking("labels", fault.RuleRange)
		}
	}
	if len(n.ClientRef) > maxClientRef || strings.Contains(n.ClientRef, "\x00") {
		return fault.Errorf(fault.Invalid, "client_ref has %d bytes, at most %d are allowed, none of them 0", len(n.ClientRef), maxClientRef).
			Breaking("client_ref", fault.RuleRange)
	}
	return nil
}

// CreateSession makes a session without turns, whose budget counts from its beginning;
// the zero Budget is none. With a key that was used before for the same it returns the
// session of then, as it is now. An error that a client may see is of type *fault.Error.
func (m *Manager) CreateSession(ctx context.Context, names Names, budget record.Budget, o Once) (Summary, error) {
	if err := names.check(names.Labels); err != nil {
		return Summary{}, err
	}
	if err := budget.Check("budget"); err != nil {
		return Summary{}, err
	}
	done, err := m.once(ctx, principal.Of(ctx).Key()+scopeSession, o)
	if before, ok := errors.AsType[*Repeated](err); ok {
		return m.Session(ctx, before.SessionID)
	}
	if err != nil {
		return Summary{}, err
	}
	defer done()
	if err := m.store.refuses(); err != nil {
		return Summary{}, err
	}
	s := names.newSession(ctx, m.store.Stamp())
	s.Budget = budget
	if err := m.store.Create(ctx, s, o.names(principal.Of(ctx).Key()+scopeSession, s.ID, "")); err != nil {
		return Summary{}, fmt.Errorf("session %s: create: %w", s.ID, err)
	}
	return m.Session(ctx, s.ID)
}

func (n Names) newSession(ctx context.Context, at time.Time) store.NewSession {
	return store.NewSession{ID: newSessionID(), CreatedAt: at, Creator: principal.Of(ctx).Key(), Labels: n.Labels, ClientRef: n.ClientRef}
}

// Session says what is known of a session, also of one whose log is not kept any
// more.
func (m *Manager) Session(ctx context.Context, id string) (Summary, error) {
	info, err := m.store.Info(ctx, id)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return Summary{}, errNoSession(id)
	case err != nil:
		return Summary{}, fmt.Errorf("session %s: %w", id, err)
	}
	return m.sessionNow(ctx, info)
}

// sessionNow adds how the last turn is.
func (m *Manager) sessionNow(ctx context.Context, info store.Info) (Summary, error) {
	out := Summary{Info: info, LastIs: overAs[info.LastStatus]}
	h := lock.Get(&m.mu, func() *held { return m.inTableLocked(info.ID) })
	if h != nil {
		select {
		case <-h.ready:
		default:
			h = nil
		}
	}
	if h != nil && h.err == nil {
		is := h.s.lastIs(info.LastTurn) // what is written counts once it is shown
		if is == 0 && info.LastStatus == rowOpen {
			is = Running // it is just recorded
		}
		if is != 0 {
			out.LastIs = is
			return out, nil
		}
	}
	if info.LastStatus != rowOpen {
		return out, nil
	}
	var err error
	out.LastIs, err = m.store.waitsFor(ctx, info)
	return out, err
}

// lastIs is how a turn is if it is the session's last one, else 0.
func (s *Session) lastIs(id string) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.index.last != id:
		return 0
	case s.index.lastAs == rowOpen:
		return s.statusLocked()
	default:
		return overAs[s.index.lastAs]
	}
}

// Filter says which sessions; what is zero does not matter.
type Filter struct {
	// Archived is whether the session has to be archived; nil is either.
	Archived *bool
	// Labels are those that it has to have, ClientRef its name.
	Labels    map[string]string
	ClientRef string
	// LastIs are those of which its last turn has to be one.
	LastIs []Status
	// CreatedFrom and UpdatedFrom are the first times that count, CreatedBefore
	// and UpdatedBefore the first ones after that which do not.
	CreatedFrom, CreatedBefore, UpdatedFrom, UpdatedBefore time.Time
}

// size is about how many bytes of a list it takes.
func (s *Summary) size() int {
	n := len(s.ClientRef)
	for k, v := range s.Labels {
		n += len(k) + len(v)
	}
	return n
}

// ListSessions returns at most limit sessions, fewer if they have much to say,
// newest first, and the token of the next page, "" on the last one. page is a token
// of the same filter, "" for the first page.
func (m *Manager) ListSessions(ctx context.Context, f Filter, page string, limit int) (sessions []Summary, next string, err error) {
	hash := queryHash(f)
	after, err := readToken(page, hash)
	if err != nil {
		return nil, "", err
	}
	q := store.InfoQuery{
		Archived: f.Archived, Labels: f.Labels, ClientRef: f.ClientRef, LastStatuses: recorded(f.LastIs),
		CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore, UpdatedFrom: f.UpdatedFrom, UpdatedBefore: f.UpdatedBefore,
		Limit: min(limit+1, listSessions),
	}
	bytes := 0
	if after != nil {
		q.After = &store.Info{Head: store.Head{ID: after.Session, CreatedAt: after.created()}}
	}
	for {
		infos, err := m.store.Sessions(ctx, q)
		if err != nil {
			return nil, "", fmt.Errorf("session: list sessions: %w", err)
		}
		for _, info := range infos {
			s, err := m.sessionNow(ctx, info)
			if err != nil {
				return nil, "", err
			}
			if len(f.LastIs) > 0 && !slices.Contains(f.LastIs, s.LastIs) {
				continue
			}
			if full(len(sessions), limit, bytes, s.size()) {
				last := sessions[len(sessions)-1]
				return sessions, token{Query: hash, Created: last.CreatedAt.UnixMicro(), Session: last.ID}.String(), nil
			}
			sessions = append(sessions, s)
			bytes += s.size()
		}
		if len(infos) < q.Limit {
			return sessions, "", nil
		}
		q.After = &infos[len(infos)-1]
	}
}

// UpdateSession changes a session, now whatever c.At says, and returns it as it is
// then. A budget holds at once, also for a turn that runs. A session of another version is a *fault.Error of code CONFLICT.
func (m *Manager) UpdateSession(ctx context.Context, id string, c store.Change) (Summary, error) {
	names := Names{}
	if c.ClientRef != nil {
		names.ClientRef = *c.ClientRef
	}
	if err := names.check(c.Labels); err != nil {
		return Summary{}, err
	}
	if c.Budget != nil {
		if err := c.Budget.Check("budget"); err != nil {
			return Summary{}, err
		}
	}
	if err := m.store.refuses(); err != nil {
		return Summary{}, err
	}
	// Whoever starts a turn sees the session before or after the change.
	done, err := m.exclusive(ctx, scopeUpdate, id)
	if err != nil {
		return Summary{}, err
	}
	defer done()
	before, err := m.Session(ctx, id)
	if err != nil {
		return Summary{}, err
	}
	if n := labelsAfter(before.Labels, c.Labels); n > maxLabels {
		return Summary{}, fault.Errorf(fault.LimitExceeded, "labels: the session would have %d of them, at most %d are allowed", n, maxLabels).
			Breaking("labels", fault.RuleRange).Over("labels", maxLabels, n)
	}
	c.At = m.store.Stamp()
	info, err := m.store.Update(ctx, id, c)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return Summary{}, errNoSession(id)
	case errors.Is(err, store.ErrConflict):
		return Summary{}, fault.Errorf(fault.Conflict, "version %d: session %q has version %d; read it again", c.Version, id, before.Version).
			Breaking("version", fault.RuleConflict)
	case err != nil:
		return Summary{}, fmt.Errorf("session %s: update: %w", id, err)
	}
	if h := lock.Get(&m.mu, func() *held { return m.sessions[id] }); h != nil {
		if err := lock.Wait(ctx, h.ready); err != nil {
			return Summary{}, err
		}
		if h.err == nil {
			h.s.setOwn(info)
		}
	}
	return m.sessionNow(ctx, info)
}

// labelsAfter is how many labels there are after a change.
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

func (s *Session) isArchived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.archived
}

// DeleteSession stops what runs in a session and removes it. A session that
// others keep at work is a *fault.Error of code SESSION_BUSY. A store without space
// loses sessions that do not run all the same: that makes space.
func (m *Manager) DeleteSession(ctx context.Context, id string) error {
	if err := m.store.refuses(); err != nil && !errors.Is(err, store.ErrFull) {
		return err
	}
	for range deleteTries {
		done, err := m.tryDelete(ctx, id)
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(deleteRetryAfter): // somebody reads it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fault.Errorf(fault.Busy, "session %q is in use all the time; try again", id).After(retryLater)
}

// tryDelete reports false if somebody uses the session.
func (m *Manager) tryDelete(ctx context.Context, id string) (done bool, err error) {
	info, err := m.Session(ctx, id)
	if err != nil {
		return false, err
	}
	if info.OpenTurn != "" && info.Purged == 0 {
		if err := m.store.refuses(); err != nil {
			return false, err
		}
		if err := m.stopAll(ctx, id); err != nil {
			return false, err
		}
	}
	err = m.alone(id, errNoSession(id), func() error {
		head, err := m.store.Head(ctx, id)
		switch {
		case errors.Is(err, store.ErrNoSession):
			return errNoSession(id)
		case err != nil:
			return fmt.Errorf("session %s: %w", id, err)
		case head.OpenTurn != "":
			return store.ErrConflict
		}
		return m.store.Delete(ctx, id, head.LastSeq)
	})
	if errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// stopAll ends the turns of a session, those that wait first.
func (m *Manager) stopAll(ctx context.Context, id string) error {
	const why = "the session was deleted"
	h, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	if err = h.s.awaitStart(ctx); err == nil { // of which only the store may know yet
		err = h.s.dropQueued(ctx, why)
	}
	open := h.s.isOpen()
	m.release(h)
	if err != nil || !open {
		return err
	}
	return m.CancelTurn(ctx, id, "", why)
}

// alone does something to a session that nobody uses, and has who asks for the
// session meanwhile wait; they get gone if it succeeds, else the session. A session
// that somebody uses is ErrConflict.
func (m *Manager) alone(id string, gone *fault.Error, f func() error) error {
	h := m.replaceUnused(id, gone)
	if h == nil {
		return store.ErrConflict
	}
	err := f()
	h.err = gone
	if err != nil {
		h.err = errKept
		lock.Do(&m.mu, func() { delete(m.sessions, id) }) // who comes now reads it anew
	}
	close(h.ready)
	m.release(h)
	m.readers.rouse(id)
	return err
}

// replaceUnused puts an entry that is not ready in the place of a session that nobody
// uses, and ends those who observe it. It returns nil if somebody uses the session.
func (m *Manager) replaceUnused(id string, gone *fault.Error) *held {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.inTableLocked(id); h != nil {
		if h.users > h.observers {
			return nil
		}
		if h.idle != nil {
			m.idle.Remove(h.idle)
			h.idle = nil
		}
		delete(m.sessions, id)
		if h.observers > 0 {
			h.s.endObservers(gone)
		}
	}
	h := &held{id: id, ready: make(chan struct{}), users: 1}
	m.sessions[id] = h
	return h
}
