// Package cluster is a part of agentd, not an API: it says which of several servers over one PostgreSQL owns a session,
// and which of them are dead.
//
// # Members
//
// A [Member] is one life of one process: a row in the table replicas, whose id no other life has. It counts beat up,
// once every [Config.Beat], on a connection of its own, which also holds an advisory lock of that id. Both are gone,
// or stand still, when the process does.
//
// # Death without clocks
//
// No time of one machine is compared with that of another. Each member looks at the rows of the others with its own
// beat, and measures with its own monotonic clock for how long one has not changed. A member is dead when its beat
// stood still for [Config.TTL]; or for [Config.LockTTL], if its lock is free and was seen held. A window begins anew
// after an error of the database, and after a gap between two looks of more than a third of the TTL: else a database
// that restarts or freezes, or an observer that was stopped, would make living members look dead.
//
// A death is an opinion. That two members disagree, or that a dead one wakes up, does no harm: each write to a log
// carries the epoch of its owner, and the store refuses an older one.
//
// # Trust in oneself
//
// A member that cannot reach the database must reckon with being dead to the others. It is in doubt when its last good
// beat began 4/5 of the TTL ago, or 3/4 of the LockTTL if its connection broke since, with which the lock goes. Then it
// claims nothing, and [Config.OnDoubt] is called. It keeps what it owns: the database may be down for all, and then
// nothing changes hands; what the others take meanwhile the store refuses it. A member whose row is gone is dead for
// certain: it owns nothing, and joins anew.
//
// # Ownership
//
// A session has one owner at a time, in the row of its head. [Member.Claim] makes this member the owner of a session
// that nobody owns, or whose owner is dead, and raises its epoch; [Member.Release] gives it back. A claim is a write,
// so what is read behind it holds all that was acknowledged before.
//
// Sessions whose turn has to go on without a caller are found by [Member.Due]: those of dead owners, and those that
// nobody owns and whose time has come. Each member gets a fair share, so that one does not take all.
//
// It implements session.Owners, and knows sessions by their keys. It must not know what a log says, who calls, or how a
// turn runs.
package cluster
