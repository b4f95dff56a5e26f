//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNoSpecialCharactersInPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "what?mode=memory", "a#b", "a%20b", "日本.db", "a&b=c", "file:x"} {
		path := filepath.Join(t.TempDir(), "new", name)
		for round := range 2 {
			s, err := openAs(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 {
				mustCreate(t, s, "a")
			}
			lastSeq(t, s, "a")
			mustClose(t, s)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 2 || entries[0].Name() != name || entries[1].Name() != name+".lock" {
			t.Errorf("closed, %q leaves %v, %v, want the database and its lock", name, entries, err)
		}
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, dir)
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	for name, want := range map[string]os.FileMode{
		"": 0o700, "agentd.db": 0o600, "agentd.db-wal": 0o600, "agentd.db-shm": 0o600, "agentd.db.lock": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has permissions %o, want %o", name, got, want)
		}
	}
}
