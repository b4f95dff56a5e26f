package adkbridge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// memStore is a store.Store in memory: the many small sessions of these tests
// need no database. TestShapes runs on a real one.
type memStore struct {
	store.Store // nil: nothing else is called

	mu     sync.Mutex // protects the fields below
	logs   map[string][]record.Record
	shared map[string]map[string]json.RawMessage
}

func newMemStore() *memStore {
	return &memStore{logs: map[string][]record.Record{}, shared: map[string]map[string]json.RawMessage{}}
}

func (s *memStore) Info(_ context.Context, id string) (store.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[id]
	if !ok {
		return store.Info{}, store.ErrNoSession
	}
	return store.Info{Head: store.Head{ID: id, LastSeq: int64(len(log))}}, nil
}

func (s *memStore) Append(_ context.Context, b store.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[b.SessionID]
	switch {
	case b.Create == nil && !ok:
		return store.ErrNoSession
	case b.Create != nil && ok:
		return store.ErrSessionExists
	case int64(len(log)) != b.After:
		return store.ErrConflict
	}
	s.logs[b.SessionID] = append(log, b.Records...)
	for _, v := range b.Shared {
		if s.shared[v.Scope] == nil {
			s.shared[v.Scope] = map[string]json.RawMessage{}
		}
		s.shared[v.Scope][v.Key] = v.Value
	}
	return nil
}

func (s *memStore) SetAttempts(context.Context, string, int64, bool) error { return nil }

func (s *memStore) Read(_ context.Context, id string, after int64, limit int) ([]record.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[id]
	if !ok {
		return nil, store.ErrNoSession
	}
	log = log[min(after, int64(len(log))):]
	return slices.Clone(log[:min(limit, len(log))]), nil
}

func (s *memStore) Shared(_ context.Context, scope string) (map[string]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]json.RawMessage{}
	maps.Copy(out, s.shared[scope])
	return out, nil
}
