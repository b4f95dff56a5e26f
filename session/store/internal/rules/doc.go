// Package rules is what implementations of store.Store share: the checks of what they are given, which need no
// database, and copies of it for a writer that goes on when its caller has stopped waiting.
//
// It must not know a database. It imports packages store and record.
package rules
