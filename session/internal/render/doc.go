// Package render turns the log of a session into the messages of the protocol. A [Reader]
// reads one log from a position on, and what is not in the log yet, the deltas of partials,
// for one client. A message is a function of what the reader is given: readers that are given
// the same records, from whatever position, return the same messages after that position. They
// may only join neighboring deltas in different ways.
//
// The package must not know what keeps a session in memory: its locks, its phases, whom it
// offers calls to, when something happens. A [Log] gives it records, an [Item] what is new. It
// imports records, the index's interactions, positions and the protocol.
package render
