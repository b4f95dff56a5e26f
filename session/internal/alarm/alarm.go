// Package alarm has timers that fire under a lock.
//
// What a timer does belongs to what a lock protects, and an alarm that was stopped under that lock never
// fires, also when its timer has fired already. After an alarm has fired, a function that is the same for
// all alarms of the lock derives anew which of them are set.
//
// The package must not know what the lock protects.
package alarm

import (
	"sync"
	"time"
)

// Alarm is a timer, set or not. The zero value is not set. The lock of its [Group] protects it, and it
// must not be copied.
type Alarm struct {
	timer *time.Timer // nil while the alarm is not set
}

// IsSet reports whether the alarm is going to fire.
func (a *Alarm) IsSet() bool { return a.timer != nil }

// Stop keeps the alarm from firing. One that is not set stays so.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

// Lacks stops an alarm that is not wanted, and reports whether one that is wanted has yet to be set.
func (a *Alarm) Lacks(wanted bool) bool {
	if !wanted {
		a.Stop()
	}
	return wanted && !a.IsSet()
}

// Group sets the alarms of one lock. The caller of its methods holds the lock.
type Group struct {
	mu    sync.Locker
	fired func()
}

// NewGroup returns the group of a lock. It calls fired, under the lock, after each alarm that has fired.
func NewGroup(mu sync.Locker, fired func()) Group { return Group{mu: mu, fired: fired} }

// Set sets an alarm, also one that is set already. When it fires it is not set any more, and fire is
// called under the lock.
func (g Group) Set(a *Alarm, after time.Duration, fire func()) {
	a.Stop()
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if a.timer != timer { // stopped or set again since
			return
		}
		a.timer = nil
		fire()
		g.fired()
	})
	a.timer = timer
}
