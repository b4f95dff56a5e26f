//go:build !unix

package terminal

import (
	"context"
	"os"
)

// isTerminal is false: reads cannot be interrupted.
func isTerminal(*os.File) bool { return false }

// flushTyped does nothing: such a file is no keyboard.
func flushTyped(*os.File) {}

// awaitInput cannot wait.
func awaitInput(context.Context, *os.File) (waits bool, err error) { return false, nil }
