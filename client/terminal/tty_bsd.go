//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// readQueue is FREAD of the system's headers: the input of a terminal.
const readQueue = 1

// isTerminal reports whether a person types into a file.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TIOCGETA)
	return err == nil
}

// flushTyped drops what was typed and is not read, also a line without its end.
func flushTyped(f *os.File) { _ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCFLUSH, readQueue) }
