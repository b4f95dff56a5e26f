// Package postgres is a part of agentd, not an API: it keeps session logs in a PostgreSQL database, the store that
// several processes share.
//
// # Writing
//
// Two goroutines, each with a connection, write the appends of all sessions; a session's are always written by the
// same one, in the order in which they came. A writer takes what has queued up during the last commit, at most 128
// appends or 4 MiB, sends it in one round trip and commits it as one transaction. An append is one statement that
// compares the end of the log and the epoch where it writes. One that the statement refuses is looked at again in a
// transaction of its own, which finds the reason, or that it is a repeat. If a transaction fails and is undone, its
// appends are tried one by one. Appends that write shared values or rewrites go alone, and so do those that have spent
// something and create a session or write a key. Others that create a session or write a key go in groups: the
// statements of a group lock what sessions have in common (the counts of tenants, keys, and what tenants have spent) in
// one order for all, at the end of the group. The queues are bounded; a caller that finds its queue full waits.
//
// All other writes run on the connections that read, each in a transaction of its own that locks the row of the session
// first. A transaction that PostgreSQL ends because of a deadlock is tried again, three times at most.
//
// # Unknown outcomes
//
// A connection that is lost while a transaction commits leaves it unknown whether that has happened. The error has no
// name; the caller makes the same call again. A repeat waits for the first try if that is still running, since it
// locks the same row. It compares epoch, position and bytes, and commits a message of its own
// (pg_logical_emit_message), although nothing is left to write: PostgreSQL waits for the synchronous standbys of this
// commit, and so for the first one too. A read would confirm what a failover can lose. A refusal that tells the
// caller that an earlier try has succeeded, such as that a session exists, does the same.
//
// A commit of which the server says that it was not replicated (somebody has ended its wait) has an unknown outcome
// too.
//
// # Reading
//
// Reads run on a pool of 8 connections. They see what is committed, which includes every write that has returned. A
// page ends at store.ReadBytes in the server, so that no more is sent.
//
// # Lists
//
// Sessions, labels and the rows of turns and interactions have tables of their own, written in the same transaction as
// the records that they follow from, with an index for the order of each list. What every append changes of a session
// is a table of its own, heads, with no index on it that an append changes in the middle of a turn.
//
// # Events
//
// The events of batches, see store.Event, are inserted by the last statement of a transaction, under a lock that all
// transactions with events take one after the other and hold until they have committed. So numbers become visible in
// their order, and any reader may go on behind the highest one it has seen. A group is one transaction, so that the
// lock bounds how many groups commit in a second, not how many appends. Transactions without events do not take it.
//
// # Removing
//
// What Delete, Purge and Rewrites remove is no longer returned. The bytes are in the files of the database until vacuum
// has overwritten them, and in WAL archives and backups for as long as those are kept.
//
// # Damage
//
// A page whose checksum is wrong (initdb --data-checksums) is store.ErrDamaged to each call that reads it. A read of
// a log finds that a record is missing.
//
// # Errors
//
// Each SQLSTATE has a class, see codes.go. A server that cannot be reached, restarts or is a standby may come back:
// such errors have no name. The store never returns store.ErrFailed.
//
// # Schema
//
// Open brings the schema up to date; an advisory lock of the session keeps other processes from doing it meanwhile. A
// schema says the oldest one that a program must know to use it: a program of an older schema goes on beside a newer
// one unless that says otherwise, and is refused then, with words. A database whose schema is up to date is opened
// without the lock, also through a pooler of transactions.
//
// # Poolers
//
// By default each connection keeps prepared statements. A pooler that gives each transaction another connection must
// know of them (PgBouncer 1.21: max_prepared_statements), or the URL says default_query_exec_mode=exec or
// simple_protocol, as pgx has it. Nothing else here is kept by a connection between two transactions.
//
// # What it must not know
//
// This package knows sessions as ordered bytes under an id. It must not know what a record or a row says, nor who reads
// it, nor which process owns a session: the columns for that, and the table replicas, belong to others, who use the
// database by [Store.Pool]. It imports packages store and record, pgx and goose.
package postgres
