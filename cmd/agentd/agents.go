package main

import (
	"context"
	"errors"
	"iter"
	"os"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
)

type agentsCmd struct {
	Apply   agentsApplyCmd   `cmd:"" help:"Have the daemon keep the agents of files."`
	List    agentsListCmd    `cmd:"" help:"List agents that the daemon keeps, or the versions of one."`
	Show    agentsShowCmd    `cmd:"" help:"Show an agent that the daemon keeps."`
	Diff    agentsDiffCmd    `cmd:"" help:"Show what differs between versions, or from a file."`
	Archive agentsArchiveCmd `cmd:"" help:"Have an agent be used by nothing new."`
	Delete  agentsDeleteCmd  `cmd:"" help:"Remove an agent with all its versions."`
}

type agentsApplyCmd struct {
	daemonFlags `embed:""`
	Files       []string     `arg:"" name:"FILE" help:"Files with an agent and its tools."`
	Name        string       `noenv:"" placeholder:"NAME" help:"${agents_apply_name}"`
	Version     *int64       `noenv:"" placeholder:"N" help:"${agents_apply_version}"`
	Metadata    metadataFlag `noenv:"" placeholder:"JSON" help:"${agents_apply_metadata}"`
	DryRun      bool         `noenv:"" help:"Only say what would change."`
}

// Help is shown below the flags.
func (*agentsApplyCmd) Help() string {
	return `The daemon checks the trees as it does those of turns. What it keeps already makes no new version.
The commands of tools stay here: who runs the agent runs its tools.

Examples:

  agentd agents apply examples/agents/greeter.yaml

  agentd agents apply --name desk --dry-run desk.yaml

  agentd run --agent greeter examples/agents/greeter.yaml "Say hi to Alice"`
}

// Validate refuses flags that do not go together.
func (c *agentsApplyCmd) Validate() error {
	if len(c.Files) > 1 && (c.Name != "" || c.Version != nil || c.Metadata != nil) {
		return errors.New("--name, --version and --metadata are for one FILE")
	}
	return nil
}

// Run has the daemon keep agents.
func (c *agentsApplyCmd) Run(p *process) error {
	var defs []client.AgentDefinition
	for _, name := range c.Files {
		def, done, err := definition(p, name)
		if err != nil {
			return err
		}
		defer done()
		if c.Name != "" {
			def.Name = c.Name
		}
		def.Read, def.Metadata, def.DryRun = c.Version, c.Metadata, c.DryRun
		defs = append(defs, def)
	}
	return c.talk(p, func(t talk) error {
		for i := range defs {
			if err := t.apply(defs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// apply has the daemon keep an agent, and says what has become of it.
func (t talk) apply(def client.AgentDefinition) error {
	created := false
	a, err := get(t, func(ctx context.Context) (a *client.RegisteredAgent, err error) {
		a, created, err = t.conn.ApplyAgent(ctx, def)
		return a, err
	})
	switch {
	case err != nil:
		return err
	case t.JSON:
		return cli.WriteJSON(t.Out, &agentdv1.ApplyAgentResponse{Agent: a.Proto(), Created: created})
	case !created:
		return t.Done("%s is version %d already", a.Name, a.Version)
	case def.DryRun:
		return t.Done("%s would be version %d", a.Name, a.Version)
	}
	return t.Done("%s is version %d now", a.Name, a.Version)
}

// definition reads a file with an agent and the tools that it names. done ends what serves the tools.
func definition(p *process, name string) (def client.AgentDefinition, done func(), err error) {
	file, err := agentfile.Read(name)
	if err != nil {
		return def, nil, &codedError{code: exitUsage, err: err}
	}
	own, err := ownTools(file)
	if err != nil {
		return def, nil, err
	}
	flags := packFlags{NoMemory: true}
	project, err := flags.project(p, file)
	if err != nil {
		return def, nil, err
	}
	def = client.AgentDefinition{
		Name: file.Agent.GetName(), Agent: file.Agent, Tools: append(project.pack.sets(), own),
	}
	return def, project.pack.close, nil
}

type agentsListCmd struct {
	daemonFlags `embed:""`
	Name        string `arg:"" optional:"" name:"NAME" help:"List the versions of this agent."`
	Archived    bool   `noenv:"" help:"Also those that are archived."`
	Limit       int    `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*agentsListCmd) Help() string {
	return "Examples:\n\n  agentd agents list\n\n  agentd agents list greeter"
}

// Run lists agents.
func (c *agentsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		filter := client.AgentFilter{Name: c.Name, Archived: c.Archived, PageSize: pageSize(c.Limit)}
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.RegisteredAgent, error] {
			return t.conn.RegisteredAgents(ctx, filter)
		})
		if err != nil {
			return err
		}
		return t.Agents(all)
	})
}

// agentFlag names an agent that the daemon keeps.
type agentFlag client.AgentRef

// UnmarshalText reads what people write.
func (f *agentFlag) UnmarshalText(text []byte) error {
	ref, err := cli.ReadAgentRef(string(text))
	*f = agentFlag(ref)
	return err
}

// agent reads an agent that the daemon keeps.
func (t talk) agent(ref agentFlag) (*agentdv1.RegisteredAgent, error) {
	a, err := get(t, func(ctx context.Context) (*client.RegisteredAgent, error) {
		return t.conn.RegisteredAgent(ctx, client.AgentRef(ref))
	})
	if err != nil {
		return nil, err
	}
	return a.Proto(), nil
}

type agentsShowCmd struct {
	daemonFlags `embed:""`
	Agent       agentFlag `arg:"" name:"AGENT" help:"${agents_agent}"`
}

// Help is shown below the flags.
func (*agentsShowCmd) Help() string {
	return "Examples:\n\n  agentd agents show greeter\n\n  agentd agents show greeter@1"
}

// Run shows an agent.
func (c *agentsShowCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		a, err := t.agent(c.Agent)
		if err != nil {
			return err
		}
		return t.Agent(a)
	})
}

type agentsDiffCmd struct {
	daemonFlags `embed:""`
	Agent       string `arg:"" name:"AGENT" help:"${agents_agent}"`
	Other       string `arg:"" optional:"" name:"OTHER" help:"${agents_diff_other}"`
}

// Help is shown below the flags.
func (*agentsDiffCmd) Help() string {
	return `The exit code is 1 if anything differs.

Examples:

  agentd agents diff greeter examples/agents/greeter.yaml

  agentd agents diff greeter@1 greeter`
}

// Run shows what differs.
func (c *agentsDiffCmd) Run(p *process) error {
	ref, err := cli.ReadAgentRef(c.Agent)
	if err != nil {
		return usage("%w", err)
	}
	var other agentFlag
	var def *client.AgentDefinition
	switch stat, statErr := os.Stat(c.Other); {
	case c.Other == "" && ref.Version < 2:
		return usage("name what to compare with: a file, or another version")
	case c.Other == "":
		other = agentFlag{Name: ref.Name, Version: ref.Version - 1}
	case statErr == nil && !stat.IsDir():
		d, done, err := definition(p, c.Other)
		if err != nil {
			return err
		}
		defer done()
		d.Name, d.DryRun = ref.Name, true
		def = &d
	default:
		if err := other.UnmarshalText([]byte(c.Other)); err != nil {
			return usage("%w, or the name of a file", err)
		}
	}
	differs := false
	err = c.talk(p, func(t talk) error {
		a, err := t.agent(agentFlag(ref))
		if err != nil {
			return err
		}
		b := new(agentdv1.RegisteredAgent)
		if def == nil {
			b, err = t.agent(other)
		} else {
			var made *client.RegisteredAgent
			made, err = get(t, func(ctx context.Context) (a *client.RegisteredAgent, err error) {
				a, _, err = t.conn.ApplyAgent(ctx, *def)
				return a, err
			})
			if err == nil {
				b = made.Proto()
			}
		}
		if err != nil {
			return err
		}
		nameB := c.Other
		if c.Other == "" { // the version before is the old one
			a, b, nameB = b, a, c.Agent
			c.Agent = "the version before"
		}
		differs, err = t.AgentDiff(a, b, c.Agent, nameB)
		return err
	})
	if err == nil && differs {
		return &codedError{code: exitError}
	}
	return err
}

type agentsArchiveCmd struct {
	daemonFlags `embed:""`
	Name        string `arg:"" name:"NAME" help:"The agent."`
}

// Help is shown below the flags.
func (*agentsArchiveCmd) Help() string {
	return "Sessions that were made with it go on. It cannot be taken back.\n\nExamples:\n\n  agentd agents archive greeter"
}

// Run archives an agent.
func (c *agentsArchiveCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		a, err := get(t, func(ctx context.Context) (*client.RegisteredAgent, error) {
			return t.conn.ArchiveAgent(ctx, c.Name)
		})
		if err != nil {
			return err
		}
		if t.JSON {
			return cli.WriteJSON(t.Out, a.Proto())
		}
		return t.Done("archived %s", c.Name)
	})
}

type agentsDeleteCmd struct {
	daemonFlags `embed:""`
	Name        string `arg:"" name:"NAME" help:"The agent."`
	Yes         bool   `noenv:"" help:"Do not ask whether you are sure."`
}

// Help is shown below the flags.
func (*agentsDeleteCmd) Help() string {
	return "Sessions that have run it keep their trees.\n\nExamples:\n\n  agentd agents delete --yes greeter"
}

// Run removes an agent.
func (c *agentsDeleteCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		if err := t.confirm(p, c.Yes, "Delete agent %s and all its versions for good?", c.Name); err != nil {
			return err
		}
		_, err := get(t, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, t.conn.DeleteAgent(ctx, c.Name)
		})
		if err != nil {
			return err
		}
		return t.Done("deleted %s", c.Name)
	})
}
