//go:build unix && !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package terminal

import "os"

// isTerminal is false: how such a system drops what was typed is not known here.
func isTerminal(*os.File) bool { return false }

// flushTyped does nothing: such a file is no keyboard.
func flushTyped(*os.File) {}
