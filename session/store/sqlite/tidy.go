package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// The writer tidies up behind commits that have removed something: it returns free pages to the file system
// and empties the WAL, which still holds what was removed.
const (
	// tidyDelay is how long after such a commit; those in between share one.
	tidyDelay = 100 * time.Millisecond
	// tidyWait is the longest wait before the next try while a reader needs the WAL.
	tidyWait = time.Second
	// freePages are left in the file for what comes next: 4 MiB.
	freePages = 1024
	// shrinkPages are returned at once: 1 MiB, so that appends wait for milliseconds.
	shrinkPages = 256
	// vacuumBytes is the size up to which Open rebuilds a database from before incremental vacuum.
	vacuumBytes = 256 << 20
)

// tidyLater has the writer tidy up after a wait. It does nothing if that is due already. Owned by the
// goroutine of run.
func (w *writer) tidyLater(wait time.Duration) {
	if w.wal != "" && w.tidyTimer == nil {
		w.tidyTimer = time.NewTimer(wait)
	}
}

// tidyDue delivers when the writer has to tidy up; nil for never.
func (w *writer) tidyDue() <-chan time.Time {
	if w.tidyTimer == nil {
		return nil
	}
	return w.tidyTimer.C
}

// tidy returns some free pages and empties the WAL. It comes back while there is more to do, or after a
// failure that may pass.
func (w *writer) tidy() {
	w.tidyTimer = nil
	if w.dead != nil {
		return
	}
	more, err := w.shrink()
	w.lookForChanges()
	empty := false
	if err == nil {
		empty, err = w.emptyWAL()
	}
	if err != nil {
		if w.tidyBack == 0 { // once
			w.log.Warn("the database cannot be tidied up: what was deleted may still be in its files",
				slog.String("error", err.Error()))
		}
		_ = w.failed("tidy up", err)
	}
	if empty {
		w.tidyBack = 0
	} else {
		w.tidyBack = min(max(2*w.tidyBack, tidyDelay), tidyWait)
	}
	if w.dead == nil && (more || !empty) {
		w.tidyLater(max(w.tidyBack, tidyDelay))
	}
}

// shrink returns at most shrinkPages free pages to the file system, and reports whether there are more to
// return. In a database without auto_vacuum it does nothing.
func (w *writer) shrink() (more bool, err error) {
	free, err := w.number("PRAGMA freelist_count")
	if err != nil || free <= freePages || !w.shrinks {
		return false, err
	}
	n := min(free-freePages, shrinkPages)
	if err := w.exec(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", n)); err != nil {
		return false, err
	}
	return free-n > freePages, nil
}

// emptyWAL is emptyWALWithin without a wait.
func (w *writer) emptyWAL() (empty bool, err error) { return w.emptyWALWithin(0) }

// emptyWALWithin moves the WAL into the database and truncates it, unless a reader needs it for longer than
// a wait: then it moves what it can and reports false.
func (w *writer) emptyWALWithin(wait time.Duration) (empty bool, err error) {
	if err := w.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", wait.Milliseconds())); err != nil {
		return false, err
	}
	empty, err = w.truncate()
	if code(err) == sqlite3.SQLITE_BUSY {
		empty, err = false, nil
	}
	if back := w.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", busyMillis)); err == nil {
		err = back
	}
	return empty, err
}

// number returns the first column of a statement's result.
func (w *writer) number(query string) (n int64, err error) {
	rows, err := w.conn.QueryContext(context.Background(), query)
	if err != nil {
		return 0, err
	}
	all, err := collect(rows, func(rows *sql.Rows) (n int64, err error) {
		columns, err := rows.Columns()
		if err != nil {
			return 0, err
		}
		into := make([]any, len(columns))
		into[0] = &n
		for i := range into[1:] {
			into[i+1] = new(any)
		}
		return n, rows.Scan(into...)
	})
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[0], nil
}

// modernize rebuilds a database that was made before incremental vacuum, if it is small, so that it shrinks
// from now on, and nothing is left of what was deleted before. It is one transaction: a process that is
// killed meanwhile leaves the database as it was. Without it the store works the same, but the file never
// shrinks.
func (w *writer) modernize(path string) error {
	mode, err := w.number("PRAGMA auto_vacuum")
	if err != nil {
		return fmt.Errorf("read the mode of vacuum: %w", err)
	}
	if w.shrinks = mode != 0; w.shrinks {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	wal, err := os.Stat(w.wal)
	size := info.Size()
	if err == nil {
		size += wal.Size()
	}
	if size > w.vacuum {
		w.log.Warn("the database was made before agentd could shrink it and is too large to be rebuilt at start: "+
			"its file does not shrink, and free pages hold what was deleted until they are used again",
			slog.Int64("bytes", size), slog.Int64("limit", w.vacuum))
		return nil
	}
	begun := time.Now()
	err = w.exec("PRAGMA auto_vacuum = INCREMENTAL") // counts from the next line on
	if err == nil {
		err = w.exec("VACUUM")
	}
	if err != nil {
		_ = w.exec("ROLLBACK")
		if c := classOfError(err); c == damaged || c == broken {
			return fmt.Errorf("rebuild the database: %w", err)
		}
		w.log.Warn("the database could not be rebuilt: its file does not shrink", slog.String("error", err.Error()))
		return nil
	}
	w.shrinks = true
	if _, err := w.emptyWAL(); err != nil {
		return fmt.Errorf("empty the WAL: %w", err)
	}
	w.log.Info("the database was rebuilt: its file shrinks from now on",
		slog.Int64("bytes", size), slog.Duration("took", time.Since(begun)))
	return nil
}
