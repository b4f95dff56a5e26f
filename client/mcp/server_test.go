//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/client/permit"
)

// TestMain is the tests, or a server that a test has started.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MCP_TEST_SERVER"); mode != "" {
		os.Exit(serveStdio(mode))
	}
	goleak.VerifyTestMain(m)
}

// serveStdio is the program of a server: as mode says, it hangs, dies with a word, ignores SIGTERM, or is an ordinary one.
func serveStdio(mode string) int {
	if log := os.Getenv("STARTS"); log != "" {
		appendTo(log, "start\n")
	}
	switch mode {
	case "dead":
		fmt.Fprintln(os.Stderr, "the license has expired: "+os.Getenv("TOKEN"))
		return 3
	case "hung":
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "once": // it starts only once
		flag := os.Getenv("FLAG")
		if _, err := os.Stat(flag); err == nil {
			return 4
		}
		_ = os.WriteFile(flag, nil, 0o600)
	}
	_ = newServer(context.Background(), mode).Run(context.Background(), &sdk.StdioTransport{})
	if mode == "stubborn" {
		select {}
	}
	return 0
}

func appendTo(path, text string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString(text)
		f.Close()
	}
}

type textIn struct {
	Text string `json:"text,omitempty"`
}

func said(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// newServer makes a server of the SDK, whose calls end with life. A mode that holds "legacy" speaks the protocol of 2025-11-25.
func newServer(life context.Context, mode string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	if strings.Contains(mode, "legacy") {
		s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
				if method == "server/discover" {
					return nil, &jsonrpc.Error{Code: -32601, Message: "method not found"}
				}
				return next(ctx, method, r)
			}
		})
	}
	raw := func(name, schema string, annotations *sdk.ToolAnnotations, fn sdk.ToolHandler) {
		s.AddTool(&sdk.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(schema), Annotations: annotations}, fn)
	}
	const object = `{"type":"object"}`
	result := func(res *sdk.CallToolResult) sdk.ToolHandler {
		return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return res, nil }
	}
	if strings.Contains(mode, "many") {
		for i := range 101 {
			raw(fmt.Sprintf("tool%03d", i), object, nil, result(said("ok")))
		}
		raw("fewer", object, nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.RemoveTools("tool000", "tool001")
			return said("removed"), nil
		})
		return s
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Description: "Says it again."},
		func(_ context.Context, _ *sdk.CallToolRequest, in textIn) (*sdk.CallToolResult, any, error) {
			return said(in.Text), nil, nil
		})
	raw("pid", object, nil, result(said(fmt.Sprint(os.Getpid()))))
	raw("environment", object, nil, result(said(strings.Join(os.Environ(), "\n"))))
	raw("image", object, nil, result(&sdk.CallToolResult{Content: []sdk.Content{
		&sdk.TextContent{Text: "one"}, &sdk.ImageContent{MIMEType: "image/png", Data: []byte("PNG")},
		&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("WAV")},
		&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://a", MIMEType: "no type", Blob: []byte("BLOB")}},
		&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://b", Text: "two"}},
		&sdk.ResourceLink{URI: "https://example.com/a.pdf", Name: "a", MIMEType: "application/pdf"},
		&sdk.ResourceLink{URI: "mem://c", Name: "c", MIMEType: "text/plain"},
	}}))
	raw("structured", object, nil, result(&sdk.CallToolResult{StructuredContent: json.RawMessage(`{"b":"<1>","a":2.5}`)}))
	raw("exact", object, nil, result(&sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: `{"id": 9007199254740993, "a": 1}`}},
		StructuredContent: json.RawMessage(`{"id":9007199254740993,"a":1}`),
	}))
	failed := said("there is no such city")
	failed.IsError = true
	raw("fail", object, nil, result(failed))
	raw("empty", object, nil, result(&sdk.CallToolResult{}))
	raw("extend", object, nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		raw("extra", object, nil, result(said("extra")))
		s.RemoveTools("empty")
		return said("extended"), nil
	})
	// wait notes in a file that it was called, and answers only if the file has the line twice.
	wait := func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var in textIn
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		appendTo(in.Text, "called\n")
		if data, _ := os.ReadFile(in.Text); strings.Count(string(data), "called") > 1 {
			return said("done"), nil
		}
		select {
		case <-ctx.Done():
		case <-life.Done():
		}
		return nil, errors.New("it was ended")
	}
	raw("wait", `{"type":"object","properties":{"text":{"type":"string"}}}`, nil, wait)
	raw("wait_readonly", object, &sdk.ToolAnnotations{ReadOnlyHint: true}, wait)
	raw("wait_idempotent", object, &sdk.ToolAnnotations{IdempotentHint: true}, wait)
	raw("spawn", object, nil, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		cmd := exec.Command("sh", "-c", `trap "" TERM; while :; do sleep 1; done`)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // it holds the pipes open
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return said(fmt.Sprint(cmd.Process.Pid)), nil
	})
	raw("ask", object, nil, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		schema := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)
		params := &sdk.ElicitParams{Mode: "form", Message: "Who are you?", RequestedSchema: schema}
		if strings.Contains(mode, "legacy") {
			answer, err := r.Session.Elicit(ctx, params)
			if err != nil {
				return nil, err
			}
			return said(fmt.Sprint(answer.Action, " ", answer.Content["name"])), nil
		}
		if r.Params.InputResponses == nil {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"q": params}}, nil
		}
		answer, _ := r.Params.InputResponses["q"].(*sdk.ElicitResult)
		if answer.Content["name"] == "slow" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return said(fmt.Sprint(answer.Action, " ", answer.Content["name"])), nil
	})
	raw("bad-ref", `{"type":"object","properties":{"a":{"$ref":"https://example.com/schema"}}}`, nil, result(said("")))
	raw("too-large", `{"type":"object","description":"`+strings.Repeat("x", 33<<10)+`"}`, nil, result(said("")))
	s.AddResource(&sdk.Resource{URI: "mem://note", Name: "note", Description: "A note."},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
				{URI: r.Params.URI, Text: "noted"}, {URI: r.Params.URI, MIMEType: "image/png", Blob: []byte("PNG")},
			}}, nil
		})
	s.AddPrompt(&sdk.Prompt{Name: "greet", Arguments: []*sdk.PromptArgument{{Name: "who", Required: true}}},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
				{Role: "user", Content: &sdk.TextContent{Text: "Greet " + r.Params.Arguments["who"] + "."}},
				{Role: "assistant", Content: &sdk.TextContent{Text: "Hello!"}},
				{Role: "user", Content: &sdk.ImageContent{MIMEType: "image/png", Data: []byte("PNG")}},
			}}, nil
		})
	return s
}

// program is the entry of a server that is this program.
func program(t *testing.T, mode string, env ...string) map[string]any {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"MCP_TEST_SERVER": mode, "GORACE": "atexit_sleep_ms=0"}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return map[string]any{"transport": "stdio", "command": self, "env": vars}
}

// front is a server that is reached by HTTP, and can be killed and come back.
type front struct {
	mode    string
	addr    string
	headers chan http.Header
	mu      sync.Mutex
	server  *httptest.Server
	end     func() // ends what the server does
}

func newFront(t *testing.T, mode string) *front {
	t.Helper()
	f := &front{mode: mode, headers: make(chan http.Header, 1000)}
	f.start(t)
	t.Cleanup(f.kill)
	return f
}

func (f *front) start(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	life, end := context.WithCancel(context.Background())
	server := newServer(life, f.mode)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case f.headers <- r.Header.Clone():
		default:
		}
		handler.ServeHTTP(w, r)
	}))
	if f.addr != "" {
		s.Listener.Close()
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		s.Listener = l
	}
	s.Start()
	f.server, f.addr = s, s.Listener.Addr().String()
	f.end = func() {
		end()
		for session := range server.Sessions() {
			session.Close()
		}
	}
}

// kill breaks all connections, as the death of a process does.
func (f *front) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		return
	}
	f.server.Listener.Close()
	f.server.CloseClientConnections()
	f.end()
	f.server.Close()
	f.server = nil
}

func (f *front) entry() map[string]any {
	return map[string]any{"transport": "http", "url": "http://" + f.addr + "/mcp"}
}

// folder makes a folder with an mcp.json.
func folder(t *testing.T, servers map[string]any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"version": 1, "servers": servers})
	if err != nil {
		t.Fatal(err)
	}
	return folderOf(t, string(data))
}

func folderOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// yolo is a gate that lets all pass but what rules deny.
func yolo(t *testing.T, deny ...string) *permit.Gate {
	t.Helper()
	return gateOf(t, "yolo", nil, deny...)
}

func gateOf(t *testing.T, mode string, p permit.Prompter, deny ...string) *permit.Gate {
	t.Helper()
	cfg := conf.Default()
	cfg.Permissions.Mode, cfg.Permissions.Deny = mode, deny
	gate, err := permit.New(cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// person answers the gate's questions.
type person struct {
	mu    sync.Mutex
	asked []permit.PromptRequest
	says  permit.Decision
}

func (p *person) AskApproval(_ context.Context, r permit.PromptRequest) (permit.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r)
	return p.says, nil
}

// notices keeps what Build says.
type notices struct {
	mu   sync.Mutex
	text []string
}

func (n *notices) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text = append(n.text, text)
}

func (n *notices) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.text, "\n")
}

// build builds and closes when the test ends.
func build(t *testing.T, servers map[string]any, elicit mcp.Elicitor, opts ...mcp.Option) []*mcp.Server {
	t.Helper()
	quiet := mcp.OnNotice(func(string) {})
	got, err := mcp.Build(t.Context(), folder(t, servers), yolo(t), elicit, append([]mcp.Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got {
		t.Cleanup(func() { s.Close() })
	}
	return got
}

// eventually waits for what another process does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(end) {
			t.Fatal("it has not happened: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
