// Package table keeps values in memory by their ids, for as long as somebody uses them and a while longer.
//
// An entry counts its users. One that nobody uses is idle and stays until there are too many of these. An
// entry may be in the table before its value is there: whoever made it sets the value, the others wait
// for it. Users that only observe keep the entry in memory, but do not keep anybody from replacing it.
//
// The package must not know what the values are: its user says which of them are of no use any more
// ([Policy]). It reads and stores nothing.
package table

import (
	"container/list"
	"context"
	"sync"

	"github.com/apzuk3/agentd/session/internal/lock"
)

// Policy says which values stay. Its functions are called under the table's lock: they may take locks of
// the values, and must not call the table.
type Policy[V any] struct {
	// MaxIdle is how many entries stay that nobody uses.
	MaxIdle int
	// Lapses says that a value has to be looked at when it is used again after nobody has used it: Use makes a new
	// entry then, which has it as Lapsed, and Find does not find it.
	Lapses bool
	// Broken reports whether a value takes no more users. Its entry leaves the table even while it has
	// users.
	Broken func(V) bool
	// Useless reports whether a value without users leaves the table at once.
	Useless func(V) bool
	// Left, if not nil, is called with a value that leaves the table.
	Left func(V)
}

// Table holds entries by id. Its methods may be called from any goroutine.
type Table[V any] struct {
	policy Policy[V]

	mu      sync.Mutex // protects the fields below, and counts and places of entries; taken before locks of values
	entries map[string]*Entry[V]
	idle    *list.List // of *Entry[V] without users, the longest idle first
}

// Entry is one place of a table. Its value and error are set before it is ready, and do not change.
type Entry[V any] struct {
	// Value may be read by users, once Wait has returned nil.
	Value V

	id    string
	err   error         // why there is no value
	ready chan struct{} // closed when the value, or err, is set

	lapsed    *V            // see Policy.Lapses; owned by whoever made the entry until Set
	users     int           // protected by Table.mu
	observers int           // those of users that only observe; protected by Table.mu
	idle      *list.Element // the place in Table.idle while users is 0; protected by Table.mu
}

// New returns a table without entries.
func New[V any](policy Policy[V]) *Table[V] {
	return &Table[V]{policy: policy, entries: map[string]*Entry[V]{}, idle: list.New()}
}

// Set makes the entry ready: it has a value, or an error says why it has none. Whoever made the entry
// calls it, once.
func (e *Entry[V]) Set(value V, err error) {
	e.Value, e.err, e.lapsed = value, err, nil
	close(e.ready)
}

// Wait returns when the entry is ready: nil, or why it has no value. When ctx ends before it returns the
// cause.
func (e *Entry[V]) Wait(ctx context.Context) error {
	if err := lock.Wait(ctx, e.ready); err != nil {
		return err
	}
	return e.err
}

// Lapsed returns the value that nobody used any more, to whoever made the entry: it sets the value again, or takes
// leave of it as Policy.Left would.
func (e *Entry[V]) Lapsed() (value V, ok bool) {
	if e.lapsed == nil {
		return value, false
	}
	return *e.lapsed, true
}

// Now returns the value of an entry that is ready and has one.
func (e *Entry[V]) Now() (value V, ok bool) {
	if !e.isReady() || e.err != nil {
		return value, false
	}
	return e.Value, true
}

func (e *Entry[V]) isReady() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// Use counts a user of the entry of an id. If there is no entry, it makes one that is not ready and reports
// false: then the caller must call Set.
func (t *Table[V]) Use(id string) (e *Entry[V], found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e = t.findLocked(id)
	switch {
	case e == nil:
		return t.addLocked(id), false
	case t.policy.Lapses && e.users == 0:
		t.wakeLocked(e)
		next := t.addLocked(id)
		next.lapsed = &e.Value
		return next, false
	}
	e.users++
	t.wakeLocked(e)
	return e, true
}

// Keep counts one more user of an entry that the caller uses.
func (t *Table[V]) Keep(e *Entry[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.users++
}

// Observe says that one of the users of an entry only observes. Whoever calls it calls ReleaseObserver
// instead of Release.
func (t *Table[V]) Observe(e *Entry[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.observers++
}

// Release counts a user down, and reports whether it was the last one. An entry without users stays as the policy says.
func (t *Table[V]) Release(e *Entry[V]) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.releaseLocked(e)
}

// ReleaseObserver is Release for a user that observes.
func (t *Table[V]) ReleaseObserver(e *Entry[V]) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.observers--
	return t.releaseLocked(e)
}

func (t *Table[V]) releaseLocked(e *Entry[V]) (last bool) {
	e.users--
	if e.users > 0 || t.entries[e.id] != e {
		return e.users == 0
	}
	if e.err != nil || t.policy.Useless(e.Value) {
		t.removeLocked(e)
		return true
	}
	e.idle = t.idle.PushBack(e)
	for t.idle.Len() > t.policy.MaxIdle {
		t.removeLocked(t.idle.Front().Value.(*Entry[V]))
	}
	return true
}

// Find returns the entry of an id, ready or not, and counts no user; nil is none.
func (t *Table[V]) Find(id string) *Entry[V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.findLocked(id)
	if e != nil && t.policy.Lapses && e.users == 0 {
		return nil
	}
	return e
}

// Replace puts a new entry, which has one user and is not ready, in the place of what an id has. If that
// has users other than observers, it changes nothing and returns nil. It calls end with a value that is
// observed.
func (t *Table[V]) Replace(id string, end func(V)) *Entry[V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findLocked(id); e != nil {
		if e.users > e.observers {
			return nil
		}
		t.removeLocked(e)
		if e.observers > 0 {
			end(e.Value)
		}
	}
	return t.addLocked(id)
}

// Remove takes an entry out of the table, also one with users: the next Use makes a new one.
func (t *Table[V]) Remove(e *Entry[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(e)
}

// Each calls f with each value that is ready, how many users it has, and how many of these only observe.
// It does so under the lock of the table: f must not call it.
func (t *Table[V]) Each(f func(value V, users, observers int)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if value, ok := e.Now(); ok {
			f(value, e.users, e.observers)
		}
	}
}

func (t *Table[V]) addLocked(id string) *Entry[V] {
	e := &Entry[V]{id: id, ready: make(chan struct{}), users: 1}
	t.entries[id] = e
	return e
}

// findLocked returns the entry of an id, or nil. An entry with a broken value leaves the table.
func (t *Table[V]) findLocked(id string) *Entry[V] {
	e := t.entries[id]
	if e == nil {
		return nil
	}
	if value, ok := e.Now(); ok && t.policy.Broken(value) {
		t.removeLocked(e)
		return nil
	}
	return e
}

func (t *Table[V]) removeLocked(e *Entry[V]) {
	t.wakeLocked(e)
	if t.entries[e.id] != e {
		return
	}
	delete(t.entries, e.id)
	if value, ok := e.Now(); ok && t.policy.Left != nil {
		t.policy.Left(value)
	}
}

// wakeLocked takes an entry off the list of idle ones.
func (t *Table[V]) wakeLocked(e *Entry[V]) {
	if e.idle != nil {
		t.idle.Remove(e.idle)
		e.idle = nil
	}
}
