//go:build !linux

package sqlite

import (
	"fmt"
	"os"
)

// lockDatabase locks nothing: here flock would meet SQLite's own locks. It refuses a database of several
// names instead, of which the lock file guards but one. It closes f.
func lockDatabase(f *os.File, info os.FileInfo) (*os.File, error) {
	if err := f.Close(); err != nil {
		return nil, err
	}
	if n := links(info); n > 1 {
		return nil, fmt.Errorf("%s has %d names (hard links), and only one of them can be locked: "+
			"remove the others, or copy the database", f.Name(), n)
	}
	return nil, nil
}

// unlockDatabase has nothing to unlock.
func unlockDatabase(*os.File) error { return nil }
