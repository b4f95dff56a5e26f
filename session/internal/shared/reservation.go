package shared

import (
	"context"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/store"
)

// maxName bounds the name of a key, in bytes: the token of a page holds one.
const maxName = 256

// Reservation is room for values that are about to be written. It counts until Done or Release is called,
// so that writers that work at the same time do not pass a bound together. A nil one reserves nothing.
type Reservation struct {
	of     *State
	scopes map[string]*scope
	values []store.SharedValue
	keys   []reservedKey
}

type reservedKey struct {
	of  *scope
	key string
}

// Reserve refuses values that take a scope past its bounds. A scope that is past its bounds already takes
// what makes it no larger. For no values it returns nil.
func (h *State) Reserve(ctx context.Context, values []store.SharedValue) (_ *Reservation, err error) {
	if len(values) == 0 {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.beginLocked(values)
	defer func() {
		if err != nil {
			r.releaseLocked()
		}
	}()
	for sc := r.staleLocked(); sc != nil; sc = r.staleLocked() { // or what was just written would not count
		var err error
		lock.Without(&h.mu, func() { _, err = h.read(ctx, sc) })
		if err != nil {
			return nil, err
		}
	}
	if err := r.fitsLocked(); err != nil {
		return nil, err
	}
	for _, v := range values {
		if v.Value == nil {
			continue
		}
		sc := r.scopes[v.Scope]
		key := sc.prefix + v.Key
		sc.comeLocked(key, KeySize(key, v.Value))
		r.keys = append(r.keys, reservedKey{sc, key})
	}
	return r, nil
}

// ReserveUnbounded reserves room for values whatever the bounds are.
func (h *State) ReserveUnbounded(values []store.SharedValue) *Reservation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.beginLocked(values)
}

// beginLocked enters the scopes of values and counts a write of each.
func (h *State) beginLocked(values []store.SharedValue) *Reservation {
	r := &Reservation{of: h, scopes: map[string]*scope{}, values: values}
	for _, v := range values {
		if r.scopes[v.Scope] == nil {
			sc := h.enterLocked(v.Scope)
			sc.beginLocked()
			r.scopes[v.Scope] = sc
		}
	}
	return r
}

// staleLocked returns a scope that has to be reloaded, or nil.
func (r *Reservation) staleLocked() *scope {
	for _, sc := range r.scopes {
		if sc.stale {
			return sc
		}
	}
	return nil
}

// fitsLocked refuses values that take a scope past its bounds, and keys whose names are too long.
func (r *Reservation) fitsLocked() error {
	grows := map[string]Use{}
	for _, v := range r.values {
		sc := r.scopes[v.Scope]
		if v.Value != nil && len(v.Key) > maxName {
			return fault.Errorf(fault.LimitExceeded,
				"state: the name of key %.40q… has %d bytes behind its scope, at most %d are allowed",
				sc.prefix+v.Key, len(v.Key), maxName).
				Over("state_name_bytes", maxName, len(v.Key))
		}
		grows[v.Scope] = sc.growLocked(grows[v.Scope], sc.prefix+v.Key, v.Value)
	}
	for name, grow := range grows {
		sc := r.scopes[name]
		have := sc.useLocked()
		after := Use{have.Keys + grow.Keys, have.Bytes + grow.Bytes}
		if err := Fits("the keys of scope "+sc.prefix, grow, after, r.of.bounds); err != nil {
			return err
		}
	}
	return nil
}

// Done ends the reservation after the write. written is false if the outcome is unknown.
func (r *Reservation) Done(written bool) {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	for _, sc := range r.scopes {
		sc.doneLocked(r.values, written)
	}
	r.releaseLocked()
}

// Release gives the room back; none of the values was written.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.releaseLocked()
}

func (r *Reservation) releaseLocked() {
	for _, k := range r.keys {
		k.of.wentLocked(k.key)
	}
	for _, sc := range r.scopes {
		sc.endLocked()
		r.of.leaveLocked(sc)
	}
}
