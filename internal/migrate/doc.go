// Package migrate copies all that a SQLite store has into an empty database of PostgreSQL: `agentd migrate`.
//
// # Copying
//
// Tables are copied in the order of their keys, in pieces: each piece and the place behind it are one transaction, so
// a copy that was killed at any place goes on there. The place is in a table of the target, agentd_migration, which
// package session/store/postgres knows: while the copy is not finished, no server opens the target. Values are copied
// as they are, byte for byte, also those that are encrypted, with the keys that they are encrypted with.
//
// # Comparing
//
// At the end everything is read back. The records of each session are read from both stores as a server reads them,
// with the checksums of the source, and have to agree in count and SHA-256; all other tables are compared row by row.
// What differs ends the copy with an error, and the target stays closed. Sessions with an open turn are due in the
// target: the first server takes them up.
//
// # What keeps others out
//
// The source is locked as by a server, and only read. The target is locked as by a server that has it alone. What
// other commands write to the source meanwhile (agentd keys) is found by a sum over the source, which is made before
// and after.
//
// It knows both databases and their tables; it must not know what records say, nor who uses them. It imports the two
// stores and pgx.
package migrate
