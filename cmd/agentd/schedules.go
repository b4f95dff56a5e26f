package main

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
)

type schedulesCmd struct {
	Create schedulesCreateCmd `cmd:"" help:"Have the daemon start a prompt at times."`
	List   schedulesListCmd   `cmd:"" help:"List schedules, with their last and next runs."`
	Show   schedulesShowCmd   `cmd:"" help:"Show a schedule, and what it starts."`
	Delete schedulesDeleteCmd `cmd:"" help:"End schedules; what runs continues."`
}

type schedulesCreateCmd struct {
	daemonFlags `embed:""`
	Words       []string      `arg:"" name:"FILE PROMPT" help:"${schedules_words}"`
	ID          string        `name:"id" noenv:"" placeholder:"ID" help:"${schedules_id}"`
	Cron        string        `noenv:"" placeholder:"TIMES" help:"${schedules_cron}"`
	Zone        string        `noenv:"" placeholder:"ZONE" help:"${schedules_zone}"`
	Every       time.Duration `noenv:"" placeholder:"DURATION" help:"The time from one run to the next, at least 10s."`
	At          timeFlag      `noenv:"" placeholder:"TIME" help:"Run once: 2026-01-31T08:00:00Z, or 30m from now."`
	Agent       *agentFlag    `noenv:"" placeholder:"AGENT" help:"${schedules_agent}"`
	Session     string        `noenv:"" placeholder:"ID" help:"The session of the runs. Default: one of its own."`

	Goal     bool    `noenv:"" help:"Each run is a goal: PROMPT is what is to be reached."`
	MaxTurns int     `noenv:"" placeholder:"N" help:"Turns of each goal. Default: 50."`
	MaxCost  float64 `noenv:"" placeholder:"USD" help:"US dollars that each goal may cost."`
}

// timeFlag is a time, or how far ahead it is.
type timeFlag struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *timeFlag) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil && d >= 0 {
		f.Time = time.Now().Add(d)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("want a time such as 2026-01-31T08:00:00Z, or a duration such as 30m")
	}
	f.Time = t
	return nil
}

// Help is shown below the flags.
func (*schedulesCreateCmd) Help() string {
	return `Runs are turns of one session, which the first one makes, or goals with --goal; they never overlap, and of
runs that were missed one is made up. The commands of a file's tools stay here: who attaches to a run runs its tools.

Examples:

  agentd schedules create --id nightly --cron '30 2 * * *' --zone Europe/Berlin examples/agents/greeter.yaml "Report"

  agentd schedules create --every 1h --agent greeter "Look what is new"

  agentd schedules create --every 24h --goal --max-turns 20 --agent greeter "Sort the inbox"

  agentd schedules create --at 30m --session s-17 "Remind me"`
}

// Validate refuses what is no schedule.
func (c *schedulesCreateCmd) Validate() error {
	given := 0
	for _, is := range []bool{c.Cron != "", c.Every != 0, !c.At.IsZero()} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("want one of --cron, --every and --at")
	case c.Zone != "" && c.Cron == "":
		return errors.New("--zone is for --cron")
	case !c.Goal && (c.MaxTurns != 0 || c.MaxCost != 0):
		return errors.New("--max-turns and --max-cost are for --goal")
	case c.MaxTurns < 0, c.MaxCost < 0:
		return errors.New("--max-turns and --max-cost must not be negative")
	case c.Agent == nil && c.Session == "" && len(c.Words) < 2:
		return errors.New("want a file with an agent and a prompt, or --agent or --session and a prompt")
	}
	return nil
}

// Run makes a schedule.
func (c *schedulesCreateCmd) Run(p *process) error {
	def := client.ScheduleDefinition{
		ID: c.ID, Cron: c.Cron, Zone: c.Zone, Every: c.Every, At: c.At.Time, SessionID: c.Session,
	}
	words := c.Words
	var opts []client.Option
	switch {
	case c.Agent != nil:
		def.AgentRef = client.AgentRef(*c.Agent)
	case len(words) > 1 && (c.Session == "" || isFile(words[0])):
		d, err := readDefinition(p, words[0])
		if err != nil {
			return err
		}
		defer d.pack.close()
		def.Agent, def.Tools, words, opts = d.Agent, d.Tools, words[1:], d.pack.client()
	}
	if def.Prompt = strings.Join(words, " "); c.Goal {
		def.Goal = &client.GoalSpec{Goal: def.Prompt, MaxTurns: c.MaxTurns, MaxCostUSD: c.MaxCost}
		def.Prompt = ""
	}
	return c.talk(p, func(t talk) error {
		s, err := get(t, func(ctx context.Context) (*client.Schedule, error) { return t.conn.CreateSchedule(ctx, def) })
		if err != nil {
			return err
		}
		return t.Schedule(s.Proto())
	}, opts...)
}

type schedulesListCmd struct {
	daemonFlags `embed:""`
	Limit       int `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*schedulesListCmd) Help() string {
	return "Examples:\n\n  agentd schedules list\n\n" +
		"  agentd schedules list --json | jq -r 'select(.lastError != null) | .id'"
}

// Run lists schedules.
func (c *schedulesListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.Schedule, error] {
			return t.conn.Schedules(ctx)
		})
		if err != nil {
			return err
		}
		return t.Schedules(all)
	})
}

type schedulesShowCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" help:"The schedule."`
}

// Help is shown below the flags.
func (*schedulesShowCmd) Help() string { return "Examples:\n\n  agentd schedules show nightly" }

// Run shows a schedule.
func (c *schedulesShowCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		s, err := get(t, func(ctx context.Context) (*client.Schedule, error) { return t.conn.Schedule(ctx, c.ID) })
		if err != nil {
			return err
		}
		return t.Schedule(s.Proto())
	})
}

type schedulesDeleteCmd struct {
	daemonFlags `embed:""`
	IDs         []string `arg:"" name:"id" help:"The schedules."`
}

// Help is shown below the flags.
func (*schedulesDeleteCmd) Help() string { return "Examples:\n\n  agentd schedules delete nightly" }

// Run ends schedules.
func (c *schedulesDeleteCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		for _, id := range c.IDs {
			_, err := get(t, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, t.conn.DeleteSchedule(ctx, id)
			})
			if err != nil {
				return err
			}
			if err := t.Done("%s is deleted", id); err != nil {
				return err
			}
		}
		return nil
	})
}
