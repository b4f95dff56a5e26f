package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

const (
	writerIs = "agent:\n  name: writer\n  description: Writes a note.\n  llm: {model: scripted/writer, tool_names: [write_file]}\n"
	writes   = `answers:
  - {calls: [{name: write_file, args: {path: note.txt, content: noted}}]}
  - {when: {after_tool: write_file}, text: 'Told: {{tool_result "write_file"}}'}
`
	sleeperIs = `agent:
  name: sleeper
  llm: {model: scripted/sleeper, tool_names: [nap]}
tools:
  - {name: nap, description: Sleeps., command: [sh, -c, "touch began; exec sleep 600"], timeout: 20m}
`
	sleeps = "answers: [{calls: [{name: nap, args: {}}]}, {when: {}, text: awake}]"
)

// mcpHost is the official client of MCP, and agentd mcp serve, the real command.
type mcpHost struct {
	shell
	*sdk.ClientSession
	dir    string
	stderr *locked
	cmd    *exec.Cmd
}

// mcpCommand is agentd mcp serve for three files, in a folder of its own, with a daemon.
func mcpCommand(t *testing.T, args ...string) *mcpHost {
	t.Helper()
	h := &mcpHost{
		shell: startShell(t, map[string]string{"writer": writes, "sleeper": sleeps}), dir: t.TempDir(), stderr: &locked{},
	}
	for name, text := range map[string]string{
		"writer.yaml": writerIs, "sleeper.yaml": sleeperIs, ".agents/config.json": `{"version": 1}`,
	} {
		path := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	greeter, err := filepath.Abs(examples + "greeter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(os.Args[0], append([]string{"mcp", "serve", "writer.yaml", "sleeper.yaml", greeter}, args...)...)
	h.cmd.Dir, h.cmd.Stderr = h.dir, h.stderr
	h.cmd.Env = append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0", "AGENTD_URL="+h.url,
		"XDG_DATA_HOME="+filepath.Join(h.dir, ".data"), "XDG_CONFIG_HOME="+h.dir)
	return h
}

// connect connects a client, over standard input and output if transport is nil.
func (h *mcpHost) connect(opts *sdk.ClientOptions, transport sdk.Transport) {
	h.t.Helper()
	if transport == nil {
		transport = &sdk.CommandTransport{Command: h.cmd, TerminateDuration: 20 * time.Second}
	}
	var err error
	h.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, opts).Connect(h.t.Context(), transport, nil)
	if err != nil {
		h.t.Fatalf("%v: %s", err, h.stderr)
	}
	h.t.Cleanup(func() { _ = h.Close() })
}

func (h *mcpHost) call(tool string, args map[string]any) *sdk.CallToolResult {
	h.t.Helper()
	result, err := h.CallTool(h.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		h.t.Fatalf("%s: %v: %s", tool, err, h.stderr)
	}
	return result
}

// last waits for a state of the daemon's newest turn.
func (h *mcpHost) last(status client.TurnStatus) *client.Turn {
	h.t.Helper()
	c := client.New(h.url)
	defer c.CloseIdleConnections()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var now client.TurnStatus
		for turn, err := range c.Turns(context.Background(), client.TurnFilter{PageSize: 1}) {
			if err != nil {
				h.t.Fatal(err)
			}
			if now = turn.Status; now == status {
				return turn
			}
			break
		}
		if time.Now().After(until) {
			h.t.Fatalf("the turn is %q, want %q: %s", now, status, h.stderr)
		}
	}
}

// awaitFile waits until a tool has made a file.
func (h *mcpHost) awaitFile(name string) {
	h.t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
			return
		}
		if time.Now().After(until) {
			h.t.Fatalf("there is no %s: %s", name, h.stderr)
		}
	}
}

func textOf(r *sdk.CallToolResult) string {
	if text, ok := r.Content[0].(*sdk.TextContent); ok {
		return text.Text
	}
	return ""
}

// TestMCPServe: the official client lists the files' agents and calls them over standard input and output; tools run
// in the command, what needs a person is refused to a host that has none, and a session goes on.
func TestMCPServe(t *testing.T) {
	t.Parallel()
	h := mcpCommand(t)
	h.connect(nil, nil)
	list, err := h.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name+": "+tool.Description)
	}
	if want := []string{
		`greeter: Has the agent "greeter" of agentd answer a prompt.`,
		`sleeper: Has the agent "sleeper" of agentd answer a prompt.`, "writer: Writes a note.",
	}; !slices.Equal(names, want) {
		t.Errorf("the tools are %q, want %q", names, want)
	}
	first := h.call("greeter", map[string]any{"prompt": "Say hi to Ann"})
	contains(t, textOf(first), "Hello, Ann!")
	session := first.StructuredContent.(map[string]any)["session_id"].(string)
	second := h.call("greeter", map[string]any{"prompt": "Say hi to Bob", "session_id": session})
	contains(t, textOf(second), "Hello, Bob!")
	if turn := h.last(client.TurnSucceeded); turn.SessionID != session {
		t.Errorf("the second turn is of session %s, want %s", turn.SessionID, session)
	}
	contains(t, textOf(h.call("writer", map[string]any{"prompt": "x"})), "nobody is there to be asked")
	if _, err := os.Stat(filepath.Join(h.dir, "note.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("note.txt: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Errorf("the command has failed: %v: %s", err, h.stderr)
	}
	if said := h.stderr.String(); said != "" {
		t.Errorf("it said %s", said)
	}
}

// TestMCPServeAsks: the host's person says what tools may do.
func TestMCPServeAsks(t *testing.T) {
	t.Parallel()
	h := mcpCommand(t)
	var asked locked
	h.connect(&sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		_, _ = io.WriteString(&asked, r.Params.Message)
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "once"}}, nil
	}}, nil)
	contains(t, textOf(h.call("writer", map[string]any{"prompt": "x"})), "written")
	contains(t, asked.String(), "write_file wants to write: "+filepath.Join(h.dir, "note.txt"))
	if got, err := os.ReadFile(filepath.Join(h.dir, "note.txt")); err != nil || string(got) != "noted" {
		t.Errorf("note.txt: %q, %v", got, err)
	}
}

// TestMCPServeEnds: the turn of a call is canceled in the daemon when the host cancels it, when the host is gone, and
// when somebody ends the command, which then exits cleanly.
func TestMCPServeEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(h *mcpHost, cancel, gone func())
		want string
	}{
		"canceled":     {func(_ *mcpHost, cancel, _ func()) { cancel() }, "canceled by the MCP host"},
		"host is gone": {func(_ *mcpHost, _, gone func()) { gone() }, "canceled by the MCP host"},
		"terminated": {func(h *mcpHost, _, _ func()) {
			_ = h.cmd.Process.Signal(syscall.SIGTERM)
		}, "agentd mcp serve is ending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := mcpCommand(t)
			h.t = t
			stdout, err := h.cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := h.cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := h.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			host, err := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(),
				&sdk.IOTransport{Reader: stdout, Writer: out}, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.ClientSession = host
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			called := make(chan struct{})
			go func() {
				defer close(called)
				_, _ = host.CallTool(ctx, &sdk.CallToolParams{Name: "sleeper", Arguments: map[string]any{"prompt": "x"}})
			}()
			h.awaitFile("began")
			test.end(h, cancel, func() { _ = out.Close() })
			if turn := h.last(client.TurnCanceled); turn.StatusMessage != test.want {
				t.Errorf("the turn ended with %q, want %q", turn.StatusMessage, test.want)
			}
			if name != "terminated" { // which ends the command although the host is there
				_ = out.Close()
			}
			if err := h.cmd.Wait(); err != nil {
				t.Errorf("the command has failed: %v: %s", err, h.stderr)
			}
			<-called
			_ = host.Close()
		})
	}
}

// TestMCPServeHTTP: the same over HTTP, at the address that the command says.
func TestMCPServeHTTP(t *testing.T) {
	t.Parallel()
	h := mcpCommand(t, "--http", "127.0.0.1:0")
	said := h.stderr.await("/mcp\n")
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-said:
	case <-time.After(20 * time.Second):
		t.Fatalf("no address: %s", h.stderr)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(h.stderr.String()), "MCP at ")
	h.connect(nil, &sdk.StreamableClientTransport{Endpoint: url})
	contains(t, textOf(h.call("greeter", map[string]any{"prompt": "Say hi to Ann"})), "Hello, Ann!")
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("the command has failed: %v: %s", err, h.stderr)
	}
}

// TestMCPServeUsage: what cannot be served is refused before anything is.
func TestMCPServeUsage(t *testing.T) {
	t.Parallel()
	greeter := examples + "greeter.yaml"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no file":        {nil, "FILE"},
		"missing file":   {[]string{"none.yaml"}, "none.yaml"},
		"wrong file":     {[]string{file(t, "{name: a, llm: {modell: echo}}")}, "modell"},
		"same name":      {[]string{greeter, greeter}, `two tools are called "greeter"`},
		"open to all":    {[]string{greeter, "--http", "0.0.0.0:0"}, "nothing authenticates callers"},
		"other computer": {[]string{greeter, "--http", "example.com:80"}, "an address of this computer alone"},
		"no address":     {[]string{greeter, "--http", "a:b:c"}, "want host:port"},
		"no calls":       {[]string{greeter, "--calls", "0"}, "--calls is 0"},
		"data":           {[]string{greeter, "--data", "x"}, "--data goes only with --local"},
		"wrong tool":     {[]string{greeter, "--disable-tools", "bsh"}, `unknown tool "bsh"`},
	} {
		s := shell{t: t}
		contains(t, name+": "+s.fails(exitUsage, append([]string{"mcp", "serve"}, test.args...)...), test.want)
	}
}
