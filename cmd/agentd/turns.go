package main

import (
	"errors"
	"math"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

type turnsCmd struct {
	List   turnsListCmd   `cmd:"" help:"List turns, newest first."`
	Show   turnsShowCmd   `cmd:"" help:"Show one turn."`
	Calls  turnsCallsCmd  `cmd:"" help:"Show what the models of a turn were told, call by call."`
	Cancel turnsCancelCmd `cmd:"" help:"Stop a turn, and wait until nothing of it runs; or cancel one tool call."`
}

type turnsListCmd struct {
	daemonFlags `embed:""`
	Session     string   `arg:"" optional:"" name:"SESSION" help:"The session. Default: all."`
	Status      []string `noenv:"" enum:"pending,running,waiting-for-client,waiting-for-input,succeeded,failed,canceled" placeholder:"STATUS" help:"Only turns that are so: pending, running, waiting-for-client, waiting-for-input, succeeded, failed or canceled."`
	Limit       int      `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*turnsListCmd) Help() string {
	return "Examples:\n\n  agentd turns list SESSION\n\n  agentd turns list --status running,waiting-for-client"
}

// Run lists turns.
func (c *turnsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		req := &agentdv1.ListTurnsRequest{SessionId: c.Session, Statuses: turnStatuses(c.Status)}
		var all []*agentdv1.Turn
		err := pages(c.Limit, func(size int32, token string) (int, string, error) {
			req.PageSize, req.PageToken = size, token
			resp, err := cli.Call(t.ctx, t.conn, t.conn.ListTurns, req)
			all = append(all, resp.GetTurns()...)
			return len(resp.GetTurns()), resp.GetNextPageToken(), err
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
		resp, err := cli.Call(t.ctx, t.conn, t.conn.GetTurn, &agentdv1.GetTurnRequest{SessionId: c.Session, TurnId: c.Turn, UserParts: true})
		if err != nil {
			return err
		}
		return t.Turn(resp.GetTurn())
	})
}

type turnsCallsCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	Turn        string `arg:"" optional:"" name:"TURN" help:"The turn. Default: the session's last one."`
}

// Help is shown below the flags.
func (*turnsCallsCmd) Help() string {
	return "Instructions are as the model got them, filled in from the state as it was.\n\nExamples:\n\n  agentd turns calls SESSION"
}

// Run shows what models were told.
func (c *turnsCallsCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		req := &agentdv1.ListModelCallsRequest{SessionId: c.Session, TurnId: c.Turn}
		var all []*agentdv1.ModelCallDetails
		err := pages(math.MaxInt, func(size int32, token string) (int, string, error) {
			req.PageSize, req.PageToken = size, token
			resp, err := cli.Call(t.ctx, t.conn, t.conn.ListModelCalls, req)
			all = append(all, resp.GetCalls()...)
			return len(resp.GetCalls()), resp.GetNextPageToken(), err
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
	return "A turn that is over stays as it is, and so does a call that has its result.\n\n" +
		"Examples:\n\n  agentd turns cancel SESSION --reason \"enough for today\"\n\n  agentd turns cancel SESSION --call CALL"
}

// Run cancels a turn, or one of its calls.
func (c *turnsCancelCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		if c.Turn == "" { // a cancel names its turn
			last, err := cli.Call(t.ctx, t.conn, t.conn.GetTurn, &agentdv1.GetTurnRequest{SessionId: c.Session})
			if err != nil {
				return err
			}
			c.Turn = last.GetTurn().GetId()
		}
		if c.Call != "" {
			resp, err := cli.Call(t.ctx, t.conn, t.conn.CancelToolCall, &agentdv1.CancelToolCallRequest{SessionId: c.Session, TurnId: c.Turn, ToolCallId: c.Call})
			if err != nil {
				return err
			}
			return t.Turn(resp.GetTurn())
		}
		resp, err := cli.Call(t.ctx, t.conn, t.conn.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: c.Session, TurnId: c.Turn, Reason: c.Reason})
		if err != nil {
			return err
		}
		return t.Turn(resp.GetTurn())
	})
}

type interactionsCmd struct {
	List    interactionsListCmd    `cmd:"" help:"List what turns ask of people, newest first."`
	Resolve interactionsResolveCmd `cmd:"" help:"Answer in a person's place."`
}

type interactionsListCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" optional:"" name:"SESSION" help:"The session. Default: all."`
	Status      string `noenv:"" default:"pending" enum:"pending,resolved,canceled,all" help:"Only interactions that are so: pending, resolved, canceled or all."`
	Limit       int    `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*interactionsListCmd) Help() string {
	return "Examples:\n\n  agentd interactions list\n\n  agentd interactions list SESSION --status all"
}

// Run lists interactions.
func (c *interactionsListCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		req := &agentdv1.ListInteractionsRequest{SessionId: c.Session}
		switch c.Status {
		case "pending":
			req.Statuses = []agentdv1.InteractionStatus{agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
		case "resolved":
			req.Statuses = []agentdv1.InteractionStatus{agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED}
		case "canceled":
			req.Statuses = []agentdv1.InteractionStatus{agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED}
		}
		var all []*agentdv1.Interaction
		err := pages(c.Limit, func(size int32, token string) (int, string, error) {
			req.PageSize, req.PageToken = size, token
			resp, err := cli.Call(t.ctx, t.conn, t.conn.ListInteractions, req)
			all = append(all, resp.GetInteractions()...)
			return len(resp.GetInteractions()), resp.GetNextPageToken(), err
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
	Text        string `arg:"" optional:"" name:"TEXT" help:"With approve, other arguments for the tool, a JSON object; with deny, why; with answer, the answer."`
}

// Help is shown below the flags.
func (*interactionsResolveCmd) Help() string {
	return `The first resolution stands.

Examples:

  agentd interactions resolve SESSION INTERACTION approve

  agentd interactions resolve SESSION INTERACTION approve '{"amount": 5}'

  agentd interactions resolve SESSION INTERACTION deny "not on a Friday"

  agentd interactions resolve SESSION INTERACTION answer "the blue one"`
}

// Run resolves an interaction.
func (c *interactionsResolveCmd) Run(p *process) error {
	var r *agentdv1.Resolution
	switch c.Decision {
	case "approve":
		r = cli.Approve(c.Text)
	case "deny":
		r = cli.Deny(c.Text)
	case "answer":
		if c.Text == "" {
			return usage("the answer is missing: agentd interactions resolve SESSION INTERACTION answer TEXT")
		}
		r = cli.Answer(c.Text)
	}
	return c.talk(p, func(t talk) error {
		resp, err := cli.Call(t.ctx, t.conn, t.conn.ResolveInteraction, &agentdv1.ResolveInteractionRequest{SessionId: c.Session, InteractionId: c.ID, Resolution: r})
		if err != nil {
			return err
		}
		return t.Interaction(resp.GetInteraction())
	})
}

type modelsCmd struct {
	daemonFlags `embed:""`
	Stale       bool `help:"List the models alone that are retired, or of which what is known is old, and why."`
	Days        int  `default:"90" help:"With --stale: how many days old a price may be."`
}

// Help is shown below the flags.
func (*modelsCmd) Help() string {
	return "Providers serve models of other names, too.\n\nExamples:\n\n  agentd models\n  agentd models --stale --days 30"
}

// Run lists models.
func (c *modelsCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		resp, err := cli.Call(t.ctx, t.conn, t.conn.ListModels, &agentdv1.ListModelsRequest{})
		if err != nil {
			return err
		}
		if c.Stale {
			return t.StaleModels(resp.GetModels(), resp.GetPricesDate(), c.Days)
		}
		return t.Models(resp.GetModels(), resp.GetPricesDate())
	})
}
