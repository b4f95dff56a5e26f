package client

import (
	"errors"
	"os"
	"syscall"
)

// errSharingViolation is Windows' ERROR_SHARING_VIOLATION.
const errSharingViolation = syscall.Errno(32)

// lockFile opens a file for this program alone; nil if another one holds it. Others may
// read it meanwhile, and neither write nor remove it. The lock ends with the file, and with the process.
func lockFile(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ, nil,
		syscall.OPEN_EXISTING, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// removeLocked removes a file that is locked, and closes it first: Windows removes none that
// is open. A program that opens it in between keeps it.
func removeLocked(file *os.File) error {
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil && !errors.Is(err, errSharingViolation) {
		return err
	}
	return nil
}

// syncDir does nothing: Windows writes the names in a folder with their files.
func syncDir(string) error { return nil }
