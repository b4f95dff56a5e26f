package sqlite

import (
	"os"
	"testing"
)

// TestCheckpointsBeside: the WAL is moved into the database while appends go on, by another
// connection than theirs, and is begun anew, so that it does not grow with what is appended.
func TestCheckpointsBeside(t *testing.T) {
	s := open(t, t.TempDir())
	defer mustClose(t, s)
	mustCreate(t, s, "a")
	const appends, size = 96, 1 << 20
	var longest int64
	for n := range int64(appends) {
		mustAppend(t, s, batchOf("a", n, 1, size))
		info, err := os.Stat(s.writer.wal)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, info.Size())
	}
	if longest > walBytes*3/4 {
		t.Errorf("the WAL had %d bytes after %d were appended", longest, appends*size)
	}
	if info, err := os.Stat(s.hold.path); err != nil || info.Size() < appends*size/2 {
		t.Errorf("the database: %v, %v; want most of what was appended", info, err)
	}
}
