//go:build unix

package heldaddr

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// New finds a port of 127.0.0.1 and holds it for the life of the test.
func New(t testing.TB) string {
	t.Helper()
	addr, free, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return addr
}

// Hold finds a port of 127.0.0.1 and holds it until free is called, so that
// nothing else on this machine gets it while the server is down: this process has it
// bound, and does not listen. Linux lets a process listen on it that binds it in
// the same way, as Go's listeners and PostgreSQL do; elsewhere the port is free and no more.
func Hold() (addr string, free func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, err
	}
	syscall.CloseOnExec(fd)
	free = sync.OnceFunc(func() { _ = syscall.Close(fd) })
	if addr, err = bind(fd); err != nil || runtime.GOOS != "linux" {
		free()
	}
	return addr, free, err
}

func bind(fd int) (addr string, err error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port), nil
}
