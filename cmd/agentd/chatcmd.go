package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/client/skills"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/chat"
	"github.com/apzuk3/agentd/internal/cli"
)

type chatCmd struct {
	File string `arg:"" optional:"" name:"FILE" help:"${chat_file}"`

	daemonFlags `embed:""`
	Local       bool   `noenv:"" help:"${chat_local}"`
	Data        string `group:"local" noenv:"" placeholder:"DIR" help:"${run_data}"`
	modelFlags  `embed:"" group:"local"`
	Session     string `noenv:"" placeholder:"ID" help:"${run_session}"`
	Attach      string `noenv:"" placeholder:"ID" help:"${chat_attach}"`
	Model       string `short:"m" noenv:"" placeholder:"MODEL" help:"${chat_model}"`
	Plain       bool   `noenv:"" help:"${chat_plain}"`
	Prompt      string `short:"p" noenv:"" placeholder:"PROMPT" help:"${chat_prompt}"`

	packFlags `embed:"" group:"tools"`
}

// Help is shown below the flags.
func (*chatCmd) Help() string {
	return `On a terminal a screen shows what goes on and what is typed; /help lists its keys and commands.
Elsewhere, and with --plain, each line is a turn: what models say goes to standard output, all else to standard error.
Without FILE one agent has all tools that need no declaration: see docs/tools.md.

Ctrl+C cancels the turn and keeps the history; twice within a second it leaves, and so do Ctrl+D, /exit and /quit.
/help lists the commands; .agents/commands/NAME.md is /NAME. A project with .agents keeps what was said
in .agents/sessions.

The exit code is 0, with --prompt 1 when the turn has failed, and 2 for a wrong command line or an invalid file.

Examples:

  agentd chat -m gemini-2.5-flash

  agentd chat --local coder.yaml

  agentd chat coder.yaml -p "Why do the tests fail?" >answer.txt`
}

// Validate refuses flags that do not go together.
func (c *chatCmd) Validate(ctx *kong.Context) error {
	switch local := localFlag(ctx); {
	case c.Attach != "" && c.Session != "":
		return errors.New("--attach does not go with --session")
	case local != "" && !c.Local:
		return fmt.Errorf("%s goes only with --local: it is for the daemon to say, see agentd serve --help", local)
	case c.Model != "" && c.File != "":
		return errors.New("--model goes without a FILE, whose agents name their models")
	case c.Local:
		return c.check()
	}
	return nil
}

// Run talks.
func (c *chatCmd) Run(p *process) error {
	talk, done, err := c.chat(p)
	if err != nil {
		return err
	}
	defer done()
	if c.onScreen(p) {
		return talk.Screen(chat.Terminal{In: os.Stdin, Out: os.Stdout, Env: os.Environ()})
	}
	if c.Prompt == "" {
		return talk.Run()
	}
	completed, err := talk.Once(c.Prompt)
	if err == nil && !completed {
		err = &codedError{code: exitError}
	}
	return err
}

// onScreen reports whether the conversation has a screen.
func (c *chatCmd) onScreen(p *process) bool {
	return c.Prompt == "" && !c.Plain && p.tty.stdin && p.tty.stdout && p.tty.stderr && p.env["TERM"] != "dumb"
}

// chat prepares the conversation.
func (c *chatCmd) chat(p *process) (_ *chat.Chat, done func(), err error) {
	notes := &chat.Notes{Out: p.stderr}
	p.stderr = notes
	var file *agentfile.File
	own := client.NewToolSet()
	if c.File != "" {
		if file, err = agentfile.Read(c.File); err != nil {
			return nil, nil, &codedError{code: exitUsage, err: err}
		}
		if own, err = ownTools(file); err != nil {
			return nil, nil, err
		}
	}
	goesOn := c.Session != "" || c.Attach != ""
	flags := c.packFlags
	flags.all = file == nil && !goesOn
	found, err := flags.project(p, file)
	if err != nil {
		return nil, nil, err
	}
	tree, model, err := c.tree(file, found, goesOn)
	if err != nil {
		found.pack.close()
		return nil, nil, err
	}
	conn, hangUp, err := c.dial(p, found.pack.client()...)
	if err != nil {
		found.pack.close()
		return nil, nil, err
	}
	out := &chat.Chat{
		Prompt: cli.Prompt{
			Agent: tree, Session: c.Session, Create: c.Local, Instruction: memory.Join(found.layers),
			PlanMode: found.pack != nil && found.pack.plans,
			Budget:   client.Budget{ModelCalls: found.steps()},
		},
		Attach: c.Attach, Out: p.stdout, Info: p.stderr, Interrupts: p.signals,
		Colors: p.tty.stdout && p.tty.stderr && p.colors(),
		Root:   found.root(), Model: model, Lines: chat.Piped(p.stdin),
		Conn: conn, Serve: found.pack.ask, Notes: notes, Skills: found.skills, Prompts: found.pack.prompts(),
	}
	var person cli.Person
	if p.tty.stdin && p.tty.stderr && !c.onScreen(p) {
		typed := terminal.New(p.stdin, p.stderr)
		person = typed
		out.Lines = chat.Typed(typed)
	}
	if found.pack != nil {
		out.Modes = found.pack.permits
	}
	out.Start = func() *cli.Turn {
		turn := &cli.Turn{Conn: conn, Tools: own, Note: p.notef, Person: person}
		found.pack.equip(turn)
		return turn
	}
	return out, func() { hangUp(); found.pack.close() }, nil
}

// tree returns the agents of the conversation, nil for those of its session, and the model to show.
func (c *chatCmd) tree(file *agentfile.File, found *project, goesOn bool) (*agentdv1.Agent, string, error) {
	if file != nil {
		return file.Agent, firstModel(file.Agent), nil
	}
	model := c.Model
	if model == "" {
		model = found.model()
	}
	switch {
	case goesOn && c.Model == "":
		return nil, "", nil
	case model == "":
		return nil, "", usage("what answers is missing: give a FILE, --model, or the model of .agents/config.json")
	}
	var names []string
	if found.pack != nil {
		names = found.pack.names()
	}
	return client.LLM("agent", model, client.Tools(names...)), model, nil
}

// firstModel is the model of the first agent of a tree that has one.
func firstModel(a *agentdv1.Agent) string {
	if m := a.GetLlm().GetModel(); m != "" {
		return m
	}
	for _, b := range agentfile.Children(a) {
		if m := firstModel(b); m != "" {
			return m
		}
	}
	return ""
}

// names are the tools of the pack.
func (k *pack) names() (names []string) {
	names = k.reg.Names()
	if k.skills {
		names = append(names, skills.ToolNames()...)
	}
	return names
}

// dial names the daemon, or starts one that keeps its sessions.
func (c *chatCmd) dial(p *process, opts ...client.Option) (*cli.Conn, func(), error) {
	run := runCmd{
		daemonFlags: c.daemonFlags, Local: c.Local, Data: c.Data, modelFlags: c.modelFlags,
		Session: c.Session, Attach: c.Attach,
	}
	if c.Local && c.Data == "" {
		dir, err := dataDir(runtime.GOOS, p.env)
		if err != nil {
			return nil, nil, usage("--data: %w", err)
		}
		run.Data = filepath.Join(dir, "local")
	}
	return run.dial(p, opts...)
}
