package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

type sessionsCmd struct {
	Create  sessionsCreateCmd  `cmd:"" help:"Make a session without turns."`
	List    sessionsListCmd    `cmd:"" help:"List sessions, newest first."`
	Show    sessionsShowCmd    `cmd:"" help:"Show one session."`
	Events  sessionsEventsCmd  `cmd:"" help:"Show what has happened in a session, or in a turn, event by event."`
	Update  sessionsUpdateCmd  `cmd:"" help:"Change what a session is called and may spend."`
	Archive sessionsArchiveCmd `cmd:"" help:"Have a session take no new turns."`
	Compact sessionsCompactCmd `cmd:"" help:"Have summaries replace what the models of a session have read so far."`
	Fork    sessionsForkCmd    `cmd:"" help:"Make a session that begins with the history of another one."`
	Delete  sessionsDeleteCmd  `cmd:"" help:"Remove a session for good, with its log."`
}

type sessionsCreateCmd struct {
	daemonFlags `embed:""`
	Label       map[string]string `noenv:"" mapsep:"none" placeholder:"KEY=VALUE" help:"${sessions_create_label}"`
	Ref         string            `noenv:"" placeholder:"NAME" help:"Call it by this name."`
	Budget      budgetFlag        `noenv:"" placeholder:"BUDGET" help:"${sessions_create_budget}"`

	DropToolPayloads bool `noenv:"" help:"${sessions_create_drop_tool_payloads}"`

	ID       string       `noenv:"" placeholder:"ID" help:"${sessions_create_id}"`
	Metadata metadataFlag `noenv:"" placeholder:"JSON" help:"${sessions_create_metadata}"`
	Agent    agentFlag    `noenv:"" placeholder:"AGENT" help:"${sessions_create_agent}"`
}

// Help is shown below the flags.
func (*sessionsCreateCmd) Help() string {
	return `Examples:

  agentd sessions create --label team=search --budget calls=100,cost=5

  agentd run --session "$(agentd sessions create --json | jq -r .id)" agent.yaml "Say hi"`
}

// Run makes a session.
func (c *sessionsCreateCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		info := client.NewSessionInfo{
			Labels: c.Label, ClientRef: c.Ref, Budget: c.Budget.of(), DropToolPayloads: c.DropToolPayloads,
			ID: c.ID, Metadata: c.Metadata, Agent: client.AgentRef(c.Agent),
		}
		return t.session(func(ctx context.Context) (*client.SessionInfo, error) {
			return t.conn.CreateSession(ctx, info)
		})
	})
}

type sessionsListCmd struct {
	daemonFlags `embed:""`
	Label       map[string]string `noenv:"" mapsep:"none" placeholder:"KEY=VALUE" help:"${sessions_list_label}"`
	State       string            `noenv:"" default:"active" enum:"active,archived,all" help:"${sessions_list_state}"`
	Ref         string            `noenv:"" placeholder:"NAME" help:"Only sessions of this name."`
	Status      []string          `noenv:"" enum:"${turn_statuses}" placeholder:"STATUS" help:"${sessions_list_status}"`
	Limit       int               `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*sessionsListCmd) Help() string {
	return `Examples:

  agentd sessions list --label team=search --status failed

  agentd sessions list --json | jq -r .id`
}

// Run lists sessions.
func (c *sessionsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		filter := client.SessionFilter{
			Labels: c.Label, ClientRef: c.Ref, TurnStatuses: turnStatuses(c.Status), PageSize: pageSize(c.Limit),
		}
		if c.State != "all" {
			filter.States = []client.SessionState{client.SessionState(c.State)}
		}
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.SessionInfo, error] {
			return t.conn.Sessions(ctx, filter)
		})
		if err != nil {
			return err
		}
		return t.Sessions(all)
	})
}

// session makes a request whose result is a session, and shows the session.
func (t talk) session(request func(context.Context) (*client.SessionInfo, error)) error {
	info, err := get(t, request)
	if err != nil {
		return err
	}
	return t.Session(info.Proto())
}

// turnStatuses are statuses as flags name them.
func turnStatuses(names []string) []client.TurnStatus {
	var out []client.TurnStatus
	for _, name := range names {
		out = append(out, client.TurnStatus(strings.ReplaceAll(name, "-", "_")))
	}
	return out
}

type sessionsShowCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" name:"SESSION" help:"The session."`
}

// Help is shown below the flags.
func (*sessionsShowCmd) Help() string { return "Examples:\n\n  agentd sessions show SESSION" }

// Run shows a session.
func (c *sessionsShowCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		return t.session(func(ctx context.Context) (*client.SessionInfo, error) {
			return t.conn.Session(c.ID).Info(ctx)
		})
	})
}

type sessionsEventsCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" name:"SESSION" help:"The session."`
	Follow      bool   `short:"f" noenv:"" help:"${sessions_events_follow}"`
	Turn        string `noenv:"" placeholder:"TURN" help:"Only this turn. Default: all turns of the session."`
	After       *int64 `noenv:"" placeholder:"SEQ" help:"With --turn: begin behind this event."`
	Cursor      string `noenv:"" placeholder:"CURSOR" help:"${sessions_events_cursor}"`
}

// Validate refuses flags that do not go together.
func (c *sessionsEventsCmd) Validate() error {
	switch {
	case c.After != nil && c.Turn == "":
		return errors.New("--after goes with --turn: give --cursor to begin in the middle of a session")
	case c.Cursor != "" && c.Turn != "":
		return errors.New("--cursor does not go with --turn: give --after to begin in the middle of a turn")
	}
	return nil
}

// Help is shown below the flags.
func (*sessionsEventsCmd) Help() string {
	return `Each event is a line with its seq, its time and its kind.
Text that is on its way is shown only with --follow.

Examples:

  agentd sessions events SESSION

  agentd sessions events -f SESSION

  agentd sessions events -f --turn TURN --after 1200 SESSION`
}

// Run shows events.
func (c *sessionsEventsCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		show := func(event *client.Event) error { return c.show(p, event) }
		switch {
		case c.Follow:
			return c.follow(p, t)
		case c.Turn != "":
			return t.conn.TurnEvents(t.ctx, c.ID, c.Turn, c.After, show)
		default:
			return t.conn.SessionEvents(t.ctx, c.ID, c.Cursor, show)
		}
	})
}

// follow shows events as they come.
func (c *sessionsEventsCmd) follow(p *process, t talk) error {
	f := cli.Following{
		Session: c.ID, Turn: c.Turn, After: c.After, Cursor: c.Cursor,
		Lost: func(err error) { p.notef("%v; trying again", err) },
	}
	events := t.conn.FollowSession(t.ctx, f)
	if c.Turn != "" {
		events = t.conn.Follow(t.ctx, f)
	}
	for event, err := range events {
		if err == nil {
			err = c.show(p, event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show shows an event of the session, or of the turn.
func (c *sessionsEventsCmd) show(p *process, event *client.Event) error {
	message := event.Proto()
	switch {
	case !c.json(p):
		return cli.EventLine(p.stdout, message)
	case c.Turn != "":
		return cli.WriteJSON(p.stdout, message)
	default:
		return cli.WriteJSON(p.stdout, &agentdv1.SessionEvent{Event: message, Cursor: event.Cursor})
	}
}

type sessionsUpdateCmd struct {
	daemonFlags `embed:""`
	ID          string            `arg:"" name:"SESSION" help:"The session."`
	Label       map[string]string `noenv:"" mapsep:"none" placeholder:"KEY=VALUE" help:"${sessions_update_label}"`
	Ref         *string           `noenv:"" placeholder:"NAME" help:"Call it by this name."`
	Budget      *newBudgetFlag    `noenv:"" placeholder:"BUDGET" help:"${sessions_update_budget}"`
	Metadata    metadataFlag      `noenv:"" placeholder:"JSON" help:"${sessions_update_metadata}"`
	Version     *int64            `noenv:"" placeholder:"N" help:"Change it only if it is at this version."`
}

// Help is shown below the flags.
func (*sessionsUpdateCmd) Help() string {
	return `A budget holds at once, also for a turn that runs.

Examples:

  agentd sessions update SESSION --label team=search --label old= --ref ticket-17

  agentd sessions update SESSION --budget calls=200,cost=10`
}

// Run changes a session.
func (c *sessionsUpdateCmd) Run(p *process) error {
	if len(c.Label) == 0 && c.Ref == nil && c.Budget == nil && c.Metadata == nil {
		return usage("nothing to change: give --label, --ref, --budget or --metadata")
	}
	if c.Version != nil && *c.Version < 1 {
		return fmt.Errorf("--version is %d, must be at least 1", *c.Version)
	}
	change := client.SessionUpdate{Labels: c.Label, ClientRef: c.Ref, Metadata: c.Metadata}
	if c.Version != nil {
		change.Version = *c.Version
	}
	if c.Budget != nil {
		change.Budget = new(budgetFlag(*c.Budget).of())
	}
	return c.talk(p, func(t talk) error { return t.update(c.ID, change) })
}

// update changes a session and shows it.
func (t talk) update(id string, change client.SessionUpdate) error {
	return t.session(func(ctx context.Context) (*client.SessionInfo, error) {
		return t.conn.Session(id).Update(ctx, change)
	})
}

type sessionsArchiveCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" name:"SESSION" help:"The session."`
	Undo        bool   `noenv:"" help:"Make it active again."`
}

// Help is shown below the flags.
func (*sessionsArchiveCmd) Help() string {
	return `A turn that runs is not stopped by it.

Examples:

  agentd sessions archive SESSION

  agentd sessions archive --undo SESSION`
}

// Run archives a session.
func (c *sessionsArchiveCmd) Run(p *process) error {
	to := client.SessionArchived
	if c.Undo {
		to = client.SessionActive
	}
	return c.talk(p, func(t talk) error { return t.update(c.ID, client.SessionUpdate{State: to}) })
}

type sessionsCompactCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" name:"SESSION" help:"The session."`
	Focus       string `noenv:"" placeholder:"TEXT" help:"What the summaries are to keep in particular."`
}

// Help is shown below the flags.
func (*sessionsCompactCmd) Help() string {
	return `Each agent writes its summary before its next model call. The session keeps all that was said.

Examples:

  agentd sessions compact SESSION --focus "names of files and what was decided"`
}

// Run asks for summaries.
func (c *sessionsCompactCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		return t.session(func(ctx context.Context) (*client.SessionInfo, error) {
			s := t.conn.Session(c.ID)
			if _, err := s.Compact(ctx, c.Focus); err != nil {
				return nil, err
			}
			return s.Info(ctx)
		})
	})
}

type sessionsForkCmd struct {
	daemonFlags `embed:""`
	ID          string            `arg:"" name:"SESSION" help:"The session to inherit from."`
	At          *int64            `noenv:"" placeholder:"SEQ" help:"The last event to inherit. Default: all there is."`
	Label       map[string]string `noenv:"" mapsep:"none" placeholder:"KEY=VALUE" help:"Give the fork a label."`
	Ref         string            `noenv:"" placeholder:"NAME" help:"Call the fork by this name."`
}

// Help is shown below the flags.
func (*sessionsForkCmd) Help() string {
	return `The session stays as it is. What the fork uses counts from zero.

Examples:

  agentd sessions fork SESSION --at 1200 --ref another-try`
}

// Run forks a session.
func (c *sessionsForkCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		fork, err := get(t, func(ctx context.Context) (*client.Session, error) {
			return t.conn.Session(c.ID).Fork(ctx, client.ForkAt{ThroughSeq: c.At, Labels: c.Label, ClientRef: c.Ref})
		})
		if err != nil {
			return err
		}
		return t.session(func(ctx context.Context) (*client.SessionInfo, error) { return fork.Info(ctx) })
	})
}

// confirm asks the person at the terminal whether a thing is to be deleted, unless yes says so.
func (t talk) confirm(p *process, yes bool, question, id string) error {
	if yes {
		return nil
	}
	if !p.tty.stdin || !p.tty.stderr {
		return usage("nobody can be asked whether you are sure: give --yes")
	}
	sure, err := terminal.New(p.stdin, p.stderr).Confirm(t.ctx, fmt.Sprintf(question, cli.Clean(id)))
	if err == nil && !sure {
		err = &codedError{code: exitError, err: errors.New("nothing was deleted")}
	}
	return err
}

type sessionsDeleteCmd struct {
	daemonFlags `embed:""`
	ID          string `arg:"" name:"SESSION" help:"The session."`
	Yes         bool   `noenv:"" help:"Do not ask whether you are sure."`
}

// Help is shown below the flags.
func (*sessionsDeleteCmd) Help() string {
	return "What runs in it is canceled.\n\nExamples:\n\n  agentd sessions delete --yes SESSION"
}

// Run deletes a session.
func (c *sessionsDeleteCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		if err := t.confirm(p, c.Yes, "Delete session %s and its log for good?", c.ID); err != nil {
			return err
		}
		_, err := get(t, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, t.conn.Session(c.ID).Delete(ctx)
		})
		if err != nil {
			return err
		}
		return t.Done("deleted %s", c.ID)
	})
}
