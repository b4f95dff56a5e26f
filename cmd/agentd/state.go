package main

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

type stateCmd struct {
	List   stateListCmd   `cmd:"" help:"List the state that sessions share, by key."`
	Set    stateSetCmd    `cmd:"" help:"Set a key of the state that sessions share, for all of them."`
	Remove stateRemoveCmd `cmd:"" help:"Remove keys of the state that sessions share, for all of them."`
}

type stateListCmd struct {
	daemonFlags `embed:""`
	Prefix      string `noenv:"" placeholder:"TEXT" help:"Only keys that begin with this, such as app: or user:."`
	Limit       int    `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*stateListCmd) Help() string {
	return "Bytes are what a key takes of the bound of its scope, app: or user:.\n\n" +
		"Examples:\n\n  agentd state list --prefix app:\n\n  agentd state list --limit 1000 --json | jq -r .key"
}

// Run lists keys.
func (c *stateListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		req := &agentdv1.ListSharedStateRequest{Prefix: c.Prefix}
		var all []*agentdv1.SharedStateEntry
		err := pages(c.Limit, func(size int32, token string) (int, string, error) {
			req.PageSize, req.PageToken = size, token
			resp, err := cli.Call(t.ctx, t.conn, t.conn.ListSharedState, req)
			all = append(all, resp.GetEntries()...)
			return len(resp.GetEntries()), resp.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return t.SharedState(all)
	})
}

type stateSetCmd struct {
	daemonFlags `embed:""`
	Key         string `arg:"" name:"KEY" help:"A key with its scope, such as app:plan."`
	Value       string `arg:"" name:"VALUE" help:"What it is to be, as JSON; null removes the key."`
}

// Help is shown below the flags.
func (*stateSetCmd) Help() string {
	return "Examples:\n\n  agentd state set app:plan '\"spring sale\"'\n\n  agentd state set app:limits '{\"refund\": 50}'"
}

// Run sets a key.
func (c *stateSetCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		values := []*agentdv1.SharedStateValue{{Key: c.Key, Value: c.Value}}
		_, err := cli.Call(t.ctx, t.conn, t.conn.SetSharedState, &agentdv1.SetSharedStateRequest{Values: values})
		return err
	})
}

type stateRemoveCmd struct {
	daemonFlags `embed:""`
	Keys        []string `arg:"" name:"KEY" help:"Keys with their scope, such as app:plan."`
}

// Help is shown below the flags.
func (*stateRemoveCmd) Help() string {
	return "A key that is not there is no error. Programs get the keys that were there.\n\n" +
		"Examples:\n\n  agentd state remove app:plan user:name"
}

// Run removes keys.
func (c *stateRemoveCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		resp, err := cli.Call(t.ctx, t.conn, t.conn.RemoveSharedState, &agentdv1.RemoveSharedStateRequest{Keys: c.Keys})
		if err != nil {
			return err
		}
		return t.Removed(c.Keys, resp)
	})
}
