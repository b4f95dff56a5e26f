package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/apzuk3/agentd/session/store"
)

// class says what an error of SQLite means for the call that met it.
type class int

const (
	// passing errors may be gone when the call is made again: a lock that another program holds, memory or
	// file handles that are short, an interrupted call.
	passing class = iota + 1
	// full means that no space is left; nothing was written.
	full
	// refused means that the database will never take what it was given; nothing was written.
	refused
	// damaged means that what is in the file makes no sense: each call that meets it fails the same way.
	damaged
	// unread means that SQLite has returned a value that this package never writes: damage too, but none
	// that a write may spread.
	unread
	// broken means that the file cannot be worked with, or that it is not known what is in it.
	broken
)

// classes has every primary result code that is an error.
var classes = map[int]class{
	sqlite3.SQLITE_ERROR:      damaged, // our SQL is right, so the schema is not
	sqlite3.SQLITE_INTERNAL:   broken,
	sqlite3.SQLITE_PERM:       broken,
	sqlite3.SQLITE_ABORT:      passing, // a statement under way when its transaction was undone
	sqlite3.SQLITE_BUSY:       passing,
	sqlite3.SQLITE_LOCKED:     passing,
	sqlite3.SQLITE_NOMEM:      passing,
	sqlite3.SQLITE_READONLY:   broken,
	sqlite3.SQLITE_INTERRUPT:  passing, // the caller's context has ended
	sqlite3.SQLITE_IOERR:      broken,
	sqlite3.SQLITE_CORRUPT:    damaged,
	sqlite3.SQLITE_NOTFOUND:   broken,
	sqlite3.SQLITE_FULL:       full,
	sqlite3.SQLITE_CANTOPEN:   passing, // too many open files
	sqlite3.SQLITE_PROTOCOL:   passing, // processes that race for the locks of the WAL
	sqlite3.SQLITE_EMPTY:      broken,
	sqlite3.SQLITE_SCHEMA:     damaged, // another program has changed it
	sqlite3.SQLITE_TOOBIG:     refused,
	sqlite3.SQLITE_CONSTRAINT: refused,
	sqlite3.SQLITE_MISMATCH:   damaged, // a value of another type than its column's
	sqlite3.SQLITE_MISUSE:     broken,
	sqlite3.SQLITE_NOLFS:      broken, // the file is larger than this machine can address
	sqlite3.SQLITE_AUTH:       broken,
	sqlite3.SQLITE_FORMAT:     damaged,
	sqlite3.SQLITE_RANGE:      broken,
	sqlite3.SQLITE_NOTADB:     damaged,
	sqlite3.SQLITE_NOTICE:     passing,
	sqlite3.SQLITE_WARNING:    passing,
	sqlite3.SQLITE_ROW:        broken, // no errors, and never returned as such
	sqlite3.SQLITE_DONE:       broken,
}

// extended has the extended result codes whose class is not that of their primary one.
var extended = map[int]class{
	sqlite3.SQLITE_ERROR_RETRY:           passing,
	sqlite3.SQLITE_ERROR_SNAPSHOT:        passing,
	sqlite3.SQLITE_READONLY_RECOVERY:     passing, // another process recovers the WAL
	sqlite3.SQLITE_READONLY_CANTLOCK:     passing,
	sqlite3.SQLITE_IOERR_NOMEM:           passing,
	sqlite3.SQLITE_IOERR_BLOCKED:         passing,
	sqlite3.SQLITE_IOERR_CORRUPTFS:       damaged,
	sqlite3.SQLITE_IOERR_DATA:            damaged, // a checksum is wrong
	sqlite3.SQLITE_CANTOPEN_ISDIR:        broken,
	sqlite3.SQLITE_CANTOPEN_SYMLINK:      broken,
	sqlite3.SQLITE_CANTOPEN_NOTEMPDIR:    broken,
	sqlite3.SQLITE_CONSTRAINT_COMMITHOOK: broken, // there is none
}

// classOf returns the class of a result code. An unknown one is broken, so that the call is not retried for
// ever.
func classOf(code int) class {
	if c, ok := extended[code]; ok {
		return c
	}
	if c, ok := classes[code&0xff]; ok {
		return c
	}
	return broken
}

// named adds an error of package store to an error of SQLite. An error that is neither SQLite's nor named
// already comes from a value that this package never writes. An error without a name may pass.
func named(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{
		store.ErrFailed, store.ErrDamaged, store.ErrFull, store.ErrNoSession, store.ErrSessionExists,
		store.ErrConflict, store.ErrMalformed, store.ErrKeyTaken, store.ErrNotFound,
		context.Canceled, context.DeadlineExceeded, errClosed, errReadOnly, sql.ErrConnDone,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	name := map[class]error{
		full: store.ErrFull, refused: store.ErrMalformed, broken: store.ErrFailed,
		damaged: store.ErrDamaged, unread: store.ErrDamaged,
	}[classOfError(err)]
	if name == nil {
		return err
	}
	return fmt.Errorf("%w: %w", name, err)
}

// classOfError returns the class of an error of a statement. One that is not SQLite's is of a value that
// could not be read.
func classOfError(err error) class {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return classOf(e.Code())
	}
	return unread
}

// code returns SQLite's primary result code, or 0 for another's error.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
