package cli

import (
	"context"
	"net"
)

// DialWith has a Conn connect as a test says.
func (c *Conn) DialWith(dial func(context.Context, string, string) (net.Conn, error)) {
	c.transport.DialContext = dial
}

// MaxHeld is how many events wait behind a question.
const MaxHeld = maxHeld
