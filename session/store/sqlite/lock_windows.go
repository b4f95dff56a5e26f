package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errSharingViolation is Windows' ERROR_SHARING_VIOLATION.
const errSharingViolation = syscall.Errno(32)

// fileLock is held by the process that has a database open: no other handle can open the file. Windows
// closes the handle when the process dies.
type fileLock struct{ h syscall.Handle }

func lockFile(path string) (*fileLock, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, inUse(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &fileLock{h}, nil
}

func (l *fileLock) release() error { return syscall.CloseHandle(l.h) }

// realPath makes the file if it may be and there is none.
func realPath(path string, create bool) (string, error) {
	if !create {
		return path, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	return path, f.Close()
}

// links is not known.
func links(os.FileInfo) uint64 { return 1 }
