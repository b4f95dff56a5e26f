// Package sqlitestore keeps session logs in one SQLite database: the store of
// a single machine.
//
// # Writing
//
// One goroutine, owned by the [Store], does all the writing. It takes the
// appends that have queued up while it was committing, checks each of them,
// writes them in one transaction and answers them after the commit, so that one
// fsync serves many sessions. The queue and the group are bounded; whoever
// finds the queue full waits. An append that is refused leaves nothing in the
// transaction; a transaction that cannot be written is undone and its appends
// are tried one by one, so that only those fail that cannot succeed.
//
// The database is in WAL mode with synchronous=FULL: a commit that was
// reported survives a power cut if the disk keeps its word. After a commit
// whose outcome is unknown (an I/O error, say) the store takes no more writes:
// a failed fsync is never tried again. Only opening it anew tells what is there.
//
// # Reading
//
// Reads run on a pool of read-only connections beside the writer and see what
// has been committed, never less than what has been acknowledged.
//
// # Lists
//
// Sessions, their labels, and the rows of turns and interactions stand beside the
// logs, written in the same transaction as the records that they follow from. Each list is
// read along an index that has it in its order, so that a page costs the same
// wherever it begins; which index that is depends on what is asked for, see
// [Store.Sessions] and [Store.Rows]. A fork is a copy: it costs the space of what it
// inherits, and nothing that happens to one of the two reaches the other.
//
// # Files
//
// Beside the database file stand SQLite's own -wal and -shm files and a .lock
// file, which keeps a second process out. The path ":memory:" keeps everything
// in this process, on one connection, through the same code.
//
// This package knows sessions as bytes in order, and what to call them by: neither
// what a record or a row says nor who asks for it. It imports session, the SQLite driver and goose.
package sqlitestore
