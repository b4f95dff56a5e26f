// Agentd hosts agent trees: agents run here, tools run on the client.
//
//	agentd serve          serve until told to stop
//	agentd config         print the configuration of serve, and where each value is from
//	agentd run            run an agent of a file, and its tools
//	agentd chat           talk to an agent
//	agentd mcp serve      offer agents of files as tools of an MCP server
//	agentd gestalt-provider  serve agents to the Gestalt host that starts it
//	agentd doctor         look whether what run needs works
//	agentd instruction    print what models of a file are told
//	agentd validate       check files
//	agentd test           run the cases of files with agents
//	agentd sessions       look at sessions and change them
//	agentd turns          look at turns and cancel them
//	agentd interactions   answer what turns ask of people
//	agentd events         list or follow the event log of all sessions
//	agentd state          list, set and remove the state that sessions share
//	agentd keys           make, list and revoke the API keys of callers
//	agentd models         list the models that the server knows
//	agentd backup         copy the database, also of a running daemon
//	agentd restore        put a backup in the place of the database
//	agentd check          compare what the database holds with the rules it is written by
//	agentd cluster        show the replicas that share a database of PostgreSQL
//	agentd migrate        move all that a server has from SQLite to PostgreSQL
//	agentd replay         run a session again on its own log
//	agentd healthcheck    ask the server on this machine whether it is ready
//	agentd completion     print a script that completes commands in a shell
//	agentd version        print the version and the commit
//
// Every flag of serve is an environment variable and a key of the file of --config too: --addr is
// AGENTD_ADDR and addr. A flag wins over its variable, and that over the file; of the commands that are
// clients only --url has a variable, and what run --local has in common with serve.
// Provider keys come from GEMINI_API_KEY, ANTHROPIC_API_KEY and OPENAI_API_KEY, or from the file.
//
// SIGTERM and SIGINT stop the server. It refuses new turns and waits for model calls that are
// under way, up to --shutdown-grace; other turns are suspended at once, and the next start resumes
// them. A second signal suspends all. The next start also resumes the turns that ran when the
// server was killed.
//
// SIGHUP has the server read its configuration file, and the files that it names, again. The hang-up of
// the terminal on which it was started stops it as SIGTERM does. Under nohup it is ignored.
//
// run takes SIGINT and SIGTERM for a cancel of its turn. A second one, and SIGHUP, leave
// the turn: run kills its tools, the turn continues.
//
// When the disk is full, turns wait until there is space. When the database has failed (a
// failed fsync, an I/O error), the server stops at once, with exit code 1; the next start
// continues with what is in the database.
//
// Exit codes: 0 after a clean stop, 1 when something failed, 2 for a wrong
// command line or an invalid file. healthcheck exits 0 when the server is ready,
// else 1; run exits 0 when its turn has completed, else 1.
//
// The package translates flags, environment, signals and terminals for the
// packages daemon, cli and agentfile, and does nothing else.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/daemon"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	p := &process{signals: signals, env: environ(os.Environ()), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	p.tty.stdin, p.tty.stdout, p.tty.stderr = isTerminal(os.Stdin), isTerminal(os.Stdout), isTerminal(os.Stderr)
	p.hungUp = func() bool { return p.tty.stdin && !isTerminal(os.Stdin) || p.tty.stderr && !isTerminal(os.Stderr) }
	os.Exit(p.run(os.Args[1:]))
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }

// environ splits the environment into names and values.
func environ(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}

// commands is the command line.
type commands struct {
	Serve        serveCmd        `cmd:"" help:"Serve until told to stop."`
	Config       configCmd       `cmd:"" help:"Print the configuration of serve, and where each value is from."`
	Run          runCmd          `cmd:"" help:"Run an agent of a file, and its tools."`
	Auto         autoCmd         `cmd:"" help:"Have an agent work towards a goal by itself."`
	Goals        goalsCmd        `cmd:"" help:"Look at goals, and steer them."`
	Chat         chatCmd         `cmd:"" help:"Talk to an agent."`
	MCP          mcpCmd          `cmd:"" name:"mcp" help:"Offer agents to MCP hosts."`
	Gestalt      gestaltCmd      `cmd:"" name:"gestalt-provider" help:"Serve a Gestalt host, which starts it."`
	Doctor       doctorCmd       `cmd:"" help:"Look whether everything that run needs here works."`
	Instruction  instructionCmd  `cmd:"" help:"Print what models of a file are told, layer by layer."`
	Validate     validateCmd     `cmd:"" help:"Check files with agents and tools."`
	Test         testCmd         `cmd:"" help:"Run the cases that stand beside files with agents."`
	Sessions     sessionsCmd     `cmd:"" help:"Look at sessions and change them."`
	Turns        turnsCmd        `cmd:"" help:"Look at turns and cancel them."`
	Interactions interactionsCmd `cmd:"" help:"Answer what turns ask of people."`
	Schedules    schedulesCmd    `cmd:"" help:"Have the daemon start prompts by itself, and look at them."`
	Agents       agentsCmd       `cmd:"" help:"Keep agents on the daemon, and look at them."`
	Events       eventsCmd       `cmd:"" help:"List or follow the event log of all sessions."`
	State        stateCmd        `cmd:"" help:"List and remove the state that sessions share."`
	Keys         keysCmd         `cmd:"" help:"Make, list and revoke the API keys of callers."`
	Export       exportCmd       `cmd:"" help:"Write all that a database has of a tenant or a user."`
	Erase        eraseCmd        `cmd:"" help:"Erase all that a database has of a tenant or a user."`
	Encryption   encryptionCmd   `cmd:"" help:"Make encryption keys, and encrypt a database anew."`
	Audit        auditCmd        `cmd:"" help:"List who did what, when, and from where."`
	Webhooks     webhooksCmd     `cmd:"" help:"Look at what webhooks were not told, and send it again."`
	Models       modelsCmd       `cmd:"" help:"List the models that the daemon knows."`
	Backup       backupCmd       `cmd:"" help:"Copy the database to a file, also while a daemon runs."`
	Restore      restoreCmd      `cmd:"" help:"Put a backup in the place of the database of a stopped daemon."`
	Check        checkCmd        `cmd:"" help:"Check that what the database holds is consistent."`
	Cluster      clusterCmd      `cmd:"" help:"Show the replicas over a database, what they own, and what waits."`
	Migrate      migrateCmd      `cmd:"" help:"Move all that a server has to another database."`
	Record       recordCmd       `cmd:"" help:"Convert recorded model calls."`
	Replay       replayCmd       `cmd:"" help:"${replay}"`
	Healthcheck  healthcheckCmd  `cmd:"" help:"Ask the server on this machine whether it is ready."`
	Completion   completionCmd   `cmd:"" help:"Print a script that completes commands in a shell."`
	Version      versionCmd      `cmd:"" help:"Print the version; so does agentd --version."`
}

// process is what a command has of its process.
type process struct {
	signals <-chan os.Signal
	env     map[string]string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	tty     struct{ stdin, stdout, stderr bool } // which of them are terminals
	hungUp  func() bool                          // a terminal of them has closed; nil for never
	adjust  func(*daemon.Config)                 // for tests; may be nil
	args    []string
	file    *configfile.File // the configuration file; nil for none
}

// getenv reads the environment.
func (p *process) getenv(name string) string { return p.env[name] }

// exit is how kong leaves after --help.
type exit struct{ code int }

// run is main without a process: it returns the exit code.
func run(signals <-chan os.Signal, args []string, env map[string]string, stdout, stderr io.Writer) int {
	return (&process{signals: signals, env: env, stdout: stdout, stderr: stderr}).run(args)
}

func (p *process) run(args []string) (code int) {
	stderr := p.stderr
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit:
			code = e.code
		default:
			panic(e)
		}
	}()
	if slices.Equal(args, []string{"--version"}) { // no flag: commands have one of this name
		args = []string{"version"}
	}
	p.args = args
	ctx, err := p.parse()
	if _, ok := errors.AsType[configfile.Problems](err); ok {
		return p.report(err)
	}
	if err != nil {
		fmt.Fprintln(stderr, "agentd:", err)
		fmt.Fprintln(stderr, "Run agentd --help for what there is.")
		return exitUsage
	}
	if err := ctx.Run(p); err != nil {
		return p.report(err)
	}
	return exitOK
}

// parser is the command line without arguments.
func (p *process) parser() (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("agentd"),
		kong.Description("Hosts agent trees: agents run here, tools run on the client."),
		kong.PostBuild(longHelps),
		kong.Writers(p.stdout, p.stderr),
		kong.Resolvers(p.resolver()),
		kong.ExplicitGroups([]kong.Group{localGroup, toolsGroup}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(code int) { panic(exit{code}) }),
		kong.ValueFormatter(withVariable),
	)
}

// withVariable names a flag's variable in the help.
func withVariable(v *kong.Value) string {
	if v.Flag == nil || v.Name == "help" || v.Tag.Has(noVariable) {
		return v.Help
	}
	return v.Help + " ($" + variable(v.Name) + ")"
}
