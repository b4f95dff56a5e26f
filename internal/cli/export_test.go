package cli

import "github.com/apzuk3/agentd/client"

// DialWith is Dial with options of a test.
func DialWith(address string, opts ...client.Option) (*Conn, error) { return dial(address, opts...) }

// MaxHeld is how many events wait behind a question.
const MaxHeld = maxHeld
