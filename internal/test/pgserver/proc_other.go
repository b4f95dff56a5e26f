//go:build !unix

package pgserver

import (
	"errors"
	"os"
	"os/exec"
)

// supported says that servers run on this system.
const supported = false

var immediately = os.Kill

var errUnsupported = errors.New("not supported on this system")

func ownGroup(*exec.Cmd) {}

func asOther(*exec.Cmd) {}

func hand(...string) error { return errUnsupported }

func exited(int) bool { return true }

func kill(int) error { return errUnsupported }

func freeze(int) error { return errUnsupported }

func thaw(int) error { return errUnsupported }

func gone(int) bool { return true }

func children(int) []int { return nil }
