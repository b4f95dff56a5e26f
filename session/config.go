package session

import (
	"errors"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// Config is what a Manager works with.
type Config struct {
	// Store keeps the logs; required. The manager does not close it.
	Store store.Store
	// Runner is the agent engine; required.
	Runner Runner
	// Logger takes one line per turn. Default: none.
	Logger *slog.Logger
	// Now is the machine's clock, which people and programs set. What it says stands in the
	// log, and counts for what outlasts a process: retention, and due times after a
	// restart. No timer of this process follows it. Default time.Now; tests set it.
	Now func() time.Time
	// Limits bound the manager.
	Limits limits.Limits
	// OnFatal is called once if the store fails for good (ErrFailed); by then no
	// new turns are taken and those that run are being suspended. The process
	// has to end, so that the next one opens the store anew. It must not block, nor
	// call the manager.
	OnFatal func(error)
}

// Validate says what is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("session: Config.Store is missing")
	case c.Runner == nil:
		return errors.New("session: Config.Runner is missing")
	}
	return c.Limits.Validate()
}
