package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
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
	// Now is the clock of the machine, which may be set while the process runs. It gives the
	// times of records, and decides what outlasts a process: retention, and due times after a
	// restart. No timer of this process depends on it. Default time.Now; tests set it.
	Now func() time.Time
	// Owners decide which of several servers over the store owns a session. nil: this server owns all.
	Owners Owners
	// Front, with Owners, has this server own no session and run no turn: it leaves all of that to others.
	Front bool
	// Slices divide the budgets of tenants among those servers; required with Owners if tenants have budgets. nil: what
	// this server reserves, the others do not know.
	Slices share.Budgets
	// Places, with Owners, are those of turns of tenants: Limits.MaxTenantTurns is then the bound of all those
	// servers together. The caller has them tended. nil: it is that of this server.
	Places *share.Places
	// Bus carries hints between those servers. nil: none, and what waits for other servers looks twice a second. The
	// manager does not close it.
	Bus hints
	// Reach, with Owners, reports whether this server reaches another one at an address, within some seconds.
	// Observers follow sessions of servers that it neither reaches nor hears on the bus in the log alone. nil: it
	// reaches all. Several goroutines may call it at once.
	Reach func(ctx context.Context, address string) bool
	// Below, with Owners, does to goals of children what their own servers have to. nil: children of other servers are
	// not stopped with their parents. Several goroutines may call it at once.
	Below Below
	// ChildrenWaitFor returns why no child may be spawned now, "" if one may. nil: one may always be. Several
	// goroutines may call it at once.
	ChildrenWaitFor func() string
	// NoBackgroundAgents takes background agents away from the trees of turns to come, and has no child be spawned.
	NoBackgroundAgents bool
	// Limits bound the manager.
	Limits limits.Limits
	// Agent returns the tree and the tools of an agent that the server keeps, in a Spec that the manager changes, and
	// with its name and its version, for the principal of the context. made is true for a session that was made
	// with it, which may run it also when it is archived. Several goroutines may call it at once. nil: none is kept.
	Agent func(ctx context.Context, ref *agentdv1.AgentRef, made bool) (*record.Spec, *agentdv1.AgentRef, error)
	// OnToolResult, if not nil, receives how each tool call was settled and how long that took from its request,
	// or from the approval of a person. It must not block, nor call the manager.
	OnToolResult func(outcome record.Outcome, took time.Duration)
	// OnFatal is called once if the store fails for good (ErrFailed). By then the manager
	// refuses new turns and suspends those that run. The process must end, so that the next
	// one opens the store. It must not block, nor call the manager.
	OnFatal func(error)
}

// Validate returns an error about what is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("session: Config.Store is missing")
	case c.Runner == nil:
		return errors.New("session: Config.Runner is missing")
	}
	return c.Limits.Validate()
}
