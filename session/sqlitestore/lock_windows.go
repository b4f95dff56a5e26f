package sqlitestore

import (
	"errors"
	"fmt"
	"syscall"
)

// errSharingViolation is Windows' ERROR_SHARING_VIOLATION.
const errSharingViolation = syscall.Errno(32)

// fileLock is held by the process that has a database open: its handle shares
// the file with nobody. Windows closes it when the process dies.
type fileLock struct{ h syscall.Handle }

func lockFile(path string) (*fileLock, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, fmt.Errorf("%w: another agentd holds %s; stop it or choose another path", ErrLocked, path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &fileLock{h}, nil
}

func (l *fileLock) release() error { return syscall.CloseHandle(l.h) }
