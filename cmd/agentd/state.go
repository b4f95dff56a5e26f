package main

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
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
	return `Bytes are what a key takes of the bound of its scope, app: or user:.

Examples:

  agentd state list --prefix app:

  agentd state list --limit 1000 --json | jq -r .key`
}

// Run lists keys.
func (c *stateListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[sharedEntry, error] {
			return func(yield func(sharedEntry, error) bool) {
				for entry, err := range t.conn.SharedState(ctx, c.Prefix) {
					if !yield(sharedEntry(entry), err) {
						return
					}
				}
			}
		})
		if err != nil {
			return err
		}
		return t.SharedState(all)
	})
}

// sharedEntry is an entry that has its message.
type sharedEntry client.SharedStateEntry

// Proto returns the entry's message.
func (e sharedEntry) Proto() *agentdv1.SharedStateEntry {
	return &agentdv1.SharedStateEntry{Key: e.Key, Value: e.Value, Bytes: e.Bytes}
}

type stateSetCmd struct {
	daemonFlags `embed:""`
	Key         string `arg:"" name:"KEY" help:"A key with its scope, such as app:plan."`
	Value       string `arg:"" name:"VALUE" help:"What it is to be, as JSON; null removes the key."`
}

// Help is shown below the flags.
func (*stateSetCmd) Help() string {
	return `Examples:

  agentd state set app:plan '"spring sale"'

  agentd state set app:limits '{"refund": 50}'`
}

// Run sets a key.
func (c *stateSetCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		_, err := get(t, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, t.conn.SetSharedState(ctx, map[string]any{c.Key: json.RawMessage(c.Value)})
		})
		return err
	})
}

type stateRemoveCmd struct {
	daemonFlags `embed:""`
	Keys        []string `arg:"" name:"KEY" help:"Keys with their scope, such as app:plan."`
}

// Help is shown below the flags.
func (*stateRemoveCmd) Help() string {
	return `A key that is not there is no error. Programs get the keys that were there.

Examples:

  agentd state remove app:plan user:name`
}

// Run removes keys.
func (c *stateRemoveCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		removed, err := get(t, func(ctx context.Context) ([]string, error) {
			return t.conn.RemoveSharedState(ctx, c.Keys)
		})
		if err != nil {
			return err
		}
		return t.Removed(c.Keys, &agentdv1.RemoveSharedStateResponse{Removed: removed})
	})
}
