package adkbridge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session"
)

// memStore is a session.Store in memory: the many small sessions of these tests
// need no database. TestShapes runs on a real one.
type memStore struct {
	session.Store // nil: nothing else is called

	mu     sync.Mutex // protects the fields below
	logs   map[string][]session.Record
	shared map[string]map[string]json.RawMessage
}

func newMemStore() *memStore {
	return &memStore{logs: map[string][]session.Record{}, shared: map[string]map[string]json.RawMessage{}}
}

func (s *memStore) Create(_ context.Context, n session.NewSession, _ *session.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.logs[n.ID]; ok {
		return session.ErrSessionExists
	}
	s.logs[n.ID] = nil
	return nil
}

func (s *memStore) Head(_ context.Context, id string) (session.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[id]
	if !ok {
		return session.Head{}, session.ErrNoSession
	}
	return session.Head{ID: id, LastSeq: int64(len(log))}, nil
}

func (s *memStore) Append(_ context.Context, b session.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[b.SessionID]
	if !ok {
		return session.ErrNoSession
	}
	if int64(len(log)) != b.After {
		return session.ErrConflict
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

func (s *memStore) Read(_ context.Context, id string, after int64, limit int) ([]session.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, ok := s.logs[id]
	if !ok {
		return nil, session.ErrNoSession
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

func (s *memStore) OpenTurns(context.Context, string, int) ([]session.Head, error) { return nil, nil }
func (s *memStore) Idle(context.Context, time.Time, int) ([]session.Head, error)   { return nil, nil }
func (s *memStore) Purge(context.Context, string, int64) error                     { return nil }
func (s *memStore) Ping(context.Context) error                                     { return nil }
func (s *memStore) Close() error                                                   { return nil }
