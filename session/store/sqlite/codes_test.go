package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/apzuk3/agentd/session/store"
)

// TestCodes walks over all codes that the driver knows: each has a class, and so has one
// that a later SQLite may bring.
func TestCodes(t *testing.T) {
	for code, text := range sqlite.ErrorCodeString {
		if _, ok := classes[code&0xff]; !ok {
			t.Errorf("code %d, %s, has no class", code, text)
		}
	}
	for primary := sqlite3.SQLITE_ERROR; primary <= sqlite3.SQLITE_WARNING; primary++ {
		if _, ok := classes[primary]; !ok {
			t.Errorf("code %d has no class", primary)
		}
		for minor := range 64 {
			if c := classOf(primary | minor<<8); c < passing || c > broken {
				t.Errorf("code %d has class %d", primary|minor<<8, c)
			}
		}
	}
	for code, want := range map[int]class{
		sqlite3.SQLITE_CORRUPT:           damaged,
		sqlite3.SQLITE_CORRUPT_INDEX:     damaged,
		sqlite3.SQLITE_CORRUPT_SEQUENCE:  damaged,
		sqlite3.SQLITE_CORRUPT_VTAB:      damaged,
		sqlite3.SQLITE_NOTADB:            damaged,
		sqlite3.SQLITE_ERROR:             damaged,
		sqlite3.SQLITE_IOERR_FSYNC:       broken,
		sqlite3.SQLITE_IOERR_SHORT_READ:  broken,
		sqlite3.SQLITE_IOERR_NOMEM:       passing,
		sqlite3.SQLITE_IOERR_DATA:        damaged,
		sqlite3.SQLITE_READONLY_DBMOVED:  broken,
		sqlite3.SQLITE_BUSY_SNAPSHOT:     passing,
		sqlite3.SQLITE_BUSY_TIMEOUT:      passing,
		sqlite3.SQLITE_LOCKED:            passing,
		sqlite3.SQLITE_FULL:              full,
		sqlite3.SQLITE_CONSTRAINT_UNIQUE: refused,
		sqlite3.SQLITE_TOOBIG:            refused,
		255:                              broken,
		-1:                               broken,
	} {
		if got := classOf(code); got != want {
			t.Errorf("code %d has class %d, want %d", code, got, want)
		}
	}
}

// TestNames: what an error is called decides whether the call is made again.
func TestNames(t *testing.T) {
	errOther := errors.New("other")
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{errOther, store.ErrDamaged}, // of a Scan
		{store.ErrNoSession, store.ErrNoSession},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), context.DeadlineExceeded},
	} {
		err := named(c.err)
		if !errors.Is(err, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%v is named %v, want %v", c.err, err, c.want)
		}
		for _, other := range []error{store.ErrDamaged, store.ErrFailed} {
			if !errors.Is(c.want, other) && errors.Is(err, other) {
				t.Errorf("%v is also named %v", c.err, other)
			}
		}
	}
}

// TestDamagedRow damages one row of one session in each way that SQLite itself does not
// notice: calls that meet it fail for good, the others see nothing of it.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"usage is no JSON":        `UPDATE sessions SET usage = '{' WHERE id = 'bad'`,
		"usage is another object": `UPDATE sessions SET usage = '{"prompt":"many"}' WHERE id = 'bad'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mustCreate(t, s, "bad", "good")
			mustAppend(t, s, batchOf("good", 0, 3, 10))
			mustClose(t, s)
			execSQL(t, dir, damage)

			s = open(t, dir)
			defer mustClose(t, s)
			version := int64(1)
			calls := map[string]error{}
			_, calls["Info"] = s.Info(t.Context(), "bad")
			_, calls["Sessions"] = s.Sessions(t.Context(), store.InfoQuery{Limit: 10})
			_, calls["Update"] = s.Update(t.Context(), "bad", store.Change{Version: version, Labels: map[string]string{"a": "b"}})
			for call, err := range calls {
				if !errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFailed) {
					t.Errorf("%s: %v, want %v", call, err, store.ErrDamaged)
				}
			}
			if n := lastSeq(t, s, "good"); n != 3 {
				t.Errorf("the log of the other session ends at %d", n)
			}
			mustAppend(t, s, batchOf("good", 3, 1, 10))
		})
	}
}

// execSQL changes a database behind the store's back, which is closed.
func execSQL(t *testing.T, dir string, queries ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "agentd.db"), pragmas()))
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
