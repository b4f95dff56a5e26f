// Package record is a part of agentd, not an API: the format of a session's log, the kinds of records,
// what each says, and how it is written. A record is one fact. It is appended once and never changes. Its
// data is JSON with optional fields. A field keeps its meaning for ever, since the server reads the logs
// of every release.
//
// The package knows what a record says. It must not know which records may follow each other, nor the state
// of a session: package session does.
package record
