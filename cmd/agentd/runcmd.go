package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

const (
	// maxPrompt is the protocol's, in bytes.
	maxPrompt = 1 << 20
	// cancelTimeout bounds how long a cancel may take.
	cancelTimeout = time.Minute
)

type runCmd struct {
	File   string `arg:"" optional:"" name:"FILE" help:"${run_file}"`
	Prompt string `arg:"" optional:"" name:"PROMPT" help:"What the user says; '-' reads it from standard input."`

	daemonFlags `embed:""`
	Local       bool   `noenv:"" help:"${run_local}"`
	Data        string `group:"local" noenv:"" placeholder:"DIR" help:"${run_data}"`
	modelFlags  `embed:"" group:"local"`
	Session     string `noenv:"" placeholder:"ID" help:"${run_session}"`
	Attach      string `noenv:"" placeholder:"SESSION" help:"${run_attach}"`

	Agent agentFlag `noenv:"" placeholder:"AGENT" help:"${run_agent}"`

	Model  string `short:"m" noenv:"" placeholder:"MODEL" help:"${run_model}"`
	Output string `short:"o" noenv:"" enum:"${outputs}" default:"" placeholder:"text|json|events" help:"${run_output}"`

	State    map[string]string `short:"s" noenv:"" mapsep:"none" placeholder:"KEY=VALUE" help:"${run_state}"`
	Thoughts bool              `noenv:"" help:"Show what models think, too."`
	Files    []string          `name:"file" short:"f" noenv:"" sep:"none" placeholder:"FILE" help:"${run_files}"`
	Raw      string            `noenv:"" placeholder:"FILE" help:"${run_raw}"`

	packFlags `embed:"" group:"tools"`

	BudgetCalls  int64         `noenv:"" placeholder:"N" help:"Model calls that the turn may make."`
	BudgetTokens int64         `noenv:"" placeholder:"N" help:"Tokens that the turn may use."`
	BudgetCost   float64       `noenv:"" placeholder:"USD" help:"US dollars that the turn may cost."`
	BudgetTime   time.Duration `noenv:"" placeholder:"DURATION" help:"How long the turn may take."`

	lasts bool // what --local runs may go on after the command
}

// Help is shown below the flags.
func (*runCmd) Help() string {
	return `Agents run on the daemon. The tools of the file run here:
each call starts the tool's command, with the arguments as JSON on its standard input.

Agents may also name tools that run here and need no declaration, such as read_file, edit_file, grep and bash: see
docs/tools.md. What these may do, .agents/config.json says, and you are asked for the rest.

On a terminal you see what the agents say, and are asked what they ask.
Otherwise each event is a line of JSON on standard output, or what --output says.
The last line on standard error says what the turn has used.

Ctrl-C cancels the turn. A second one leaves it to itself, and so does closing the terminal.

The exit code is 0 when the turn has completed, 1 when it has failed or was cancelled,
and 2 for a wrong command line or an invalid file.

Examples:

  agentd run --local examples/agents/greeter.yaml "Say hi to Alice"

  agentd run -m gemini-2.5-flash -o text "Say hi" >hi.txt

  agentd run --session SESSION "And to Bob"

  agentd run --agent greeter@2 examples/agents/greeter.yaml "Say hi to Carol"

  agentd run --local --session notes -m gemini-2.5-flash "What did I ask before?"

  agentd run agent.yaml --file photo.jpg "What is this?"

  agentd run --attach SESSION examples/agents/greeter.yaml`
}

// Validate refuses flags that do not go together.
func (c *runCmd) Validate(ctx *kong.Context) error {
	switch local := localFlag(ctx); {
	case c.Attach != "" && c.Session != "":
		return errors.New("--attach does not go with --session")
	case c.kept() && (c.Attach != "" || c.Model != ""):
		return errors.New("--agent does not go with --attach or --model: they say which agent runs, too")
	case c.kept() && c.Local && c.Data == "":
		return errors.New("--agent names an agent that a daemon keeps, and one of --local without --data keeps none")
	case local != "" && !c.Local:
		return fmt.Errorf("%s goes only with --local: it is for the daemon to say, see agentd serve --help", local)
	case c.Output != "" && c.JSON:
		return errors.New("--json is --output events: give one of them")
	case c.Attach != "" && c.Model != "":
		return errors.New("--model does not go with --attach: the turn has its models")
	case c.Model != "" && c.File != "" && c.Prompt != "":
		return errors.New("--model goes without a FILE, whose agents name their models: agentd run -m MODEL PROMPT")
	case c.Attach != "" && (c.Prompt != "" || len(c.State) > 0 || len(c.Files) > 0):
		return errors.New("--attach follows a turn that there is: " +
			"give a FILE with its tools or nothing, but neither PROMPT nor --file nor --state")
	case c.BudgetCalls < 0 || c.BudgetTokens < 0 || c.BudgetCost < 0 || c.BudgetTime < 0:
		return errors.New("a budget has to be above 0")
	case c.Local:
		return c.check()
	}
	return nil
}

// kept reports whether the daemon has the agent.
func (c *runCmd) kept() bool { return c.Agent != (agentFlag{}) }

// task is what the arguments ask for.
type task struct {
	file  *agentfile.File // nil: none
	tools *client.ToolSet // of the file; nil: none
	// project is what the current folder adds.
	project *project
	// prompt starts a turn; nil: one is followed.
	prompt *cli.Prompt
	// alone is true when standard input holds the prompt: nobody can be asked.
	alone bool
}

// Run runs a turn to its end.
func (c *runCmd) Run(p *process) error {
	t, err := c.task(p)
	if err != nil {
		return err
	}
	spinner := c.spinner(p, t)
	if spinner != nil {
		defer spinner.Close()
	}
	defer t.project.pack.close()
	conn, done, err := c.dial(p, t.project.pack.client()...)
	if err != nil {
		return err
	}
	defer done()
	turn := &cli.Turn{Conn: conn, Tools: t.tools, Note: p.notef}
	t.project.pack.serve(turn)
	if p.tty.stdin && p.tty.stderr && !t.alone {
		turn.Person = terminal.New(p.stdin, p.stderr)
	}
	turn.Screen = c.screen(p, turn)
	if c.Raw != "" {
		f, err := os.OpenFile(c.Raw, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return usage("--raw: %w", err)
		}
		defer func() { _ = f.Close() }()
		turn.Screen = cli.Payloads{Screen: turn.Screen, Out: f}
	}
	if spinner != nil {
		turn.Screen = spinner.On(turn.Screen)
	}
	ending, err := c.drive(p, turn, t.prompt)
	if spinner != nil {
		spinner.Close()
	}
	if err != nil {
		return c.explain(p, turn, t.file, err)
	}
	completed := ending.End.GetCompleted() && ending.Err == nil
	if c.Output == "json" || c.Output == "text" && completed {
		if err := c.result(p, turn); err != nil {
			return err
		}
	}
	p.notef("%s", ending.Summary())
	if !completed {
		return &codedError{code: exitError}
	}
	return nil
}

// screen shows what happens, as --output says.
func (c *runCmd) screen(p *process, turn *cli.Turn) cli.Screen {
	switch {
	case c.Output == "text" || c.Output == "json":
		return cli.Quiet{Note: p.notef}
	case c.Output == "events" || c.json(p):
		return cli.JSON{Out: p.stdout}
	default:
		return &cli.Text{Out: p.stdout, Colors: p.colors(), Thoughts: c.Thoughts, Asks: turn.Person != nil}
	}
}

// spinner shows on a terminal what the turn waits for, if people read what is shown
// there; else it is nil. What the process writes goes through it from then on.
func (c *runCmd) spinner(p *process, t *task) *cli.Spinner {
	if !p.tty.stderr || p.env["TERM"] == "dumb" ||
		c.Output == "json" || c.Output == "events" || c.Output == "" && c.json(p) {
		return nil
	}
	var tree *client.Agent
	switch {
	case t.prompt != nil && t.prompt.Agent != nil:
		tree = t.prompt.Agent
	case t.file != nil:
		tree = t.file.Agent
	}
	s := cli.NewSpinner(p.stderr, p.colors(), tree)
	p.stderr = s.Writer(p.stderr)
	if p.tty.stdout {
		p.stdout = s.Writer(p.stdout)
	}
	return s
}

// result writes what has come of the turn: its last response, or the turn itself.
func (c *runCmd) result(p *process, turn *cli.Turn) error {
	ctx, stop := p.context()
	defer stop()
	result, err := turn.Result(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return cli.WriteJSON(p.stdout, result)
	}
	_, err = fmt.Fprintln(p.stdout, strings.TrimRight(result.GetOutputText(), "\n"))
	return err
}

// task reads the arguments.
func (c *runCmd) task(p *process) (*task, error) {
	t := &task{}
	name, prompt := c.File, c.Prompt
	if c.Model != "" || (c.Session != "" || c.kept()) && prompt == "" && !isFile(name) {
		name, prompt = "", c.File
	}
	switch {
	case c.Attach == "" && c.Session == "" && c.Model == "" && !c.kept() && name == "":
		return nil, usage("the file and the prompt are missing: agentd run FILE PROMPT")
	case c.Attach == "" && prompt == "" && len(c.Files) == 0:
		return nil, usage("the prompt is missing: agentd run FILE PROMPT")
	}
	if err := c.read(p, t, name); err != nil {
		return nil, err
	}
	if prompt == "-" {
		if p.tty.stdin {
			p.notef("type the prompt, and end it with Ctrl-D on a line of its own")
		}
		ctx, stop := p.context()
		text, err := terminal.ReadAll(ctx, p.stdin, maxPrompt)
		stop()
		if err != nil {
			return nil, fmt.Errorf("read the prompt: %w", err)
		}
		prompt, t.alone = strings.TrimRight(text, "\r\n"), true
	}
	if c.Attach != "" {
		return t, nil
	}
	return t, c.ask(p, t, prompt)
}

// work reads the arguments of a goal, which is no prompt of a turn.
func (c *runCmd) work(p *process) (*task, error) {
	t := &task{}
	if err := c.read(p, t, c.File); err != nil {
		return nil, err
	}
	return t, c.ask(p, t, "")
}

// read reads the file of a name, if there is one, and the project.
func (c *runCmd) read(p *process, t *task, name string) (err error) {
	if name != "" {
		if t.file, err = agentfile.Read(name); err != nil {
			return &codedError{code: exitUsage, err: err}
		}
		if t.tools, err = ownTools(t.file); err != nil {
			return err
		}
	}
	return c.readProject(p, t)
}

// ask completes the task with what its turn runs.
func (c *runCmd) ask(p *process, t *task, prompt string) (err error) {
	if t.prompt, err = c.prompt(t.file, prompt); err != nil {
		return err
	}
	t.prompt.PlanMode = t.project.pack != nil && t.project.pack.plans
	t.prompt.Instruction = memory.Join(t.project.layers)
	if t.prompt.Budget.ModelCalls == 0 {
		t.prompt.Budget.ModelCalls = t.project.steps()
	}
	t.prompt.Traceparent, t.prompt.Tracestate = p.getenv("TRACEPARENT"), p.getenv("TRACESTATE")
	return nil
}

// readProject reads what the current folder adds to the task.
func (c *runCmd) readProject(p *process, t *task) (err error) {
	flags := c.packFlags
	if c.Model != "" {
		flags.NoBuiltinTools, flags.bare = true, true
	}
	t.project, err = flags.project(p, t.file)
	return err
}

// prompt is the turn that is asked for.
func (c *runCmd) prompt(file *agentfile.File, text string) (*cli.Prompt, error) {
	files, err := parts(c.Files)
	if err != nil {
		return nil, err
	}
	out := &cli.Prompt{
		Session: c.Session,
		Create:  c.Local,
		Text:    text,
		Parts:   files,
		Raw:     c.Raw != "",
		Budget: client.Budget{
			ModelCalls: c.BudgetCalls,
			Tokens:     c.BudgetTokens,
			CostUSD:    c.BudgetCost,
			WallTime:   c.BudgetTime,
		},
	}
	switch {
	case c.kept():
		out.Kept = client.AgentRef(c.Agent) // of a file the tools count
	case file != nil:
		out.Agent = file.Agent
	case c.Model != "":
		out.Agent = client.LLM("agent", c.Model)
	}
	if len(c.State) > 0 {
		out.State, err = state(c.State)
	}
	return out, err
}

// ownTools are the tools of a file; their calls run its programs.
func ownTools(file *agentfile.File) (*client.ToolSet, error) {
	out := client.NewToolSet()
	for _, t := range file.Tools {
		program := toolcmd.Command{Args: t.Command, Base: filepath.Dir(file.Name), Pass: t.PassEnv}
		err := cli.AddTool(out, t.Tool, program)
		if err == nil {
			continue
		}
		if problems, failed := check(file); failed == nil && len(problems) > 0 { // the same, with its place
			err = problems
		}
		return nil, &codedError{code: exitUsage, err: err}
	}
	return out, nil
}

// dial names the daemon, or starts one.
func (c *runCmd) dial(p *process, opts ...client.Option) (conn *cli.Conn, done func(), err error) {
	url, stop := c.URL, func() {}
	if c.Local {
		if url, stop, err = c.local(p); err != nil {
			return nil, nil, err
		}
	}
	if conn, err = cli.Dial(url, append(c.options(p), opts...)...); err != nil {
		stop()
		return nil, nil, usage("--url: %w", err)
	}
	return conn, func() { conn.Close(); stop() }, nil
}

// errLeft is why a turn is followed no longer.
var errLeft = errors.New("left")

// drive runs the turn. The first signal cancels it; the second one, and the end of the
// terminal, leave it.
func (c *runCmd) drive(p *process, turn *cli.Turn, prompt *cli.Prompt) (*cli.Ending, error) {
	ctx, over := p.interrupts(turn, "canceling the turn", "the turn could not be canceled",
		func(ctx context.Context) error { return turn.Cancel(ctx, "interrupted at the terminal") })
	defer over()
	if prompt == nil {
		return turn.Attach(ctx, c.Attach)
	}
	return turn.Start(ctx, *prompt)
}

// interrupts has the first signal call stop, saying what it does, or that it failed. The second one, and the end of the
// terminal, end the context that it returns with errLeft. The function that it returns ends all of that.
func (p *process) interrupts(
	turn *cli.Turn, does, failed string, stop func(context.Context) error,
) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() { // ends with the context
		defer close(ended)
		select {
		case s := <-p.signals:
			if s == syscall.SIGHUP {
				cancel(errLeft)
				return
			}
		case <-ctx.Done():
			return
		}
		turn.Withdraw()
		p.notef("%s; interrupt again to leave it", does)
		stopped := make(chan struct{})
		go func() { // ends with the call
			defer close(stopped)
			callCtx, end := context.WithTimeout(ctx, cancelTimeout)
			defer end()
			if err := stop(callCtx); err != nil && ctx.Err() == nil {
				p.notef("%s: %v", failed, err)
			}
		}()
		select {
		case <-p.signals:
			cancel(errLeft)
		case <-ctx.Done():
		}
		<-stopped
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// explain adds to an error what a person can do about it.
func (c *runCmd) explain(p *process, turn *cli.Turn, file *agentfile.File, err error) error {
	if errors.Is(err, client.ErrInvalidAgentTree) && file != nil {
		if problems, failed := check(file); failed == nil && len(problems) > 0 { // the same, with its place
			err = problems
		}
		return &codedError{code: exitUsage, err: err}
	}
	if id := cli.Clean(turn.Session()); id != "" && (!c.Local || c.keeps()) {
		p.notef("%s", c.comeBack(id, file))
	}
	if errors.Is(err, errLeft) {
		if turn.Session() == "" && c.Attach == "" && !c.Local {
			p.notef("whether the daemon has started the turn is not known; agentd turns list tells")
		}
		return &codedError{code: exitError, err: errors.New("interrupted")}
	}
	return err
}

// comeBack says how to follow a turn that was left.
func (c *runCmd) comeBack(session string, file *agentfile.File) string {
	command := "agentd run --attach " + session
	if c.Local {
		command = "agentd run --local --attach " + session
		if c.Data != "" {
			command += " --data " + c.Data
		}
	}
	if file != nil {
		command += " " + file.Name
	}
	if c.Local {
		return "the turn may not be over, and goes on with the next command on this folder. To follow it: " + command
	}
	return "the turn may still be running. To follow it: " + command + ", or: agentd sessions events -f " + session
}
