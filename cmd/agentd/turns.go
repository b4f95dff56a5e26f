package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

type turnsCmd struct {
	List   turnsListCmd   `cmd:"" help:"List turns, newest first."`
	Show   turnsShowCmd   `cmd:"" help:"Show one turn."`
	Calls  turnsCallsCmd  `cmd:"" help:"Show the model calls of a turn: prompt, tools, settings."`
	Cancel turnsCancelCmd `cmd:"" help:"Stop a turn, and wait until nothing of it runs; or cancel one tool call."`
}

type turnsListCmd struct {
	daemonFlags `embed:""`
	Session     string   `arg:"" optional:"" name:"SESSION" help:"The session. Default: all."`
	Status      []string `noenv:"" enum:"${turn_statuses}" placeholder:"STATUS" help:"${turns_list_status}"`
	Limit       int      `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*turnsListCmd) Help() string {
	return "Examples:\n\n  agentd turns list SESSION\n\n  agentd turns list --status running,waiting-for-client"
}

// Run lists turns.
func (c *turnsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		filter := client.TurnFilter{Statuses: turnStatuses(c.Status), PageSize: pageSize(c.Limit)}
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.Turn, error] {
			if c.Session == "" {
				return t.conn.Turns(ctx, filter)
			}
			return t.conn.Session(c.Session).Turns(ctx, filter)
		})
		if err != nil {
			return err
		}
		return t.Turns(all)
	})
}

type turnsShowCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	Turn        string `arg:"" optional:"" name:"TURN" help:"The turn. Default: the session's last one."`
}

// Help is shown below the flags.
func (*turnsShowCmd) Help() string { return "Examples:\n\n  agentd turns show SESSION" }

// Run shows a turn.
func (c *turnsShowCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		return t.turn(func(ctx context.Context) (*client.Turn, error) {
			return t.conn.Session(c.Session).Turn(ctx, c.Turn)
		})
	})
}

// turn makes a request whose result is a turn, and shows the turn.
func (t talk) turn(request func(context.Context) (*client.Turn, error)) error {
	turn, err := get(t, request)
	if err != nil {
		return err
	}
	return t.Turn(turn.Proto())
}

type turnsCallsCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	Turn        string `arg:"" optional:"" name:"TURN" help:"The turn. Default: the session's last one."`
}

// Help is shown below the flags.
func (*turnsCallsCmd) Help() string {
	return `Instructions are as the model got them, filled in from the state as it was.

Examples:

  agentd turns calls SESSION`
}

// Run shows the input of model calls.
func (c *turnsCallsCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		all, err := list(t, math.MaxInt, func(ctx context.Context) iter.Seq2[*client.ModelCall, error] {
			return t.conn.Session(c.Session).ModelCalls(ctx, c.Turn)
		})
		if err != nil {
			return err
		}
		return t.ModelCalls(all)
	})
}

type turnsCancelCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	Turn        string `arg:"" optional:"" name:"TURN" help:"The turn. Default: the session's last one."`
	Reason      string `noenv:"" placeholder:"TEXT" help:"Why; it stands in the turn's end."`
	Call        string `noenv:"" placeholder:"ID" help:"Cancel only this tool call; the turn goes on."`
}

// Validate refuses flags that do not go together.
func (c *turnsCancelCmd) Validate() error {
	if c.Call != "" && c.Reason != "" {
		return errors.New("--reason does not go with --call: it is why the turn is stopped")
	}
	return nil
}

// Help is shown below the flags.
func (*turnsCancelCmd) Help() string {
	return `A turn that is over stays as it is, and so does a call that has its result.

Examples:

  agentd turns cancel SESSION --reason "enough for today"

  agentd turns cancel SESSION --call CALL`
}

// Run cancels a turn, or one of its calls.
func (c *turnsCancelCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		session := t.conn.Session(c.Session)
		if c.Turn == "" { // a cancel names its turn
			last, err := get(t, func(ctx context.Context) (*client.Turn, error) { return session.Turn(ctx, "") })
			if err != nil {
				return err
			}
			c.Turn = last.ID
		}
		return t.turn(func(ctx context.Context) (*client.Turn, error) {
			if c.Call != "" {
				return session.CancelTurnTool(ctx, c.Turn, c.Call)
			}
			return session.CancelTurn(ctx, c.Turn, c.Reason)
		})
	})
}

type interactionsCmd struct {
	List    interactionsListCmd    `cmd:"" help:"List what turns ask of people, newest first."`
	Resolve interactionsResolveCmd `cmd:"" help:"Answer in a person's place."`
}

type interactionsListCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" optional:"" name:"SESSION" help:"The session. Default: all."`
	Status      string `noenv:"" default:"pending" enum:"pending,resolved,canceled,all" help:"${interactions_status}"`
	Limit       int    `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*interactionsListCmd) Help() string {
	return "Examples:\n\n  agentd interactions list\n\n  agentd interactions list SESSION --status all"
}

// Run lists interactions.
func (c *interactionsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		filter := client.InteractionFilter{SessionID: c.Session, PageSize: pageSize(c.Limit)}
		if c.Status != "all" {
			filter.Statuses = []client.InteractionStatus{client.InteractionStatus(c.Status)}
		}
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.Interaction, error] {
			return t.conn.Interactions(ctx, filter)
		})
		if err != nil {
			return err
		}
		return t.Interactions(all)
	})
}

type interactionsResolveCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	ID          string `arg:"" name:"INTERACTION" help:"The interaction."`
	Decision    string `arg:"" name:"DECISION" enum:"approve,deny,answer" help:"One of approve, deny and answer."`
	Text        string `arg:"" optional:"" name:"TEXT" help:"${interactions_resolve_text}"`
	Scope       string `placeholder:"SCOPE" enum:"${approval_scopes}" default:"" help:"${interactions_resolve_scope}"`
}

// Help is shown below the flags.
func (*interactionsResolveCmd) Help() string {
	return `The first resolution stands.

Examples:

  agentd interactions resolve SESSION INTERACTION approve

  agentd interactions resolve SESSION INTERACTION approve '{"amount": 5}'

  agentd interactions resolve SESSION INTERACTION approve --scope session

  agentd interactions resolve SESSION INTERACTION deny "not on a Friday"

  agentd interactions resolve SESSION INTERACTION answer "the blue one"`
}

// Run resolves an interaction.
func (c *interactionsResolveCmd) Run(p *process) error {
	var said *client.Resolution
	if c.Scope != "" && c.Decision != "approve" {
		return usage("--scope goes with approve: agentd interactions resolve SESSION INTERACTION approve --scope SCOPE")
	}
	switch c.Decision {
	case "approve":
		if said = client.Approve(); c.Text != "" {
			said.ToolInput = json.RawMessage(c.Text)
		}
		said.Scope = c.Scope
	case "deny":
		said = client.Deny(c.Text)
	case "answer":
		if c.Text == "" {
			return usage("the answer is missing: agentd interactions resolve SESSION INTERACTION answer TEXT")
		}
		said = client.Answer(c.Text)
	}
	return c.talk(p, func(t talk) error {
		resolved, err := get(t, func(ctx context.Context) (*client.Interaction, error) {
			return t.conn.Resolve(ctx, c.Session, c.ID, said)
		})
		if err != nil {
			return err
		}
		return t.Interaction(resolved.Proto())
	})
}

type modelsCmd struct {
	daemonFlags `embed:""`
	Stale       bool `help:"List the models alone that are retired, or of which what is known is old, and why."`
	Days        int  `default:"90" help:"With --stale: how many days old a price may be."`
}

// Help is shown below the flags.
func (*modelsCmd) Help() string {
	return `Providers serve models of other names, too.

Examples:

  agentd models
  agentd models --stale --days 30`
}

// Run lists models.
func (c *modelsCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		known, err := get(t, func(ctx context.Context) ([]*client.ModelInfo, error) { return t.conn.Models(ctx) })
		if err != nil {
			return err
		}
		models, date := modelsOf(known)
		if c.Stale {
			return t.StaleModels(models, date, c.Days)
		}
		return t.Models(models, date)
	})
}

// modelsOf returns the messages of models, and the day of the prices that do not say theirs.
func modelsOf(known []*client.ModelInfo) (models []*agentdv1.Model, date string) {
	own := ""
	for _, m := range known {
		message := m.Proto()
		models = append(models, message)
		switch {
		case m.Price == nil:
		case message.GetPrice().GetDate() == "":
			date = m.Price.Date
		default:
			own = m.Price.Date
		}
	}
	return models, cmp.Or(date, own)
}
