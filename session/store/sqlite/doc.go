// Package sqlite is a part of agentd, not an API: it keeps session logs in one SQLite database, the store
// of a single machine.
//
// # Writing
//
// One goroutine, owned by the [Store], does all the writing. It takes the appends that have queued up
// during the last commit, checks each of them, writes them in one transaction and returns their results
// after the commit. So one fsync serves many sessions. The queue and the group are bounded; a caller that
// finds the queue full waits. Appends above 64 KiB let others overtake them: at most every other
// transaction with other appends takes large ones too, then at most 512 KiB of them, or one, the oldest
// first. The appends of one session keep their order. An append that is refused leaves nothing in the
// transaction. A transaction that cannot be written is undone, and its appends are tried one by one, so
// that only those fail that cannot succeed. [Store.AppendMany] queues its batches at once and so fills few
// transactions.
//
// A second goroutine, with a connection of its own, moves the WAL into the database once 4 MiB were
// written, so that no commit waits for it. The writer finishes a WAL above 16 MiB, which was written to
// meanwhile, so that it begins anew. A checkpoint that fails with an I/O error ends all writing, as a
// commit does.
//
// The database is in WAL mode with synchronous=FULL: a commit that was reported survives a power cut if the
// disk keeps its word. After a commit whose outcome is unknown (an I/O error, for example) the store takes
// no more writes: a failed fsync is never tried again. The next process that opens the database reads what
// was written.
//
// # Reading
//
// Reads run on a pool of read-only connections beside the writer. They see what is committed, which
// includes every write that has returned.
//
// # Lists
//
// Sessions, their labels, and the rows of turns and interactions have tables of their own. They are written
// in the same transaction as the records that they follow from. Each list is read along an index in the
// order of the list, so that a page costs the same wherever it begins. The query decides which index that
// is, see [Store.Sessions] and [Store.Rows]. A fork is a copy: it costs the space of what it inherits, and
// nothing that happens to one of the two reaches the other.
//
// # Removing
//
// What Delete and Purge remove is overwritten with zeros in the same transaction (secure_delete). The WAL,
// and the database behind it, still hold the bytes when the call returns. 0.1 s later the writer moves the
// WAL into the database and truncates it. While a reader needs the WAL it tries again, at least once a
// second, and appends go on: reads of this package take milliseconds, a foreign program may take longer. A
// process that is killed meanwhile leaves the bytes to the next one, which removes them 0.1 s after it has
// opened the database. Close leaves no WAL.
//
// Copies of rows that SQLite has moved from one page to another stay in unused parts of pages. After
// something was removed the writer therefore scrubs the database, whatever its size: it reads all pages and
// overwrites what they do not use, at most 256 pages a transaction, so that appends wait for milliseconds,
// and a third of its time until it comes to the pages that were written to meanwhile. Between two scrubs
// passes twice as long as one takes, a minute at most. That a scrub is owed is in the database (as its
// user_version); the next process begins it anew after a kill. Close scrubs for at most 5 s and leaves the
// rest to the next start. A page that makes no sense, or cannot be read, stays as it is. A database without
// auto_vacuum, see below, is not scrubbed, since nothing says what its pages are.
//
// Free pages beyond 4 MiB are returned to the file system, 1 MiB at a time, so that appends wait for
// milliseconds (incremental vacuum). A database from before is rebuilt by Open if it has at most 256 MiB,
// in one transaction: a kill leaves it as it was. A larger one is not: Open would take too long. Its file
// does not shrink, and what was deleted before stays in free pages until they are used again. To rebuild
// it, stop agentd and run
//
//	sqlite3 agentd.db 'PRAGMA auto_vacuum=INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'
//
// which needs as much free space as the database has, twice.
//
// # Damage
//
// Each record has a checksum, which a read compares, and a read of a log finds that a record is missing.
// SQLite checks the WAL and the form of its pages. Nothing checks the values of what stands beside the
// logs: lists, labels, shared values.
//
// # Values that change their form
//
// [Store.Recode] replaces values by others that say the same, 64 of them or 256 KiB in a transaction, also while the
// store is in use: a value is replaced only if it is still the one that was read. The checksum of a record follows.
//
// # Copies
//
// [Config].ReadOnly opens a database for reading, also beside the process that holds it: it takes no lock
// that keeps others out. [Store.Backup] of such a store copies the pages of one state, within a read
// transaction around all steps, so that the writer does not wait and SQLite does not begin again after each
// write. (VACUUM INTO takes half as long again, and hides damage of indexes, which it builds anew. Steps
// without the transaction never end under load.) While somebody reads for long, the WAL grows; the writer
// waits for at most 0.2 s at each 64 MiB of it.
//
// [Config.Restore] replaces a database by a rename. The WAL of the old one is moved into it first: SQLite
// would take it for that of the new one.
//
// Open copies a database before it changes the schema, to the file's name with ".before-" and the new
// version. The last two such copies are kept.
//
// # Errors
//
// Each result code of SQLite has a class, see codes.go. What may pass (a lock, a shortage of memory or file
// handles) has no name. store.ErrFull and store.ErrMalformed mean that nothing was written.
// store.ErrDamaged is the error of a read that meets bytes that this package never writes: the same read
// fails again, others may succeed. store.ErrFailed is the error of a store that has failed for good, for
// example because its writer has met damage.
//
// # Files
//
// Beside the database file stand SQLite's own -wal and -shm files and a .lock file, which keeps a second
// process out. Symlinks are followed first. On Linux the database itself is locked too, by flock, so that
// no hard link or mount leads around the lock; SQLite's tools do not take such locks and can read the
// database meanwhile, for a backup. On other Unix systems flock would meet SQLite's own locks: there a
// database of several names (hard links) is refused. Windows lets the .lock file be opened once; hard links
// are not looked at. The kernel frees all of these locks when a process dies.
//
// Locks do not reach other machines. A network file system is refused, by the type that statfs gives
// (Linux; of FUSE the kinds that are known to be shared), or when it is not local (macOS, FreeBSD); see
// [Config.NetworkFiles], with which the .lock file alone is locked.
//
// A store whose database is renamed, removed or replaced while it is open fails with store.ErrFailed at the
// next write, or when a read needs another connection. The next process would not find what the store
// acknowledges from then on.
//
// With the path ":memory:" the store keeps everything in memory, on one connection, through the same code.
//
// This package knows sessions as ordered bytes under an id. It must not know what a record or a row says,
// nor who reads it. It imports packages store and record, the SQLite driver and goose.
package sqlite
