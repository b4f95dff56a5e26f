// Package ownkeys is a part of agentd, not an API: the keys of state that are a session's own, and how much they take.
package ownkeys

import (
	"maps"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/shared"
)

// Keys are the own keys of a session. One goroutine at a time may use them.
type Keys struct {
	values map[string]any
	sizes  map[string]int // in bytes
	bytes  int            // their sum
}

// New returns no keys.
func New() *Keys { return &Keys{values: map[string]any{}, sizes: map[string]int{}} }

// Copy returns the values.
func (k *Keys) Copy() map[string]any { return maps.Clone(k.values) }

// Merge writes the keys of a delta that are a session's own, and removes those whose value is null.
func (k *Keys) Merge(delta map[string]any) {
	for key, v := range delta {
		if shared.ScopeOf(key) != "" {
			continue
		}
		k.bytes -= k.sizes[key]
		if v == nil {
			delete(k.values, key)
			delete(k.sizes, key)
			continue
		}
		k.values[key], k.sizes[key] = v, sizeOf(key, v)
		k.bytes += k.sizes[key]
	}
}

func sizeOf(key string, v any) int {
	data, err := logjson.Marshal(v)
	if err != nil {
		return 0 // the record that holds the same value does not marshal either
	}
	return shared.KeySize(key, data)
}

// Fits refuses a delta that takes the keys past their bounds.
func (k *Keys) Fits(delta map[string]any, most shared.Use) error {
	var grow shared.Use
	for key, v := range delta {
		if shared.ScopeOf(key) != "" {
			continue
		}
		before, had := k.sizes[key]
		size := sizeOf(key, v)
		switch {
		case v == nil && had:
			grow.Keys, grow.Bytes = grow.Keys-1, grow.Bytes-before
		case v != nil && had:
			grow.Bytes += size - before
		case v != nil:
			grow.Keys, grow.Bytes = grow.Keys+1, grow.Bytes+size
		}
	}
	after := shared.Use{Keys: len(k.sizes) + grow.Keys, Bytes: k.bytes + grow.Bytes}
	return shared.Fits("the session's own keys", grow, after, most)
}
