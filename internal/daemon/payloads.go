package daemon

import (
	"github.com/apzuk3/agentd/internal/payloads"
	"github.com/apzuk3/agentd/session/store"
)

// withoutPayloads returns the store with what tools were given and returned removed at the ends of their turns, where
// the daemon or the session says so.
func (d *Daemon) withoutPayloads(s store.Store) store.Store {
	return payloads.New(s, d.runner, func() bool { return d.live.Load().cfg.DropToolPayloads })
}
