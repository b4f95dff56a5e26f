// Package clock gives the times of records and of what a session waits for.
//
// The clock of a machine may be set forward and back. A wait within one process is measured by the
// monotonic time of the process, which does not follow the clock. The time of the clock is for the log;
// it is compared with the clock once, when a process reads it.
package clock

import "time"

// Clock is the clock of a server. The zero value is the machine's.
type Clock struct {
	// Now is the time of the machine, [time.Now] if it is nil.
	Now func() time.Time
}

// Stamp is the time of a record, or another one for the store: in UTC, to the microsecond.
func (c Clock) Stamp() time.Time {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	return now().UTC().Truncate(time.Microsecond)
}

// Due is a moment that the log names and that this process may wait for. The zero value is none.
type Due struct {
	// At is the moment by the clock; zero for none.
	At time.Time
	by time.Time // by the time of the process
}

// IsZero reports whether there is no such moment.
func (d Due) IsZero() bool { return d.At.IsZero() }

// Left is how long it is until then; not above 0 if it is over.
func (d Due) Left() time.Duration { return time.Until(d.by) }

// In is the moment after a wait.
func (c Clock) In(wait time.Duration) Due {
	return Due{c.Stamp().Add(wait), time.Now().Add(wait)}
}

// At is the moment that a record names. It was no longer away than most when the record was written.
func (c Clock) At(at time.Time, most time.Duration) Due {
	if at.IsZero() {
		return Due{}
	}
	return Due{at, time.Now().Add(min(at.Sub(c.Stamp()), most))}
}

// Began is when something happened, by the time of the process, that the log has at a time of the clock.
// It is not in the future.
func (c Clock) Began(at time.Time) time.Time {
	return time.Now().Add(-max(c.Stamp().Sub(at), 0))
}
