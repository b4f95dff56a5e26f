package daemon

import (
	"context"
	"errors"

	"github.com/apzuk3/agentd/adkbridge"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agents"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session/record"
)

// openAgents makes what keeps the agents of callers, if there is a ledger.
func (d *Daemon) openAgents() {
	if d.ledger == nil {
		return
	}
	// A tree that is kept needs no key: callers may bring their own.
	rules := adkbridge.New(adkbridge.Config{
		ResolveFor: func(tenant string) func(string, map[string]string) (adkbridge.Model, error) {
			return byName(d.live.Load().modelsOf(tenant).registry, false)
		},
		Limits: d.cfg.Trees, Logger: d.log, CompactAt: d.cfg.CompactAt,
	})
	d.agents = agents.New(agents.Config{
		Ledger: d.ledger,
		Check:  func(ctx context.Context, spec *record.Spec) error { return rules.Check(ctx, spec, nil) },
	})
}

// agentTree is what sessions ask for agents that the server keeps; nil if it keeps none.
func (d *Daemon) agentTree() func(
	context.Context, *agentdv1.AgentRef, bool,
) (*record.Spec, *agentdv1.AgentRef, error) {
	if d.agents == nil {
		return nil
	}
	return d.agents.Tree
}

// keepers has a server keep agents and objects, if there is a ledger.
func (d *Daemon) keepers(cfg *server.Config) {
	if d.ledger != nil {
		cfg.Agents, cfg.Objects = d.agents, d.ledger
	}
	if d.schedules != nil {
		cfg.Schedules = d.schedules
	}
}

// eraseKept erases the agents and the objects of a tenant, or of a user, and returns how many.
func (d *Daemon) eraseKept(ctx context.Context, e *Erasure) (kept, objects int, err error) {
	kept, err = d.ledger.RemoveAgentsOf(ctx, e.Tenant, e.User)
	if d.schedules != nil {
		_, schedulesErr := d.schedules.RemoveOf(ctx, e.Tenant, e.User)
		err = errors.Join(err, schedulesErr)
	}
	objects, objectsErr := d.ledger.RemoveObjectsOf(ctx, e.Tenant, e.User)
	return kept, objects, errors.Join(err, objectsErr)
}
