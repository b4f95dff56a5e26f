package main

import (
	"context"
	"iter"
	"strings"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
)

type goalsCmd struct {
	List   goalsListCmd   `cmd:"" help:"List goals, newest first."`
	Show   goalsShowCmd   `cmd:"" help:"Show the goal of a session."`
	Pause  goalsPauseCmd  `cmd:"" help:"Have no turn of goals begin; what runs finishes."`
	Resume goalsResumeCmd `cmd:"" help:"Have paused goals go on."`
	Stop   goalsStopCmd   `cmd:"" help:"End goals, and their turns."`
	Inject goalsInjectCmd `cmd:"" help:"Tell the next turn of a goal something."`
	Answer goalsAnswerCmd `cmd:"" help:"Say how a goal goes on that waits for that."`
}

type goalsListCmd struct {
	daemonFlags `embed:""`
	Session     string   `noenv:"" placeholder:"ID" help:"Only those of this session."`
	Status      []string `noenv:"" enum:"${goal_statuses}" placeholder:"STATUS" help:"${goals_status}"`
	Limit       int      `noenv:"" default:"50" help:"How many to list at most."`
}

// Help is shown below the flags.
func (*goalsListCmd) Help() string {
	return "Examples:\n\n  agentd goals list --status running,paused\n\n" +
		"  agentd goals list --json | jq -r 'select(.reason == \"GOAL_REASON_MAX_COST_EXCEEDED\") | .sessionId'"
}

// Run lists goals.
func (c *goalsListCmd) Run(p *process) error {
	filter := client.GoalFilter{SessionID: c.Session, PageSize: pageSize(c.Limit)}
	for _, s := range c.Status {
		filter.Statuses = append(filter.Statuses, client.GoalStatus(s))
	}
	return c.talk(p, func(t talk) error {
		all, err := list(t, c.Limit, func(ctx context.Context) iter.Seq2[*client.GoalInfo, error] {
			return t.conn.ListGoals(ctx, filter)
		})
		if err != nil {
			return err
		}
		return t.Goals(all)
	})
}

type goalsShowCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
}

// Help is shown below the flags.
func (*goalsShowCmd) Help() string { return "Examples:\n\n  agentd goals show SESSION" }

// Run shows a goal.
func (c *goalsShowCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		g, err := get(t, func(ctx context.Context) (*client.GoalInfo, error) { return t.conn.GetGoal(ctx, c.Session) })
		if err != nil {
			return err
		}
		return t.Goal(g.Proto())
	})
}

// goalsControl is what several commands do to goals.
type goalsControl struct {
	daemonFlags `embed:""`
	Sessions    []string `arg:"" name:"SESSION" help:"Their sessions."`
}

func (c *goalsControl) control(p *process, action client.GoalAction) error {
	return c.talk(p, func(t talk) error {
		for _, id := range c.Sessions {
			g, err := get(t, func(ctx context.Context) (*client.GoalInfo, error) {
				return t.conn.ControlGoal(ctx, id, action)
			})
			if err != nil {
				return err
			}
			if g == nil {
				p.notef("session %s has no goal of its own: this was done to its background agents", terminal.Clean(id))
				continue
			}
			if err := t.Goal(g.Proto()); err != nil {
				return err
			}
		}
		return nil
	})
}

type goalsPauseCmd struct {
	goalsControl `embed:""`
}

// Help is shown below the flags.
func (*goalsPauseCmd) Help() string { return "Examples:\n\n  agentd goals pause SESSION" }

// Run pauses goals.
func (c *goalsPauseCmd) Run(p *process) error { return c.control(p, client.GoalPause) }

type goalsResumeCmd struct {
	goalsControl `embed:""`
}

// Help is shown below the flags.
func (*goalsResumeCmd) Help() string {
	return "A goal that has ended goes on with agentd auto --resume.\n\nExamples:\n\n  agentd goals resume SESSION"
}

// Run has goals go on.
func (c *goalsResumeCmd) Run(p *process) error { return c.control(p, client.GoalResume) }

type goalsStopCmd struct {
	goalsControl `embed:""`
}

// Help is shown below the flags.
func (*goalsStopCmd) Help() string { return "Examples:\n\n  agentd goals stop SESSION" }

// Run stops goals.
func (c *goalsStopCmd) Run(p *process) error { return c.control(p, client.GoalStop) }

type goalsInjectCmd struct {
	daemonFlags `embed:""`
	Session     string   `arg:"" name:"SESSION" help:"The session."`
	Text        []string `arg:"" name:"TEXT" help:"What the next turn reads, ahead of its prompt."`
}

// Help is shown below the flags.
func (*goalsInjectCmd) Help() string {
	return "At most 256 messages wait; beyond that the oldest is dropped.\n\nExamples:\n\n" +
		"  agentd goals inject SESSION \"Leave the tests alone\""
}

// Run injects a message.
func (c *goalsInjectCmd) Run(p *process) error {
	return c.talk(p, func(t talk) error {
		n, err := get(t, func(ctx context.Context) (int, error) {
			return t.conn.InjectMessage(ctx, c.Session, strings.Join(c.Text, " "))
		})
		if err != nil {
			return err
		}
		return t.Done("%d wait for the next turn", n)
	})
}

type goalsAnswerCmd struct {
	daemonFlags `embed:""`
	Session     string `arg:"" name:"SESSION" help:"The session."`
	Answer      string `arg:"" name:"ANSWER" enum:"proceed,retry,skip,abort" help:"${goals_answer}"`
}

// Help is shown below the flags.
func (*goalsAnswerCmd) Help() string { return "Examples:\n\n  agentd goals answer SESSION retry" }

// Run answers.
func (c *goalsAnswerCmd) Run(p *process) error {
	control := goalsControl{daemonFlags: c.daemonFlags, Sessions: []string{c.Session}}
	return control.control(p, client.GoalAction(c.Answer))
}
