package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/mcpserve"
)

type mcpCmd struct {
	Serve mcpServeCmd `cmd:"" help:"Offer agents of files as tools of an MCP server."`
}

type mcpServeCmd struct {
	Files []string `arg:"" name:"FILE" help:"${mcp_files}"`

	daemonFlags `embed:""`
	Local       bool   `noenv:"" help:"${mcp_local}"`
	Data        string `group:"local" noenv:"" placeholder:"DIR" help:"${mcp_data}"`
	modelFlags  `embed:"" group:"local"`
	HTTP        string `name:"http" noenv:"" placeholder:"ADDR" help:"${mcp_http}"`
	Calls       int    `noenv:"" default:"8" placeholder:"N" help:"Calls that run at once; others wait."`

	packFlags `embed:"" group:"tools"`
}

// Help is shown below the flags.
func (*mcpServeCmd) Help() string {
	return `Each file is a tool with the name of its agent. It takes a prompt and, to go on with a
conversation, the session_id of an earlier result. Agents run on the daemon; the tools of the files, and those of the
current folder, run here, as with agentd run. What they may not do without a person, the host's person is asked
(elicitation), if the host can; else it is refused.

Standard input and output are the host's; all else goes to standard error. A call that the host cancels cancels its
turn, and so does the end of the host. If this command is killed, the daemon cancels its turns after 2 minutes.

Examples:

  agentd mcp serve --local examples/agents/greeter.yaml

  agentd mcp serve --url https://agents.example.com --api-key-file key coder.yaml reviewer.yaml

  agentd mcp serve --http 127.0.0.1:8090 examples/agents/*.yaml`
}

// Validate refuses flags that do not go together.
func (c *mcpServeCmd) Validate(ctx *kong.Context) error {
	switch local := localFlag(ctx); {
	case local != "" && !c.Local:
		return fmt.Errorf("%s goes only with --local: it is for the daemon to say, see agentd serve --help", local)
	case c.Local:
		return errors.Join(atLeast1("calls", c.Calls), c.check())
	}
	return atLeast1("calls", c.Calls)
}

// Run serves until the host is gone, or somebody interrupts.
func (c *mcpServeCmd) Run(p *process) (err error) {
	files, err := c.read()
	if err != nil {
		return err
	}
	var listener net.Listener
	if c.HTTP != "" {
		if listener, err = loopback(c.HTTP); err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
	}
	run := runCmd{daemonFlags: c.daemonFlags, Local: c.Local, Data: c.Data, modelFlags: c.modelFlags}
	if c.Local { // one for all files
		url, stop, err := run.local(p)
		if err != nil {
			return err
		}
		defer stop()
		run.URL, run.Local = url, false
	}
	server := mcpserve.New(mcpserve.Config{Version: thisRelease().version, Calls: c.Calls, Note: p.notef})
	var done []func()
	defer func() {
		for _, end := range slices.Backward(done) {
			end()
		}
	}()
	for _, file := range files {
		end, err := c.add(p, &run, server, file)
		if err != nil {
			return err
		}
		done = append(done, end)
	}
	ctx, stop := p.context()
	defer stop()
	if listener != nil {
		p.notef("MCP at http://%s%s", listener.Addr(), mcpserve.Path)
		return server.Listen(ctx, listener)
	}
	in, ok := p.stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(p.stdin)
	}
	return server.Serve(ctx, in, keepOpen{p.stdout})
}

// keepOpen is a writer that nobody closes.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// read reads and checks the files.
func (c *mcpServeCmd) read() ([]*agentfile.File, error) {
	var files []*agentfile.File
	for _, name := range c.Files {
		file, err := agentfile.Read(name)
		if err == nil {
			var problems agentfile.Problems
			if problems, err = check(file); err == nil && len(problems) > 0 {
				err = problems
			}
		}
		if err != nil {
			return nil, &codedError{code: exitUsage, err: err}
		}
		files = append(files, file)
	}
	return files, nil
}

// add makes a file a tool. done ends what it has started.
func (c *mcpServeCmd) add(
	p *process, run *runCmd, server *mcpserve.Server, file *agentfile.File,
) (done func(), err error) {
	own, err := ownTools(file)
	if err != nil {
		return nil, err
	}
	flags := c.packFlags
	flags.asks = server
	found, err := flags.project(p, file)
	if err != nil {
		return nil, err
	}
	conn, hangUp, err := run.dial(p, found.pack.client()...)
	if err != nil {
		found.pack.close()
		return nil, err
	}
	done = func() { hangUp(); found.pack.close() }
	tool := mcpserve.Tool{
		Name: toolName(file), Description: file.Agent.GetDescription(), Client: conn.Client, Agent: file.Agent,
	}
	for _, set := range append(found.pack.sets(), own) {
		tool.Options = append(tool.Options, client.WithTools(set))
	}
	if text := memory.Join(found.layers); text != "" {
		tool.Options = append(tool.Options, client.WithInstruction(text))
	}
	if found.pack != nil && found.pack.plans {
		tool.Options = append(tool.Options, client.WithPlanMode())
	}
	if n := found.steps(); n > 0 {
		tool.Options = append(tool.Options, client.WithBudget(client.Budget{ModelCalls: n}))
	}
	if err := server.Add(tool); err != nil {
		done()
		return nil, &codedError{code: exitUsage, err: fmt.Errorf("%s: %w", file.Name, err)}
	}
	return done, nil
}

// noName is what the name of an MCP tool may not hold.
var noName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// toolName is the agent's name, or that of the file.
func toolName(file *agentfile.File) string {
	name := file.Agent.GetName()
	if name == "" {
		base := filepath.Base(file.Name)
		name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	return noName.ReplaceAllString(name, "_")
}

// loopback listens on an address of this computer alone; 8090 and :8090 are ports of 127.0.0.1.
func loopback(addr string) (net.Listener, error) {
	if !strings.Contains(addr, ":") {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usage("--http: want host:port, got %q", addr)
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", host == "localhost":
		host = "127.0.0.1"
	case err != nil, !ip.IsLoopback():
		return nil, usage("--http %s: nothing authenticates callers, so it has to be an address of this computer "+
			"alone, such as 127.0.0.1:%s; others need a proxy in front of it that asks who they are", addr, port)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	return l, nil
}
