package session

import "time"

// alarm is a timer of a session. A nil one is not in force.
type alarm struct{ timer *time.Timer }

// armLocked sets an alarm. When it goes off it is nil again, and fire is called under s.mu
// unless the alarm was disarmed or replaced before; then timers are derived anew.
func (s *Session) armLocked(at **alarm, after time.Duration, fire func()) {
	a := &alarm{}
	a.timer = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if *at != a {
			return
		}
		*at = nil
		fire()
		s.reconcileLocked()
	})
	*at = a
}

// keepLocked has an alarm be in force as long as it is wanted; after is asked for when it is
// set.
func (s *Session) keepLocked(at **alarm, wanted bool, after func() time.Duration, fire func()) {
	switch {
	case !wanted:
		disarm(at)
	case *at == nil:
		s.armLocked(at, after(), fire)
	}
}

// disarm stops an alarm, if it is in force.
func disarm(at **alarm) {
	if *at != nil {
		(*at).timer.Stop()
		*at = nil
	}
}

// in is a fixed time for keepLocked.
func in(after time.Duration) func() time.Duration { return func() time.Duration { return after } }
