// Package readers finds the readers of a session by its id, whether or not the session is in memory.
//
// The package must not know what a reader is, nor what it reads.
package readers

import (
	"sync"
	"sync/atomic"
)

// Readers are the readers of all sessions. The zero value has none. Its methods may be called from any
// goroutine.
type Readers[R comparable] struct {
	count atomic.Int64 // of all readers

	mu sync.Mutex // protects the field below; taken last
	of map[string]map[R]struct{}
}

// Add adds a reader of a session.
func (r *Readers[R]) Add(id string, reader R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]map[R]struct{}{}
	}
	if r.of[id] == nil {
		r.of[id] = map[R]struct{}{}
	}
	if _, there := r.of[id][reader]; !there {
		r.of[id][reader] = struct{}{}
		r.count.Add(1)
	}
}

// Remove removes a reader of a session. One that is not there changes nothing.
func (r *Readers[R]) Remove(id string, reader R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.of[id][reader]; !there {
		return
	}
	r.count.Add(-1)
	if delete(r.of[id], reader); len(r.of[id]) == 0 {
		delete(r.of, id)
	}
}

// Of calls f with each reader of a session, under the lock: f must not wait. While nobody reads any
// session it takes no lock.
func (r *Readers[R]) Of(id string, f func(R)) {
	if r.count.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for reader := range r.of[id] {
		f(reader)
	}
}

// All calls f with each reader and the id of its session, under the lock: f must not wait.
func (r *Readers[R]) All(f func(id string, reader R)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, of := range r.of {
		for reader := range of {
			f(id, reader)
		}
	}
}
