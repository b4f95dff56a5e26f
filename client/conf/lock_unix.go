//go:build unix && !aix && !solaris

package conf

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file or folder for this process alone until it is closed. An update takes milliseconds.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
