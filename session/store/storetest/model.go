package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// model is the plainest implementation of the contract. The suite compares other stores with it.
type model struct {
	mu       sync.Mutex // protects the fields below
	sessions map[string]*modelSession
	values   map[string]map[string]json.RawMessage
	spent    map[string]map[int64]record.Spent
	keys     map[[2]string]store.Key // by scope and name
	space    int                     // bytes of data that fit; 0 is no bound
	failing  bool                    // the next append fails, ...
	persists bool                    // ... having been done
	failed   bool
}

type modelSession struct {
	info    store.Info // but for what is below
	updated time.Time
	open    string
	log     []record.Record
	purged  int64
	// attempts, waits and epoch are those of the head.
	attempts int64
	waits    bool
	epoch    int64
	rows     map[rowName]store.Row
}

func newModel() *model {
	return &model{
		sessions: map[string]*modelSession{},
		values:   map[string]map[string]json.RawMessage{},
		keys:     map[[2]string]store.Key{},
	}
}

func (m *model) Append(ctx context.Context, b store.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !wellFormed(b) {
		return store.ErrMalformed
	}
	s := m.sessions[b.SessionID]
	switch {
	case m.failed:
		return store.ErrFailed
	case s == nil && b.Create == nil:
		return store.ErrNoSession
	case s == nil:
		s = newModelSession(*b.Create)
	case b.Epoch < s.epoch:
		return store.ErrFenced
	case b.Create != nil || b.After != int64(len(s.log)):
		return m.repeated(s, b)
	}
	open := s.open
	for _, r := range b.Records {
		switch {
		case r.Kind == record.KindTurnStarted && open == "":
			open = r.TurnID
		case r.Kind == record.KindTurnEnded && open == r.TurnID:
			open = ""
		case r.Kind == record.KindTurnStarted, r.Kind == record.KindTurnEnded:
			return store.ErrMalformed
		}
	}
	if _, ok := m.key(b.Key); ok {
		return store.ErrKeyTaken
	}
	if b.Create != nil {
		if err := m.tooMany(b.Create); err != nil {
			return err
		}
	}
	if !s.has(b.Rewrites) {
		return store.ErrMalformed
	}
	if m.space > 0 && m.used()+dataLen(b) > m.space {
		return store.ErrFull
	}
	if m.failing {
		m.failing, m.failed = false, true
		if !m.persists {
			return store.ErrFailed
		}
	}
	m.sessions[b.SessionID] = s
	m.name(b.Key)
	s.write(b.Rows)
	s.open = open
	s.attempts, s.waits, s.epoch = cmp.Or(b.Attempts, s.attempts), false, b.Epoch
	s.info.Usage, s.info.LastTurn, s.info.LastStatus = b.Usage, b.LastTurn, b.LastStatus
	for _, r := range b.Records {
		r.Time = r.Time.UTC().Truncate(time.Microsecond)
		r.Data = bytes.Clone(r.Data)
		s.log = append(s.log, r)
		s.updated = r.Time
	}
	for _, r := range b.Rewrites {
		s.log[r.Seq-1].Data = bytes.Clone(r.Data)
	}
	m.share(b.Shared)
	m.pay(b)
	if m.failed {
		return store.ErrFailed
	}
	return nil
}

// AppendMany appends the batches one after the other.
func (m *model) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs, seen := make([]error, len(batches)), map[string]bool{}
	for i, b := range batches {
		if seen[b.SessionID] {
			errs[i] = cmp.Or(ctx.Err(), store.ErrMalformed)
			continue
		}
		seen[b.SessionID] = true
		errs[i] = m.Append(ctx, b)
	}
	return errs
}

// share writes shared values, and removes those without a value.
func (m *model) share(values []store.SharedValue) {
	for _, v := range values {
		if m.values[v.Scope] == nil {
			m.values[v.Scope] = map[string]json.RawMessage{}
		}
		if v.Value == nil {
			delete(m.values[v.Scope], v.Key)
		} else {
			m.values[v.Scope][v.Key] = slices.Clone(v.Value)
		}
	}
}

func (m *model) SetShared(ctx context.Context, values []store.SharedValue) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.failed:
		return store.ErrFailed
	case !wellShared(values):
		return store.ErrMalformed
	}
	m.share(values)
	return nil
}

func (m *model) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.failed:
		return store.ErrFailed
	case s == nil:
		return store.ErrNoSession
	}
	s.attempts, s.waits = attempts, waits
	return nil
}

func dataLen(b store.Batch) (n int) {
	for _, r := range b.Records {
		n += len(r.Data)
	}
	return n
}

// used is how many bytes of data there are.
func (m *model) used() (n int) {
	for _, s := range m.sessions {
		n += dataLen(store.Batch{Records: s.log})
	}
	return n
}

// wellFormed checks what does not depend on the log.
func wellFormed(b store.Batch) bool {
	ok := b.After >= 0 && b.Epoch >= 0 && len(b.Records) > 0
	for i, r := range b.Records {
		bounds := r.Kind == record.KindTurnStarted || r.Kind == record.KindTurnEnded
		ok = ok && r.Seq == b.After+int64(i)+1 && r.Kind.Known() && (r.TurnID != "" || !bounds)
	}
	ok = ok && wellShared(b.Shared) && b.Spent.Tokens >= 0 && b.Spent.Cost >= 0
	if n := b.Create; n != nil {
		ok = ok && b.After == 0 && n.ID == b.SessionID && wellNamed(n.ID, n.Labels)
	}
	return ok && wellIndexed(b.SessionID, b.Rows, b.Key)
}

func wellShared(values []store.SharedValue) bool {
	return !slices.ContainsFunc(values, func(v store.SharedValue) bool {
		return v.Scope == "" || v.Value != nil && !json.Valid(v.Value)
	})
}

func (m *model) Head(ctx context.Context, id string) (store.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case ctx.Err() != nil:
		return store.Head{}, ctx.Err()
	case s == nil:
		return store.Head{}, store.ErrNoSession
	}
	return s.head(id), nil
}

func (s *modelSession) head(id string) store.Head {
	return store.Head{
		ID:        id,
		CreatedAt: s.info.CreatedAt,
		LastSeq:   int64(len(s.log)),
		OpenTurn:  s.open,
		UpdatedAt: s.updated,
		Purged:    s.purged,
		Attempts:  s.attempts,
		Waits:     s.waits,
		Epoch:     s.epoch,
	}
}

func (m *model) Idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limit <= 0:
		return nil, store.ErrMalformed
	}
	var heads []store.Head
	for id, s := range m.sessions {
		if h := s.head(id); h.OpenTurn == "" && h.LastSeq > h.Purged && h.UpdatedAt.Before(before) {
			heads = append(heads, h)
		}
	}
	slices.SortFunc(heads, func(a, b store.Head) int {
		return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), strings.Compare(a.ID, b.ID))
	})
	return heads[:min(limit, len(heads))], nil
}

func (m *model) Purge(ctx context.Context, id string, lastSeq int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.failed:
		return store.ErrFailed
	case s == nil:
		return store.ErrNoSession
	case lastSeq != int64(len(s.log)), s.open != "":
		return store.ErrConflict
	}
	s.purged = lastSeq
	clear(s.rows)
	return nil
}

func (m *model) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limit <= 0:
		return nil, store.ErrMalformed
	case s == nil:
		return nil, store.ErrNoSession
	}
	rest := s.log[min(max(after, s.purged), int64(len(s.log))):]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

func (m *model) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values[scope]), ctx.Err()
}

func (m *model) Scopes(ctx context.Context, after string, limit int) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit <= 0 {
		return nil, store.ErrMalformed
	}
	for _, name := range slices.Sorted(maps.Keys(m.values)) {
		if name > after && len(m.values[name]) > 0 && len(names) < limit {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

func (m *model) pay(b store.Batch) {
	if m.spent == nil {
		m.spent = map[string]map[int64]record.Spent{}
	}
	if m.spent[b.Payer] == nil {
		m.spent[b.Payer] = map[int64]record.Spent{}
	}
	day := m.spent[b.Payer][b.PaidOn]
	day.Tokens = min(day.Tokens, 1<<50) + min(b.Spent.Tokens, 1<<50)
	day.Cost = min(day.Cost, 1<<50) + min(b.Spent.Cost, 1<<50)
	m.spent[b.Payer][b.PaidOn] = day
}

func (m *model) Spent(ctx context.Context, tenant string, from, to int64) (sum record.Spent, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for day, s := range m.spent[tenant] {
		if day >= from && day <= to {
			sum.Tokens, sum.Cost = sum.Tokens+s.Tokens, sum.Cost+s.Cost
		}
	}
	return sum, ctx.Err()
}

func (m *model) OpenTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limit <= 0:
		return nil, store.ErrMalformed
	}
	var heads []store.Head
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if s := m.sessions[id]; s.open != "" && id > after && len(heads) < limit {
			heads = append(heads, s.head(id))
		}
	}
	return heads, nil
}

func (m *model) Ping(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.failed:
		return store.ErrFailed
	case m.space > 0 && m.used()+64<<10 > m.space:
		return store.ErrFull
	}
	return nil
}

func (*model) Close() error { return nil }
