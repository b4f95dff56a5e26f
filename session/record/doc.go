// Package record is the log of a session: the kinds of records, what each says, and how it is
// written. A record is one fact, appended once and never changed. Its data is JSON with
// optional fields that keep their meaning for ever: logs of every release are read.
//
// The package knows what a record says. Which records may follow each other, and what a
// session knows after them, is for package session.
package record
