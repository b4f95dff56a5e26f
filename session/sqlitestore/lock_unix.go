//go:build unix

package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// fileLock is held by the process that has a database open. The kernel gives
// it back when the process dies.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return &fileLock{f}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: another agentd holds %s; stop it or choose another path", ErrLocked, path)
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}

// release leaves the file: removing it could let two processes in. Closing alone
// would not do while a process that is just being started has a copy of the handle.
func (l *fileLock) release() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}
