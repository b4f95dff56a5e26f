// Package attacks holds the tests that hostile clients would run. The real binary,
// built without the race detector, serves on loopback under a limit of its address
// space, and while each attack runs a stranger asks for turns of one word over a
// connection of its own.
//
//	make attacks
//
// prints a table: what became of the attack, the most memory that the process had
// before and after it, and how long the stranger's turns took before and during it.
// The tests assert what became of it, that the process lives or starts again, that
// the stranger's turns complete, and a bound on memory; no time.
//
// The package has no code of its own; its tests import what a client is made of.
package attacks
