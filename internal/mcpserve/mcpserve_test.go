package mcpserve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/mcpserve"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// scripts are the models of the tests.
var scripts = map[string]string{
	"greet": `answers:
  - {when: {call: 1, step: 1}, text: "I will. ", calls: [{name: greet, args: {name: "{{last_word}}"}}]}
  - {when: {after_tool: greet}, text: '{{tool_result "greet"}}'}
  - {when: {}, text: "call {{call}}"}`,
	"stuck": `answers: [{calls: [{name: wait, args: {}}]}, {when: {}, text: waited}]`,
	"gate":  `answers: [{calls: [{name: gate, args: {}}]}, {when: {}, text: '{{tool_result "gate"}}'}]`,
	"sure":  `answers: [{calls: [{name: sure, args: {}}]}, {when: {}, text: '{{tool_result "sure"}}'}]`,
	"person": `answers:
  - calls: [{name: ask_user, args: {question: "Which color?", choices: [red, green]}}]
  - {when: {}, text: '{{tool_result "ask_user"}}'}`,
	"down": `answers: [{when: {}, error: {kind: invalid, message: the model is broken}}]`,
	"long": `answers: [{when: {}, chunk_delay: 5ms, text: [` + strings.Repeat("a,", 100) + `the end]}]`,
}

// bench is a server with tools, its daemon, and what the tools of the tests do.
type bench struct {
	t       *testing.T
	daemon  *agentdtest.Daemon
	server  *mcpserve.Server
	began   chan struct{} // one for each call of the tool wait
	release chan struct{} // ends the calls of wait when it is closed
	notes   *notes
	front   *httptest.Server // of the last host over HTTP
}

// newBench starts a daemon and a server with a tool for each script.
func newBench(t *testing.T, cfg mcpserve.Config, opts ...client.Option) *bench {
	t.Helper()
	b := &bench{
		t: t, daemon: agentdtest.Start(t, agentdtest.Config{Scripts: scripts}),
		began: make(chan struct{}, 100), release: make(chan struct{}), notes: &notes{},
	}
	cfg.Version, cfg.Note = "7", b.notes.notef
	b.server = mcpserve.New(cfg)
	t.Cleanup(b.server.Close)
	set := client.NewToolSet()
	type who struct {
		Name string `json:"name"`
	}
	must(t, client.AddTool(set, "greet", "Greets", func(_ context.Context, in who) (string, error) {
		return "Hello " + in.Name, nil
	}))
	must(t, client.AddTool(set, "wait", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
		b.began <- struct{}{}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-b.release:
			return "ok", nil
		}
	}))
	for name, tool := range map[string]string{"greet": "greet", "stuck": "wait", "down": "", "long": ""} {
		var of []client.AgentOption
		if tool != "" {
			of = append(of, client.Tools(tool))
		}
		b.add(mcpserve.Tool{
			Name: name, Client: b.daemon.Client(opts...), Agent: client.LLM(name, "scripted/"+name, of...),
			Options: []client.SendOption{client.WithTools(set)},
		})
	}
	return b
}

func (b *bench) add(tool mcpserve.Tool) {
	b.t.Helper()
	must(b.t, b.server.Add(tool))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) notef(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, args...))
}

// stdio connects the official client to the server over two pipes. gone ends the host as its death would.
func (b *bench) stdio(c *sdk.Client) (host *sdk.ClientSession, gone func()) {
	b.t.Helper()
	hostIn, serverOut := io.Pipe()
	serverIn, hostOut := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.server.Serve(context.WithoutCancel(b.t.Context()), serverIn, serverOut) }()
	host, err := c.Connect(b.t.Context(), &sdk.IOTransport{Reader: hostIn, Writer: hostOut}, nil)
	must(b.t, err)
	gone = sync.OnceFunc(func() {
		_, _ = hostOut.Close(), hostIn.Close()
		_ = host.Close()
		select {
		case err := <-ended:
			if err != nil {
				b.t.Errorf("Serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			b.t.Error("Serve has not returned")
		}
	})
	b.t.Cleanup(gone)
	return host, gone
}

// http connects the official client to the server over HTTP.
func (b *bench) http(c *sdk.Client) *sdk.ClientSession {
	b.t.Helper()
	b.front = httptest.NewServer(b.server.Handler())
	b.t.Cleanup(b.front.Close)
	host, err := c.Connect(b.t.Context(), &sdk.StreamableClientTransport{Endpoint: b.front.URL}, nil)
	must(b.t, err)
	b.t.Cleanup(func() { _ = host.Close() })
	return host
}

func host(opts *sdk.ClientOptions) *sdk.Client {
	return sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, opts)
}

// said is a result.
type said struct {
	texts []string
	isErr bool
	text  string
	id    string
	turn  string
	usage map[string]any
	fail  map[string]any
}

func call(t *testing.T, h *sdk.ClientSession, tool string, args map[string]any) said {
	t.Helper()
	result, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	must(t, err)
	return read(t, result)
}

func read(t *testing.T, result *sdk.CallToolResult) said {
	t.Helper()
	out := said{isErr: result.IsError}
	for _, c := range result.Content {
		text, ok := c.(*sdk.TextContent)
		if !ok {
			t.Fatalf("content %T, want text", c)
		}
		out.texts = append(out.texts, text.Text)
	}
	if m, ok := result.StructuredContent.(map[string]any); ok {
		out.text, _ = m["text"].(string)
		out.id, _ = m["session_id"].(string)
		out.turn, _ = m["turn_id"].(string)
		out.usage, _ = m["usage"].(map[string]any)
		out.fail, _ = m["error"].(map[string]any)
	}
	return out
}

// last is the newest turn of the daemon.
func (b *bench) last() *client.Turn {
	b.t.Helper()
	for turn, err := range b.daemon.Client().Turns(context.Background(), client.TurnFilter{PageSize: 1}) {
		must(b.t, err)
		return turn
	}
	b.t.Fatal("there is no turn")
	return nil
}

// ends waits for the end of the newest turn.
func (b *bench) ends() *client.Turn {
	b.t.Helper()
	for until := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		turn := b.last()
		if !turn.EndTime.IsZero() {
			return turn
		}
		if time.Now().After(until) {
			b.t.Fatalf("the turn is still %s", turn.Status)
		}
	}
}

// TestCall: both wires list the tools and call them; a call goes on with the session of another one.
func TestCall(t *testing.T) { //nolint:tparallel // its subtests ask for the newest turn
	t.Parallel()
	b := newBench(t, mcpserve.Config{})
	overStdio, _ := b.stdio(host(nil))
	for wire, h := range map[string]*sdk.ClientSession{"stdio": overStdio, "http": b.http(host(nil))} {
		t.Run(wire, func(t *testing.T) {
			if info := h.InitializeResult(); info.ServerInfo.Name != "agentd" || info.ServerInfo.Version != "7" {
				t.Errorf("the server is %+v", info.ServerInfo)
			}
			list, err := h.ListTools(t.Context(), nil)
			must(t, err)
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				in, _ := json.Marshal(tool.InputSchema)
				out, _ := json.Marshal(tool.OutputSchema)
				if !strings.Contains(string(in), `"required":["prompt"]`) || !strings.Contains(string(in), `"session_id"`) ||
					!strings.Contains(string(out), `"required":["text"]`) {
					t.Errorf("%s takes %s and gives %s", tool.Name, in, out)
				}
			}
			if want := []string{"down", "greet", "long", "stuck"}; !slices.Equal(names, want) {
				t.Errorf("the tools are %v, want %v", names, want)
			}
			first := call(t, h, "greet", map[string]any{"prompt": "Say hi to Ann"})
			if first.isErr || first.text != "Hello Ann" || first.usage["model_calls"] != 2.0 {
				t.Errorf("got %+v", first)
			}
			if want := []string{"Hello Ann", "session_id: " + first.id}; !slices.Equal(first.texts, want) {
				t.Errorf("the content is %q, want %q", first.texts, want)
			}
			second := call(t, h, "greet", map[string]any{"prompt": "And?", "session_id": first.id})
			if second.isErr || second.text != "call 3" || second.id != first.id || second.turn == first.turn {
				t.Errorf("got %+v after %+v", second, first)
			}
			if turn := b.last(); turn.SessionID != first.id || turn.ID != second.turn || turn.Text != "call 3" {
				t.Errorf("the daemon has the turn %s of %s, want %s of %s", turn.ID, turn.SessionID, second.turn, first.id)
			}
		})
	}
}

// TestFailures: what fails is a tool error with the reason.
func TestFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t, mcpserve.Config{})
	h, _ := b.stdio(host(nil))
	got := call(t, h, "down", map[string]any{"prompt": "x"})
	if !got.isErr || got.fail["message"] == nil || !strings.Contains(got.texts[0], "the model is broken") ||
		got.id == "" || got.id != b.last().SessionID || b.last().Status != client.TurnFailed {
		t.Errorf("a model that fails: got %+v", got)
	}
	got = call(t, h, "greet", map[string]any{"prompt": "x", "session_id": "none"})
	if !got.isErr || got.fail["code"] != "SESSION_NOT_FOUND" || !strings.Contains(got.texts[0], "SESSION_NOT_FOUND") {
		t.Errorf("an unknown session: got %+v", got)
	}
	got = call(t, h, "greet", map[string]any{"session_id": "none"})
	if !got.isErr || !strings.Contains(got.texts[0], "prompt") {
		t.Errorf("no prompt: got %+v", got)
	}
}

// TestCancel: a host that cancels a call cancels its turn in the daemon, by either wire.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, mcpserve.Config{})
	overStdio, _ := b.stdio(host(nil))
	for wire, h := range map[string]*sdk.ClientSession{"stdio": overStdio, "http": b.http(host(nil))} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-b.began; cancel() }()
		if _, err := h.CallTool(ctx, &sdk.CallToolParams{Name: "stuck", Arguments: map[string]any{"prompt": "x"}}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", wire, err)
		}
		if turn := b.ends(); turn.Status != client.TurnCanceled || turn.StatusMessage != "canceled by the MCP host" {
			t.Errorf("%s: the turn is %s: %s", wire, turn.Status, turn.StatusMessage)
		}
	}
}

// TestHostGone: the turns of a host that is gone are canceled: by the end of standard input, by the end of its session
// over HTTP, and by the end of the server.
func TestHostGone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wire func(*bench) (*sdk.ClientSession, func())
		want string
	}{
		"end of input": {func(b *bench) (*sdk.ClientSession, func()) { return b.stdio(host(nil)) }, "canceled by the MCP host"},
		"session ends": {func(b *bench) (*sdk.ClientSession, func()) {
			h := b.http(host(nil))
			return h, func() { b.remove(h) }
		}, "the MCP host is gone"},
		"connections are lost": {func(b *bench) (*sdk.ClientSession, func()) {
			front := httptest.NewServer(b.server.Handler())
			b.t.Cleanup(front.Close)
			ctx, cut := context.WithCancel(b.t.Context())
			there := &cutter{RoundTripper: http.DefaultTransport, ctx: ctx}
			h, err := host(nil).Connect(b.t.Context(),
				&sdk.StreamableClientTransport{Endpoint: front.URL, HTTPClient: &http.Client{Transport: there}, MaxRetries: -1}, nil)
			must(b.t, err)
			b.t.Cleanup(func() { _ = h.Close() })
			return h, cut
		}, "the MCP host is gone"},
		"server ends": {func(b *bench) (*sdk.ClientSession, func()) {
			return b.http(host(nil)), b.server.Close
		}, "agentd mcp serve is ending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, mcpserve.Config{Grace: 300 * time.Millisecond})
			h, gone := test.wire(b)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = h.CallTool(t.Context(), &sdk.CallToolParams{Name: "stuck", Arguments: map[string]any{"prompt": "x"}})
			}()
			<-b.began
			gone()
			if turn := b.ends(); turn.Status != client.TurnCanceled || turn.StatusMessage != test.want {
				t.Errorf("the turn is %s: %s", turn.Status, turn.StatusMessage)
			}
			<-ended
		})
	}
}

// remove ends a session over HTTP with the DELETE that a host sends.
func (b *bench) remove(h *sdk.ClientSession) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodDelete, b.front.URL, http.NoBody)
	must(b.t, err)
	r.Header.Set("Mcp-Session-Id", h.ID())
	resp, err := http.DefaultClient.Do(r)
	must(b.t, err)
	must(b.t, resp.Body.Close())
	if resp.StatusCode/100 != 2 {
		b.t.Errorf("DELETE: %s", resp.Status)
	}
}

// TestCut: a server that is cut off from its daemon, or killed, leaves turns that the daemon cancels after the grace.
func TestCut(t *testing.T) {
	t.Parallel()
	var cut cutter
	b := newBench(t, mcpserve.Config{Grace: 50 * time.Millisecond})
	set := client.NewToolSet()
	must(t, client.AddTool(set, "wait", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
		b.began <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}))
	cut.RoundTripper = b.daemon.HTTPClient().Transport
	cut.ctx, cut.cancel = context.WithCancel(t.Context())
	b.add(mcpserve.Tool{
		Name: "far", Agent: client.LLM("far", "scripted/stuck", client.Tools("wait")),
		Client: b.daemon.Client(client.WithHTTPClient(&http.Client{Transport: &cut}),
			client.WithHeartbeatInterval(200*time.Millisecond),
			client.WithReconnect(client.ReconnectPolicy{MaxElapsed: 200 * time.Millisecond})),
		Options: []client.SendOption{client.WithTools(set)},
	})
	h, _ := b.stdio(host(nil))
	go func() { <-b.began; cut.cancel() }()
	got := call(t, h, "far", map[string]any{"prompt": "x"})
	if !got.isErr || got.fail["code"] != "UNAVAILABLE" && got.fail["code"] != "CANCELED" { // whichever it hears of first
		t.Errorf("the host is told %+v", got)
	}
	if turn := b.ends(); turn.Status != client.TurnCanceled {
		t.Errorf("the turn is %s: %s", turn.Status, turn.StatusMessage)
	}
}

// cutter is a transport that loses its connections with its context, and then makes none.
type cutter struct {
	http.RoundTripper
	ctx    context.Context //nolint:containedctx // of the connections
	cancel context.CancelFunc
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.ctx.Err() != nil {
		return nil, errors.New("cut")
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(c.ctx, cancel)
	return c.RoundTripper.RoundTrip(r.WithContext(ctx))
}

// TestProgress: a host that gives a token hears of agents, calls and text, not too often; others hear nothing.
func TestProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, mcpserve.Config{})
	heard := make(chan *sdk.ProgressNotificationParams, 1000)
	opts := &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { heard <- r.Params },
	}
	overStdio, _ := b.stdio(host(opts))
	for wire, h := range map[string]*sdk.ClientSession{"stdio": overStdio, "http": b.http(host(opts))} {
		for tool, words := range map[string][]string{
			"stuck": {"stuck has started", "stuck calls wait"}, "long": {"long has started", "long: aaaa"},
		} {
			params := &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"prompt": "x"}}
			params.SetProgressToken("of " + wire + tool)
			if tool == "stuck" {
				go func() {
					<-b.began
					time.Sleep(600 * time.Millisecond)
					b.release <- struct{}{}
				}()
			}
			begun := time.Now()
			_, err := h.CallTool(t.Context(), params)
			must(t, err)
			most := int(time.Since(begun)/(250*time.Millisecond)) + 2
			var all []string
			at, n := 0.0, len(heard)
			for range n {
				p := <-heard
				if p.Progress <= at || p.ProgressToken != "of "+wire+tool {
					t.Errorf("%s %s: progress %v of %v after %v", wire, tool, p.Progress, p.ProgressToken, at)
				}
				at = p.Progress
				all = append(all, p.Message)
			}
			if n == 0 || n > most {
				t.Errorf("%s %s: %d notifications, want 1 to %d", wire, tool, n, most)
			}
			for _, word := range words {
				if !strings.Contains(strings.Join(all, "\n"), word) {
					t.Errorf("%s %s: %q is missing in %q", wire, tool, word, all)
				}
			}
		}
		call(t, h, "long", map[string]any{"prompt": "x"})
		if n := len(heard); n != 0 {
			t.Errorf("%s: %d notifications without a token", wire, n)
		}
	}
}

// TestBound: calls beyond the bound wait for others.
func TestBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, mcpserve.Config{Calls: 2})
	h, _ := b.stdio(host(nil))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			result, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: "stuck", Arguments: map[string]any{"prompt": "x"}})
			if err != nil || result.IsError {
				t.Errorf("got %v, %v", result, err)
			}
		})
	}
	<-b.began
	<-b.began
	time.Sleep(200 * time.Millisecond)
	if n := len(b.began); n != 0 {
		t.Errorf("%d more calls run", n)
	}
	close(b.release)
	all.Wait()
}

// TestNames: what is no name of an MCP tool, or is taken, is refused.
func TestNames(t *testing.T) {
	t.Parallel()
	s := mcpserve.New(mcpserve.Config{})
	for name, want := range map[string]string{
		"": "1 to 128", "a b": "1 to 128", "é": "1 to 128", strings.Repeat("a", 129): "1 to 128", strings.Repeat("a", 128): "", "a.b-C_9": "",
	} {
		err := s.Add(mcpserve.Tool{Name: name, Agent: client.LLM("a", "echo")})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
	if err := s.Add(mcpserve.Tool{Name: "a.b-C_9", Agent: client.LLM("a", "echo")}); err == nil {
		t.Error("the same name twice is taken")
	}
}
