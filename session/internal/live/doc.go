// Package live is one session in memory: what its log says, the turn that runs, the turns that wait behind
// it, and the clients that watch.
//
// [Session.applyLocked] applies records, one after the other, when a log is read and when a record has been
// written; it alone changes what follows from the log. What follows from this process (its goroutine, its
// timers, what is under way) is in the attempt of a turn. [Session.reconcileLocked] derives timers and
// offers from both.
//
// A session has four sides. The server that has it in memory, see [Host], finds, starts, resumes and ends its
// turns by methods of [Session], and drives each with a [Driver]. The engine gets a [Run]. Clients get a
// [Turn], which takes results and cancels, and a [Watcher].
//
// Session.mu protects all of it and is never held while something is awaited. Unless a comment says
// otherwise, exported methods may be called from any goroutine, without the lock; methods with Locked at the
// end of their names are called with it.
package live
