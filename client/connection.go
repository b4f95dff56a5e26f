package client

import "time"

// ConnectionLost says that there is no connection to the server: it has broken, or
// could not be set up with [ReconnectPolicy].Dial. The run tries to get it back; the turn
// and tools continue meanwhile. One ConnectionRestored or ConnectionAbandoned follows, unless
// the run ends before.
type ConnectionLost struct {
	// Err is why.
	Err *Error
}

// ConnectionRestored says that the connection is back, after a [ConnectionLost]. The
// events continue where they were.
type ConnectionRestored struct {
	// After is for how long there was none.
	After time.Duration
	// Attempts is how many attempts it took.
	Attempts int
}

// ConnectionAbandoned says that the run has given up: nothing brought the connection back
// in the time of the [ReconnectPolicy]. The sequence's error follows, which is UNAVAILABLE;
// the turn may continue without this client, see [Client.Attach].
type ConnectionAbandoned struct {
	// After is for how long there was none.
	After time.Duration
	// Attempts is how many attempts were made.
	Attempts int
	// Err is why the last one failed.
	Err *Error
}

func (*ConnectionLost) eventData()      {}
func (*ConnectionRestored) eventData()  {}
func (*ConnectionAbandoned) eventData() {}

// connection is the state of a run's connection, and what the caller knows of it; owned by
// the driver. A caller that reads events slowly does not delay the reconnect: it receives
// no event of a loss that is over by then.
type connection struct {
	why          *Error        // why it was lost; nil: it was not, or is back
	since        time.Time     // when it was lost
	out          time.Duration // for how long it was lost, once it is back
	attempts     int           // since it was lost
	reportedLost bool          // the caller believes that it is lost
}

// lost says that a stream has ended before its turn, and that another one follows.
func (r *run) lost(failure *Error) {
	if c := &r.conn; c.why == nil {
		c.why, c.since, c.attempts = failure, time.Now(), 0
		r.reportConnection(false)
	}
	r.conn.attempts++
}

// restored says that the server has said something.
func (r *run) restored() {
	if c := &r.conn; c.why != nil {
		c.why, c.out = nil, time.Since(c.since)
		r.reportConnection(false)
	}
}

// abandoned says that no stream follows, after attempts that have failed.
func (r *run) abandoned(failure *Error) {
	if c := &r.conn; c.why != nil {
		data := &ConnectionAbandoned{After: time.Since(c.since), Attempts: c.attempts, Err: new(*failure)}
		r.deliver(r.connectionEvent(data))
	}
}

// reportConnection yields the event of a connection that was lost or restored, if the
// caller has not received it. With wait it waits for room; without, it needs room now.
func (r *run) reportConnection(wait bool) {
	c := &r.conn
	var event *Event
	lost := c.why != nil
	switch {
	case lost == c.reportedLost:
		return
	case lost:
		event = r.connectionEvent(&ConnectionLost{Err: new(*c.why)})
	default:
		event = r.connectionEvent(&ConnectionRestored{After: c.out, Attempts: c.attempts})
	}
	if wait {
		r.emit(event)
	} else if !r.offer(event) {
		return
	}
	c.reportedLost = lost
}

func (r *run) connectionEvent(data EventData) *Event {
	event := newEvent(data)
	event.TurnID = r.turn
	return event
}
