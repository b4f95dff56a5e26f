package store

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
)

// Event is a row of the event log: a table that other programs read with SQL. It says that something was said, by whom,
// and when; it never has what was said.
//
// A store that has the table keeps the events of each batch in the transaction of the batch. An event whose id the
// table has is left as it is. Purge and Delete of a session remove its events. The numbers rise in the order in which
// events become visible: no event appears below one that was there before. So whoever reads behind the last number that
// it has seen misses none. Numbers may be left out.
type Event struct {
	// Number is the position of the row in the table. Append gives it.
	Number int64
	// Seq is the record of the batch that the event follows from. It is not stored.
	Seq int64
	// ID is unique in the table. It begins with the EventPrefix of the batch, by which Purge and Delete find it.
	// Another one is malformed.
	ID string
	// App is the application. User is Info.Creator of the session in whose log the event is; Append finds it.
	App, User string
	// SessionID is the session that the event is of: the one in whose log it is, or one that exists here alone.
	SessionID string
	// Branch is where in a tree of agents the event is, "" at the root. Author is who speaks.
	Branch, Author string
	// Time is in UTC, to the microsecond.
	Time time.Time
	// Invocation is the turn that the event is of.
	Invocation string
	// Metadata is the JSON text of an object; other text is malformed.
	Metadata string
}

// EventPrefix is what the ids of all events begin with that are in the log of the batch's session. Since a hash is
// escaped in the ids of sessions, it is that of no other session.
func (b *Batch) EventPrefix() string { return b.SessionID + "#" }

// EventQuery selects events. An event matches if it matches every field; a zero field matches every event.
type EventQuery struct {
	// Tenant matches events of sessions of that tenant; nil matches those of all.
	Tenant *string
	// After is a number that is lower than those of all that match.
	After int64
	// SessionID is the id by which the Tenant knows a session, and matches events of that session; with Tree also those
	// of sessions whose id begins with it and ":sub:".
	SessionID string
	Tree      bool
	// BranchPrefix is what the branch begins with.
	BranchPrefix string
	// Author is who speaks.
	Author string
	// Limit is how many events are returned at most. It is positive; another one is malformed.
	Limit int
}

// TenantPrefix is what the ids of the sessions of q.Tenant begin with, up to the slash; "" if it has none.
func (q *EventQuery) TenantPrefix() string {
	if q.Tenant == nil || *q.Tenant == "" {
		return ""
	}
	return tenant.Prefix(*q.Tenant) + "/"
}

// Session is the key of SessionID, "" for none. Below are from and to: the keys of the sessions below it are not lower
// than from, and lower than to; both are "" without Tree.
func (q *EventQuery) Session() (key, from, to string) {
	if q.SessionID == "" {
		return "", "", ""
	}
	of := ""
	if q.Tenant != nil {
		of = *q.Tenant
	}
	key = tenant.Key(of, q.SessionID)
	if q.Tree {
		from, to = key+":sub:", key+":sub;" // a semicolon is the byte behind the colon
	}
	return key, from, to
}

// Names returns the tenant of the session that the event is of, "" for none, and the id that callers know it by.
func (e *Event) Names() (tenantName, id string) {
	return tenant.Of(e.SessionID), tenant.ID(e.SessionID)
}
