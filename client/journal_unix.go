//go:build unix && !aix && !solaris

package client

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file for this program alone; nil if another one holds it. The lock
// ends with the file, and with the process.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, file.Close()
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, file.Close())
	}
	return file, nil
}

// removeLocked removes a file that is locked, and closes it.
func removeLocked(file *os.File) error {
	return errors.Join(os.Remove(file.Name()), file.Close())
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return finishFile(dir, nil)
}
