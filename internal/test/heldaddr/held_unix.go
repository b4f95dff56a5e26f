//go:build unix

package heldaddr

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
)

// New finds a port of 127.0.0.1 and holds it for the life of the test, so that
// nothing else on this machine gets it while the server is down: the test has it
// bound, and does not listen. Linux lets a process listen on it that binds it in
// the same way, as Go's listeners do; elsewhere the port is free and no more.
func New(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	free := func() { _ = syscall.Close(fd) }
	if runtime.GOOS == "linux" {
		t.Cleanup(free)
	} else {
		defer free()
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
