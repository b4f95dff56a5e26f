//go:build !windows && (!unix || aix || solaris)

package client

import (
	"errors"
	"os"
)

// lockFile opens a file. This system has no locks that end with a process.
func lockFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// removeLocked removes a file and closes it.
func removeLocked(file *os.File) error { return errors.Join(os.Remove(file.Name()), file.Close()) }

// syncDir does nothing: not every system of these can do that.
func syncDir(string) error { return nil }
