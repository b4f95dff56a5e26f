package client

import "time"

// ConnectionLost says that there is no connection to the server: it has broken, or
// could not be set up with [ReconnectPolicy].Dial. The run tries to get it back; the turn
// and tools go on meanwhile. One ConnectionRestored or ConnectionAbandoned follows, unless
// the run ends before.
type ConnectionLost struct {
	// Err is why.
	Err *Error
}

// ConnectionRestored says that the connection is back, after a [ConnectionLost]. The
// events go on where they were.
type ConnectionRestored struct {
	// After is for how long there was none.
	After time.Duration
	// Attempts is how many attempts it took.
	Attempts int
}

// ConnectionAbandoned says that the run has given up: nothing brought the connection back
// in the time of the [ReconnectPolicy]. The sequence's error follows, which is UNAVAILABLE;
// the turn may go on without this client, see [Client.Attach].
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

// connection is what a run knows, and has said, of its connection; owned by the driver. A
// caller who is slow to take events does not keep the driver from bringing the connection
// back: what is over by then is never told.
type connection struct {
	why      *Error        // why it was lost; nil: it was not, or is back
	since    time.Time     // when it was lost
	out      time.Duration // for how long it was lost, once it is back
	attempts int           // since it was lost
	told     bool          // the caller believes that it is lost
}

// lost says that a stream has ended before its turn, and that another one follows.
func (r *run) lost(failure *Error) {
	if c := &r.conn; c.why == nil {
		c.why, c.since, c.attempts = failure, time.Now(), 0
		r.tellConnection(false)
	}
	r.conn.attempts++
}

// restored says that the server has said something.
func (r *run) restored() {
	if c := &r.conn; c.why != nil {
		c.why, c.out = nil, time.Since(c.since)
		r.tellConnection(false)
	}
}

// abandoned says that no stream follows, after attempts that have failed.
func (r *run) abandoned(failure *Error) {
	if c := &r.conn; c.why != nil {
		data := &ConnectionAbandoned{After: time.Since(c.since), Attempts: c.attempts, Err: new(*failure)}
		r.deliver(r.connectionEvent(data))
	}
}

// tellConnection tells the caller what has become of the connection, if it does not know:
// at once, or with wait when there is room.
func (r *run) tellConnection(wait bool) {
	c := &r.conn
	var event *Event
	lost := c.why != nil
	switch {
	case lost == c.told:
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
	c.told = lost
}

func (r *run) connectionEvent(data EventData) *Event {
	event := newEvent(data)
	event.TurnID = r.turn
	return event
}
