//go:build !unix

package heldaddr

import (
	"net"
	"testing"
)

// New finds a port of 127.0.0.1 that is free.
func New(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
