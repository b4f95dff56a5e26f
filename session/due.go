package session

import "time"

// The clock of a machine is set, forth and back. So what is waited for within one
// process is measured by its monotonic time, which no step moves; the clock's time is for
// the log, and is measured against the clock once, when a process reads it.

// due is a moment that the log names and that this process may wait for.
type due struct {
	at time.Time // by the clock; zero for none
	by time.Time // by this process's time
}

func (d due) isZero() bool { return d.at.IsZero() }

// left is how long it is until then; not above 0 if it is over.
func (d due) left() time.Duration { return time.Until(d.by) }

// dueIn is a moment from now on.
func (p *patient) dueIn(wait time.Duration) due {
	return due{p.now().Add(wait), time.Now().Add(wait)}
}

// dueAt is the moment of a record, which was no longer away than most when that was
// written.
func (p *patient) dueAt(at time.Time, most time.Duration) due {
	if at.IsZero() {
		return due{}
	}
	return due{at, time.Now().Add(min(at.Sub(p.now()), most))}
}

// beganAt is when something happened, by this process's time, that the log has at a time
// of the clock. It is not to come.
func (p *patient) beganAt(at time.Time) time.Time {
	return time.Now().Add(-max(p.now().Sub(at), 0))
}
