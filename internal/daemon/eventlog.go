package daemon

import (
	"errors"

	"github.com/apzuk3/agentd/internal/eventlog"
	"github.com/apzuk3/agentd/session/store"
)

// eventLogged returns the store with events for what is appended, if the config says so.
func (d *Daemon) eventLogged(s store.Store) (store.Store, error) {
	if !d.cfg.EventLog {
		return s, nil
	}
	log, keeps := d.store.(eventlog.Source)
	if !keeps {
		return nil, errors.New("daemon: EventLog needs a store that keeps events, as that of a DataDir does")
	}
	d.events = eventlog.NewLog(log)
	return eventlog.New(s, d.runner, d.cfg.Encryption.IsZero(), d.events.Tell), nil
}
