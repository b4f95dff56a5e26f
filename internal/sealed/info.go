package sealed

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/session/store"
)

// What a store has of a session beside its log stays clear, but for the metadata, which is the caller's own.

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, id string, c store.Change) (store.Info, error) {
	w, err := s.ring.write(ctx, 1)
	if err != nil {
		return store.Info{}, err
	}
	defer w.end()
	if c.Metadata != nil {
		c.Metadata = new(w.metadata(id, *c.Metadata))
	}
	return s.opened(ctx)(s.Store.Update(ctx, id, c))
}

// Info implements store.Store.
func (s *Store) Info(ctx context.Context, id string) (store.Info, error) {
	return s.opened(ctx)(s.Store.Info(ctx, id))
}

// Sessions implements store.Store.
func (s *Store) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	infos, err := s.Store.Sessions(ctx, q)
	for i := range infos {
		if err == nil {
			infos[i], err = s.opened(ctx)(infos[i], nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// opened opens what another store returns of a session.
func (s *Store) opened(ctx context.Context) func(store.Info, error) (store.Info, error) {
	return func(i store.Info, err error) (store.Info, error) {
		if err != nil {
			return store.Info{}, err
		}
		sealed, ok := fromText(i.Metadata)
		if !ok {
			return i, nil
		}
		text, err := s.ring.open(ctx, metadataPlace(i.ID), sealed)
		if err != nil {
			return store.Info{}, fmt.Errorf("metadata of session %q: %w", i.ID, err)
		}
		i.Metadata = string(text)
		return i, nil
	}
}

// metadata seals the metadata of a session; "" is none.
func (k *dataKey) metadata(id, text string) string {
	if text == "" {
		return ""
	}
	return k.sealText(metadataPlace(id), text)
}

// created returns a session to create with sealed metadata; the caller's is not changed.
func (k *dataKey) created(n store.NewSession) store.NewSession {
	n.Metadata = k.metadata(n.ID, n.Metadata)
	return n
}
