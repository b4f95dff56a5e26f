//go:build unix

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// otherName gives the database in dir another name, and returns that one's folder.
type otherName func(t *testing.T, dir string) string

// mustDo fails the test on an error.
func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func symlinkedFile(t *testing.T, dir string) string {
	t.Helper()
	other := t.TempDir()
	mustDo(t, os.Symlink(filepath.Join(dir, "agentd.db"), filepath.Join(other, "agentd.db")))
	return other
}

func symlinkedFolder(t *testing.T, dir string) string {
	t.Helper()
	other := filepath.Join(t.TempDir(), "other")
	mustDo(t, os.Symlink(dir, other))
	return other
}

// refusedElsewhere checks that a database which is open in dir is opened under no
// other name, by this process or another one, and that it is again once it is closed.
func refusedElsewhere(t *testing.T, name otherName) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	mustCreate(t, s, "a")
	other := name(t, dir)
	second, err := openAs(t.Context(), filepath.Join(other, "agentd.db"))
	if second != nil {
		mustClose(t, second)
	}
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), filepath.Join(dir, "agentd.db")) || !strings.Contains(err.Error(), "stop it") {
		t.Errorf("a second Open of this process: %v, want %v, what is locked and what to do", err, ErrLocked)
	}
	if said := openerSays(t, other); said != "locked" {
		t.Errorf("another process says %q", said)
	}
	mustAppend(t, s, batchOf("a", 0, 1, 10)) // the first is none the worse for it
	mustClose(t, s)
	if said := openerSays(t, other); said != "open" {
		t.Errorf("another process says %q of a database that is closed", said)
	}
}

// openerSays returns what a process says that opens the database in dir and ends.
func openerSays(t *testing.T, dir string, env ...string) string {
	t.Helper()
	o := startOpener(t, dir, env...)
	said := o.says(t)
	mustDo(t, o.stdin.Close())
	if err := o.cmd.Wait(); err != nil {
		t.Error(err)
	}
	return said
}

// TestOtherNames (F40): the database is locked, not its name.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]otherName{"a symlink": symlinkedFile, "a folder's symlink": symlinkedFolder} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusedElsewhere(t, other)
		})
	}
}

// TestDanglingSymlink makes the database that a symlink names, with its files beside it.
func TestDanglingSymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := symlinkedFile(t, dir)
	s := open(t, other)
	mustCreate(t, s, "a")
	for _, name := range []string{"agentd.db", "agentd.db-wal", "agentd.db.lock"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	mustClose(t, s)
	s = open(t, dir)
	defer mustClose(t, s)
	lastSeq(t, s, "a")
}

// TestMovedDatabase: once its file has another name, or none, nothing is acknowledged
// that the next process would not find, and nothing is read from another database.
func TestMovedDatabase(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, path string){
		"renamed": func(t *testing.T, path string) {
			t.Helper()
			mustDo(t, os.Rename(path, path+".old"))
		},
		"removed": func(t *testing.T, path string) {
			t.Helper()
			mustDo(t, os.Remove(path))
		},
		"replaced": func(t *testing.T, path string) {
			t.Helper()
			mustDo(t, os.Rename(path, path+".old"))
			elsewhere := t.TempDir()
			mustClose(t, open(t, elsewhere))
			mustDo(t, os.Rename(filepath.Join(elsewhere, "agentd.db"), path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			movedUnder(t, move)
		})
	}
}

func movedUnder(t *testing.T, move func(t *testing.T, path string)) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "agentd.db")
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	mustAppend(t, s, batchOf("a", 0, 1, 10))
	used, err := s.readers.Conn(t.Context()) // so that a read opens another connection
	mustDo(t, err)
	move(t, path)
	_, err = s.Head(t.Context(), "a")
	if !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), path) {
		t.Errorf("a read: %v, want %v and what is wrong", err, store.ErrFailed)
	}
	mustDo(t, used.Close())
	for range 2 {
		err := s.Append(t.Context(), batchOf("a", 1, 1, 10))
		if !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), path) {
			t.Errorf("an append: %v, want %v and what is wrong", err, store.ErrFailed)
		}
	}
}
