//go:build !unix

package heldaddr

import (
	"context"
	"net"
	"testing"
)

// New finds a port of 127.0.0.1 that is free.
func New(t testing.TB) string {
	t.Helper()
	addr, _, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Hold finds a port of 127.0.0.1 that is free, and cannot hold it.
func Hold() (addr string, free func(), err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
