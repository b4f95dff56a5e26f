package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockDatabase locks a database by flock, which on Linux knows nothing of fcntl's locks: those are
// SQLite's. The descriptor is to be closed after SQLite's own. On an error f is closed.
func lockDatabase(f *os.File, _ os.FileInfo) (*os.File, error) {
	err := flock(f)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w: another agentd holds %s under another name, by a hard link or a mount; "+
			"stop it or choose another database", ErrLocked, f.Name())
	default:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil, errors.Join(err, f.Close())
}

// unlockDatabase unlocks for a process that is just being started and has a copy of the descriptor, too.
func unlockDatabase(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
