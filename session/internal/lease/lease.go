// Package lease is what one process holds of a session that several processes could own: the epoch under which it
// writes, and when the session is offered to others once it is let go.
//
// The package must not know sessions, nor who else could own them.
package lease

import (
	"sync"
	"time"
)

// What Release of an owner may be told in place of a time: the session is not due, or due as it was before.
const (
	Never time.Duration = -1
	Same  time.Duration = -2
)

// Lease is a claim. The zero value writes under epoch 0: one process owns all. Its methods may be called from any
// goroutine.
type Lease struct {
	mu    sync.Mutex // protects the fields below
	epoch int64
	held  bool
	due   time.Duration
}

// Hold begins a claim of an epoch.
func (l *Lease) Hold(epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.held, l.due = epoch, true, Never
}

// Epoch returns the epoch of the last claim.
func (l *Lease) Epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Held returns the epoch of the claim; held is false if there is none.
func (l *Lease) Held() (epoch int64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.held
}

// DueIn says when the session is to be offered to others after it is let go; Never is not at all.
func (l *Lease) DueIn(wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = wait
}

// Lose ends the claim without letting go: somebody else has the session.
func (l *Lease) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// LetGo ends the claim. It returns its epoch and when the session is due; held is false if there was none.
func (l *Lease) LetGo() (epoch int64, due time.Duration, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, l.held = l.held, false
	return l.epoch, l.due, held
}
