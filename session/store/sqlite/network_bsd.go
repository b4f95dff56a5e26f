//go:build darwin || freebsd

package sqlite

import (
	"fmt"
	"strings"
	"syscall"
)

// mntLocal is MNT_LOCAL: the file system is stored on this machine.
const mntLocal = 0x1000

// networkOf returns the name of the network file system that a path is on, "" for another one.
func networkOf(path string) (string, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return "", fmt.Errorf("statfs %s: %w", path, err)
	}
	if stat.Flags&mntLocal != 0 {
		return "", nil
	}
	var name strings.Builder
	for _, c := range stat.Fstypename {
		if c == 0 {
			break
		}
		name.WriteByte(byte(c))
	}
	return name.String(), nil
}
