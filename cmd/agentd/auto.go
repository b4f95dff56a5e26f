package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type autoCmd struct {
	Words []string `arg:"" optional:"" name:"FILE GOAL" help:"${auto_words}"`

	daemonFlags `embed:""`
	Local       bool   `noenv:"" help:"${auto_local}"`
	Data        string `group:"local" noenv:"" placeholder:"DIR" help:"${run_data}"`
	modelFlags  `embed:"" group:"local"`
	Session     string `noenv:"" placeholder:"ID" help:"${run_session}"`
	Resume      bool   `noenv:"" help:"${auto_resume}"`

	Agent agentFlag `noenv:"" placeholder:"AGENT" help:"${run_agent}"`

	Model  string `short:"m" noenv:"" placeholder:"MODEL" help:"${auto_model}"`
	Output string `short:"o" noenv:"" enum:"${outputs}" default:"" placeholder:"text|json|events" help:"${auto_output}"`

	Thoughts bool `noenv:"" help:"Show what models think, too."`

	packFlags `embed:"" group:"tools"`

	MaxTurns        int           `noenv:"" default:"50" placeholder:"N" help:"Turns of the goal; 0 is no limit."`
	MaxInputTokens  int64         `noenv:"" placeholder:"N" help:"Tokens of the prompts of all turns."`
	MaxOutputTokens int64         `noenv:"" placeholder:"N" help:"Tokens of the responses of all turns."`
	MaxCost         float64       `noenv:"" placeholder:"USD" help:"US dollars of all turns."`
	MaxTime         time.Duration `noenv:"" placeholder:"DURATION" help:"Time from its start, waits included."`
	TurnTimeout     time.Duration `noenv:"" placeholder:"DURATION" help:"Time of each turn."`
	OnFailure       string        `noenv:"" enum:"abort,retry,skip" default:"abort" help:"${auto_on_failure}"`
	Continuation    string        `noenv:"" placeholder:"PROMPT" help:"${auto_continuation}"`
	DoneTool        string        `noenv:"" placeholder:"NAME" help:"The tool that ends it. Default: report_done."`
	Defer           bool          `noenv:"" help:"${auto_defer}"`
	MaxDefer        time.Duration `noenv:"" placeholder:"DURATION" help:"With --defer: how far ahead at most."`
}

// Help is shown below the flags.
func (*autoCmd) Help() string {
	return `The daemon starts turn after turn by itself until an agent calls report_done, or a limit ends the goal:
see docs/goals.md.

The tools of the file, and those that need no declaration, run here, as with agentd run. The daemon goes on without this
command; turns that need a tool then wait for agentd auto --resume --session SESSION.

Standard output gets what agentd run has there. The last lines on standard error are the result:

  reason: completed
  turns: 1

Where nobody can be asked, tools that ask (mode ask of .agents/config.json) refuse the goal before it starts.

Ctrl-C stops the goal. A second one leaves it to itself, and so does closing the terminal.
With --local the command ends when the goal waits for a time that an agent has named: the reason is deferred, and
next_wake_at says when agentd auto --local --resume --session SESSION has something to do.

The exit code is 0 when the goal is completed, 1 when it has ended otherwise or is deferred,
and 2 for a wrong command line or an invalid file.

Examples:

  agentd auto --local --permissions acceptEdits coder.yaml "Mend the tests" --max-turns 20 --max-cost 2

  agentd auto --session SESSION --resume --max-turns 60

  agentd goals list`
}

// Validate refuses flags that do not go together.
func (c *autoCmd) Validate(ctx *kong.Context) error {
	switch local := localFlag(ctx); {
	case c.Resume && c.Session == "":
		return errors.New("--resume: of which session? name it with --session")
	case local != "" && !c.Local:
		return fmt.Errorf("%s goes only with --local: it is for the daemon to say, see agentd serve --help", local)
	case c.Output != "" && c.JSON:
		return errors.New("--json is --output events: give one of them")
	case c.kept() && c.Model != "":
		return errors.New("--agent does not go with --model: they say which agent works, too")
	case c.MaxTurns < 0 || c.MaxInputTokens < 0 || c.MaxOutputTokens < 0 || c.MaxCost < 0 || c.MaxTime < 0 ||
		c.TurnTimeout < 0:
		return errors.New("a limit has to be above 0")
	case c.MaxDefer != 0 && !c.Defer:
		return errors.New("--max-defer is for --defer")
	case c.Local:
		return c.check()
	}
	return nil
}

func (c *autoCmd) kept() bool { return c.Agent != (agentFlag{}) }

// run is the command that runs one such turn.
func (c *autoCmd) run() (*runCmd, error) {
	words := c.Words
	r := &runCmd{
		daemonFlags: c.daemonFlags, Local: c.Local, Data: c.Data, modelFlags: c.modelFlags, Session: c.Session,
		Agent: c.Agent, Model: c.Model, Output: c.Output, Thoughts: c.Thoughts, packFlags: c.packFlags,
	}
	if c.Local && c.Data == "" && c.Session == "" {
		r.lasts = true // a goal that is deferred, or left, goes on with the next command
	}
	if c.Model == "" && len(words) > 0 && (len(words) > 1 && !c.kept() && c.Session == "" || isFile(words[0])) {
		r.File, words = words[0], words[1:]
	}
	r.Prompt = strings.Join(words, " ")
	switch {
	case r.Prompt == "" && !c.Resume:
		return nil, usage("the goal is missing: agentd auto FILE GOAL")
	case r.File == "" && c.Model == "" && c.Session == "" && !c.kept():
		return nil, usage("the file is missing: agentd auto FILE GOAL")
	}
	return r, nil
}

// Run works towards a goal to its end.
func (c *autoCmd) Run(p *process) error {
	r, err := c.run()
	if err != nil {
		return err
	}
	t, err := r.work(p)
	if err != nil {
		return err
	}
	defer t.project.pack.close()
	spinner := r.spinner(p, t)
	if spinner != nil {
		defer spinner.Close()
	}
	conn, done, err := r.dial(p, t.project.pack.client()...)
	if err != nil {
		return err
	}
	defer done()
	turn := &cli.Turn{Conn: conn, Tools: t.tools, Note: p.notef}
	t.project.pack.serve(turn)
	if p.tty.stdin && p.tty.stderr {
		turn.Person = terminal.New(p.stdin, p.stderr)
	}
	turn.Screen = r.screen(p, turn)
	if spinner != nil {
		turn.Screen = spinner.On(turn.Screen)
	}
	result, err := c.drive(p, turn, t.prompt, c.spec(r.Prompt))
	if spinner != nil {
		spinner.Close()
	}
	if err != nil {
		return c.explain(p, r, turn, t, err)
	}
	return c.show(p, r, result)
}

// spec is the goal and its limits.
func (c *autoCmd) spec(goal string) client.GoalSpec {
	spec := client.GoalSpec{
		Goal: goal, Continuation: c.Continuation, DoneTool: c.DoneTool, Schedule: c.Defer, MaxDefer: c.MaxDefer,
		MaxTurns: c.MaxTurns, MaxInputTokens: c.MaxInputTokens, MaxOutputTokens: c.MaxOutputTokens,
		MaxCostUSD: c.MaxCost, MaxWallclock: c.MaxTime, PerTurnTimeout: c.TurnTimeout,
		OnFailure: client.RetryDecision(c.OnFailure), LeaveDeferred: c.Local,
	}
	if c.MaxTurns == 0 {
		spec.MaxTurns = client.NoTurnLimit
	}
	return spec
}

// drive works. The first signal stops the goal; the second one, and the end of the terminal, leave it.
func (c *autoCmd) drive(
	p *process, turn *cli.Turn, prompt *cli.Prompt, spec client.GoalSpec,
) (*client.GoalResult, error) {
	ctx, over := p.interrupts(turn, "stopping the goal", "the goal could not be stopped", turn.Stop)
	defer over()
	return turn.Work(ctx, *prompt, spec, c.Resume)
}

// autoResult is a result as JSON.
type autoResult struct {
	Session      string     `json:"session_id"`
	Goal         string     `json:"goal_id"`
	Reason       string     `json:"reason"`
	Status       string     `json:"status"`
	Turns        int        `json:"turns"`
	InputTokens  int64      `json:"input_tokens"`
	OutputTokens int64      `json:"output_tokens"`
	CostUSD      float64    `json:"cost_usd"`
	Seconds      float64    `json:"duration_seconds"`
	FinalText    string     `json:"final_text"`
	DoneDetail   string     `json:"done_detail"`
	NextWakeAt   *time.Time `json:"next_wake_at,omitempty"`
	Message      string     `json:"message,omitempty"`
}

// show tells how the goal has ended.
func (c *autoCmd) show(p *process, r *runCmd, g *client.GoalResult) error {
	completed := g.Reason == client.GoalReasonCompleted
	var err error
	switch {
	case c.Output == "json":
		out := autoResult{
			Session: g.SessionID, Goal: g.GoalID, Reason: string(g.Reason), Status: string(g.Status), Turns: g.Turns,
			InputTokens: g.InputTokens, OutputTokens: g.OutputTokens, CostUSD: g.CostUSD,
			Seconds: g.Duration.Seconds(), FinalText: g.FinalText, DoneDetail: g.DoneDetail, Message: g.Message,
		}
		if !g.NextWake.IsZero() {
			out.NextWakeAt = &g.NextWake
		}
		err = p.printJSON(out)
	case c.Output == "text" && completed:
		_, err = fmt.Fprintln(p.stdout, strings.TrimRight(g.FinalText, "\n"))
	}
	if err != nil {
		return err
	}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(p.stderr, "%s: %s\n", name, cli.Clean(strings.ReplaceAll(value, "\n", " ")))
		}
	}
	line("reason", string(g.Reason))
	line("turns", fmt.Sprint(g.Turns))
	line("tokens", fmt.Sprintf("%d in, %d out", g.InputTokens, g.OutputTokens))
	if g.CostUSD > 0 {
		line("cost", fmt.Sprintf("$%.4f", g.CostUSD))
	}
	line("detail", g.DoneDetail)
	line("message", g.Message)
	if !g.NextWake.IsZero() {
		line("next_wake_at", g.NextWake.UTC().Format(time.RFC3339))
	}
	if !completed {
		if !r.Local || r.keeps() {
			p.notef("to go on: %s", c.again(g.SessionID, r.File))
		}
		return &codedError{code: exitError}
	}
	return nil
}

// again is the command that goes on with the goal of a session.
func (c *autoCmd) again(session, file string) string {
	words := []string{"agentd auto"}
	if c.Local {
		words = append(words, "--local")
	}
	if c.Data != "" {
		words = append(words, "--data", c.Data)
	}
	switch {
	case c.Model != "" || c.NoBuiltinTools:
		words = append(words, "--no-builtin-tools")
	case c.Permissions != "":
		words = append(words, "--permissions", c.Permissions)
	}
	words = append(words, "--resume", "--session", session)
	if file != "" {
		words = append(words, file)
	}
	return cli.Clean(strings.Join(words, " "))
}

// explain adds to an error what a person can do about it.
func (c *autoCmd) explain(p *process, r *runCmd, turn *cli.Turn, t *task, err error) error {
	if errors.Is(err, client.ErrInvalidAgentTree) && t.file != nil {
		return r.explain(p, turn, t.file, err)
	}
	if errors.Is(err, permit.ErrNoPrompter) {
		return usage("a goal works on its own: the tools of the project ask before they do something (mode ask), and " +
			"nobody is there to be asked: set another mode with --permissions, or in .agents/config.json")
	}
	if id := turn.Session(); id != "" && (!c.Local || c.Data != daemon.Memory) {
		p.notef("the goal may not have ended. To go on: %s", c.again(id, r.File))
	}
	if errors.Is(err, errLeft) {
		return &codedError{code: exitError, err: errors.New("interrupted")}
	}
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Code == client.ErrInvalidRequest && turn.Session() == "" {
		return &codedError{code: exitUsage, err: err}
	}
	return err
}
