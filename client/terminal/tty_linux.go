package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a person types into a file.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// flushTyped drops what was typed and is not read, also a line without its end.
func flushTyped(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
