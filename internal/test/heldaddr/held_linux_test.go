package heldaddr_test

import (
	"net"
	"testing"

	"github.com/apzuk3/agentd/internal/test/heldaddr"
)

// One server after the other listens on the address, and nobody else is given it.
func TestNew(t *testing.T) {
	addr := heldaddr.New(t)
	for range 3 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if again := heldaddr.New(t); again == addr {
			t.Errorf("%s is held twice", addr)
		}
	}
}
