//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// fileLock is held by the process that has a database open. The kernel gives it back when the process dies.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f)
	if err == nil {
		return &fileLock{f}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = inUse(path)
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}

// flock locks a file for this descriptor alone, or fails with EWOULDBLOCK.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// release leaves the file: removing it could let two processes in. Closing alone would not do while a
// process that is just being started has a copy of the handle.
func (l *fileLock) release() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}

// realPath is a file's path without symlinks, which is where SQLite makes its other files. The file is made
// if it may be and there is none.
func realPath(path string, create bool) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	// SQLite would make the file readable by others, and its other files like it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// links is how many names a file has.
func links(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // its type depends on the system
	}
	return 1
}
