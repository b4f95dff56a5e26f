package storetest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// rowName is the key of a row within its session.
type rowName struct {
	kind store.RowKind
	id   string
}

func newModelSession(n store.NewSession) *modelSession {
	at := micro(n.CreatedAt)
	s := &modelSession{updated: at, rows: map[rowName]store.Row{}}
	s.info = store.Info{Creator: n.Creator, ClientRef: n.ClientRef, Budget: n.Budget, Version: 1,
		DropToolPayloads: n.DropToolPayloads, Metadata: n.Metadata, Agent: n.Agent}
	s.info.ID, s.info.CreatedAt = n.ID, at
	s.label(n.Labels)
	return s
}

// has reports whether the log has records, but for their data.
func (s *modelSession) has(recs []record.Record) bool {
	return !slices.ContainsFunc(recs, func(r record.Record) bool {
		if r.Seq < 1 || r.Seq > int64(len(s.log)) {
			return true
		}
		old := s.log[r.Seq-1]
		return old.TurnID != r.TurnID || old.Kind != r.Kind || !old.Time.Equal(micro(r.Time))
	})
}

func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func (s *modelSession) label(labels map[string]string) {
	out := maps.Clone(s.info.Labels)
	for key, value := range labels {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	maps.DeleteFunc(out, func(_, value string) bool { return value == "" })
	if len(out) == 0 {
		out = nil
	}
	s.info.Labels = out
}

func (s *modelSession) write(rows []store.Row) {
	for _, r := range rows {
		r.CreatedAt, r.Data = micro(r.CreatedAt), bytes.Clone(r.Data)
		name := rowName{r.Kind, r.ID}
		if old, ok := s.rows[name]; ok {
			r.Seq, r.CreatedAt = old.Seq, old.CreatedAt
		}
		s.rows[name] = r
	}
}

func (s *modelSession) full() store.Info {
	i := s.info
	i.Head, i.Labels = s.head(s.info.ID), maps.Clone(s.info.Labels)
	return i
}

// repeated decides on an append to a log that does not end at b.After.
func (m *model) repeated(s *modelSession, b store.Batch) error {
	end := b.After + int64(len(b.Records))
	if b.After < s.purged || end > int64(len(s.log)) || !slices.EqualFunc(s.log[b.After:end], b.Records, same) {
		if b.Create != nil {
			return store.ErrSessionExists
		}
		return store.ErrConflict
	}
	switch k, ok := m.key(b.Key); {
	case b.Key == nil || ok && k == *b.Key:
		return nil
	case ok:
		return store.ErrKeyTaken
	case b.Create != nil:
		return store.ErrSessionExists
	}
	return store.ErrConflict
}

// key returns the stored key with the scope and the name of k, which may be nil.
func (m *model) key(k *store.Key) (store.Key, bool) {
	if k == nil {
		return store.Key{}, false
	}
	found, ok := m.keys[[2]string{k.Scope, k.Name}]
	return found, ok
}

func (m *model) name(k *store.Key) {
	if k != nil {
		m.keys[[2]string{k.Scope, k.Name}] = *k
	}
}

func wellNamed(id string, labels map[string]string) bool {
	_, nameless := labels[""]
	return id != "" && !nameless
}

func wellIndexed(id string, rows []store.Row, k *store.Key) bool {
	ok := k == nil || k.Name != "" && k.SessionID == id
	for _, r := range rows {
		ok = ok && knownRow(r.Kind) && r.ID != "" && r.SessionID == id
	}
	return ok
}

func knownRow(k store.RowKind) bool {
	return k == store.RowTurn || k == store.RowInteraction || k == store.RowGoal
}

// begin returns the error that a method that writes starts with.
func (m *model) begin(ctx context.Context, wellFormed bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !wellFormed:
		return store.ErrMalformed
	case m.failed:
		return store.ErrFailed
	}
	return nil
}

func (m *model) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx, wellNamed(n.ID, n.Labels) && wellIndexed(n.ID, nil, key)); err != nil {
		return err
	}
	if m.sessions[n.ID] != nil {
		return store.ErrSessionExists
	}
	if _, ok := m.key(key); ok {
		return store.ErrKeyTaken
	}
	if err := m.tooMany(&n); err != nil {
		return err
	}
	m.sessions[n.ID] = newModelSession(n)
	m.name(key)
	return nil
}

// tooMany refuses a session of which its tenant has as many as it may.
func (m *model) tooMany(n *store.NewSession) error {
	of, sessions := tenant.Of(n.ID), int64(0)
	if of == "" {
		return nil
	}
	for id := range m.sessions {
		if tenant.Of(id) == of {
			sessions++
		}
	}
	return n.TooMany(sessions)
}

func (m *model) Update(ctx context.Context, id string, c store.Change) (store.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx, wellNamed("some", c.Labels)); err != nil {
		return store.Info{}, err
	}
	s := m.sessions[id]
	switch {
	case s == nil:
		return store.Info{}, store.ErrNoSession
	case c.Version != 0 && c.Version != s.info.Version:
		return store.Info{}, store.ErrConflict
	}
	s.info.Version++
	s.label(c.Labels)
	if c.ClientRef != nil {
		s.info.ClientRef = *c.ClientRef
	}
	if c.Metadata != nil {
		s.info.Metadata = *c.Metadata
	}
	if c.Archived != nil {
		s.info.Archived = *c.Archived
	}
	if c.Budget != nil {
		s.info.Budget = *c.Budget
	}
	if !c.At.IsZero() {
		s.updated = micro(c.At)
	}
	return s.full(), nil
}

func (m *model) Delete(ctx context.Context, id string, lastSeq int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx, true); err != nil {
		return err
	}
	switch s := m.sessions[id]; {
	case s == nil:
		return store.ErrNoSession
	case lastSeq != int64(len(s.log)):
		return store.ErrConflict
	}
	delete(m.sessions, id)
	maps.DeleteFunc(m.keys, func(_ [2]string, k store.Key) bool { return k.SessionID == id })
	return nil
}

func (m *model) Fork(ctx context.Context, f store.Fork) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	wellFormed := f.Seq >= 0 && wellNamed(f.Into.ID, f.Into.Labels) && wellIndexed(f.Into.ID, f.Rows, f.Key)
	if err := m.begin(ctx, wellFormed); err != nil {
		return err
	}
	from := m.sessions[f.From]
	switch {
	case m.sessions[f.Into.ID] != nil:
		return store.ErrSessionExists
	case from == nil:
		return store.ErrNoSession
	case f.Seq > int64(len(from.log)), f.Seq > 0 && from.purged > 0:
		return store.ErrConflict
	}
	if _, ok := m.key(f.Key); ok {
		return store.ErrKeyTaken
	}
	if err := m.tooMany(&f.Into); err != nil {
		return err
	}
	s := newModelSession(f.Into)
	s.log = slices.Clone(from.log[:f.Seq])
	for i := range s.log {
		if f.Recode == nil {
			break
		}
		if err := f.Recode(&s.log[i]); err != nil {
			return err
		}
	}
	s.write(f.Rows)
	s.open, s.info.LastTurn, s.info.LastStatus = f.OpenTurn, f.LastTurn, f.LastStatus
	s.info.ForkedFrom, s.info.ForkedAt, s.info.Inherited = f.From, f.At, f.Seq
	m.sessions[f.Into.ID] = s
	m.name(f.Key)
	return nil
}

func (m *model) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	bare := len(b.Records) == 0 && len(b.Shared) == 0 && b.Create == nil && b.Key == nil && b.Epoch == 0
	if err := m.begin(ctx, bare && wellIndexed(b.SessionID, b.Rows, nil)); err != nil {
		return err
	}
	s := m.sessions[b.SessionID]
	switch {
	case s == nil:
		return store.ErrNoSession
	case lastSeq != int64(len(s.log)):
		return store.ErrConflict
	}
	clear(s.rows)
	s.write(b.Rows)
	s.info.Usage, s.info.LastTurn, s.info.LastStatus = b.Usage, b.LastTurn, b.LastStatus
	return nil
}

func (m *model) Info(ctx context.Context, id string) (store.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case ctx.Err() != nil:
		return store.Info{}, ctx.Err()
	case s == nil:
		return store.Info{}, store.ErrNoSession
	}
	return s.full(), nil
}

// within reports whether a time is within bounds; a zero time is no bound.
func within(t, from, before time.Time) bool {
	return (from.IsZero() || !t.Before(micro(from))) && (before.IsZero() || t.Before(micro(before)))
}

// ofTenant reports whether a session belongs to a tenant; nil is any.
func ofTenant(id string, t *string) bool { return t == nil || tenant.Of(id) == *t }

func oneOf(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

func (m *model) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case q.Limit <= 0:
		return nil, store.ErrMalformed
	}
	order := func(a, b store.Info) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	}
	var all []store.Info
	for _, s := range m.sessions {
		i := s.full()
		ok := ofTenant(i.ID, q.Tenant) && (q.Archived == nil || *q.Archived == i.Archived) &&
			(q.ClientRef == "" || q.ClientRef == i.ClientRef) &&
			oneOf(q.LastStatuses, i.LastStatus) && within(i.CreatedAt, q.CreatedFrom, q.CreatedBefore) &&
			within(i.UpdatedAt, q.UpdatedFrom, q.UpdatedBefore) && (q.After == nil || order(*q.After, i) < 0)
		for key, value := range q.Labels {
			have, set := i.Labels[key]
			ok = ok && set && have == value
		}
		if ok {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, order)
	return all[:min(q.Limit, len(all))], nil
}

func (m *model) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return store.Row{}, ctx.Err()
	}
	if s := m.sessions[sessionID]; s != nil {
		if r, ok := s.rows[rowName{kind, id}]; ok {
			return r, nil
		}
	}
	return store.Row{}, store.ErrNotFound
}

func (m *model) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case q.Limit <= 0, !knownRow(q.Kind):
		return nil, store.ErrMalformed
	}
	order := func(a, b store.Row) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.SessionID, a.SessionID),
			cmp.Compare(b.Seq, a.Seq), strings.Compare(b.ID, a.ID))
	}
	var all []store.Row
	for id, s := range m.sessions {
		for _, r := range s.rows {
			if r.Kind == q.Kind && ofTenant(id, q.Tenant) &&
				(q.SessionID == "" || q.SessionID == id) && (q.TurnID == "" || q.TurnID == r.TurnID) &&
				oneOf(q.Statuses, r.Status) && within(r.CreatedAt, q.CreatedFrom, q.CreatedBefore) &&
				(q.After == nil || order(*q.After, r) < 0) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, order)
	return all[:min(q.Limit, len(all))], nil
}

func (m *model) Key(ctx context.Context, scope, name string) (store.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return store.Key{}, ctx.Err()
	}
	k, ok := m.key(&store.Key{Scope: scope, Name: name})
	if !ok {
		return store.Key{}, store.ErrNotFound
	}
	return k, nil
}

// Unindexed returns none: every session of a model has an index from the start.
func (*model) Unindexed(ctx context.Context, _ string, limit int) ([]store.Head, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limit <= 0:
		return nil, store.ErrMalformed
	}
	return nil, nil
}
