package daemon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
)

var bidi = &grpc.StreamDesc{StreamName: "Run", ServerStreams: true, ClientStreams: true}

// dial opens a Run stream of a gRPC client that is not ours.
func dial(t *testing.T, addr string) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewStream(t.Context(), bidi, agentdv1connect.AgentdRunProcedure)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGRPCClient(t *testing.T) { //nolint:tparallel // its subtests use one daemon, one after the other
	t.Parallel() // it waits
	d := start(t, daemon.Config{})
	greet := tool("greet", `{"type":"object","properties":{"name":{"type":"string"}}}`)
	for name, halfCloses := range map[string]bool{"half-closes after the end": true, "waits for the end of the stream": false} {
		t.Run(name, func(t *testing.T) {
			s := dial(t, d.Addr().String())
			if err := s.SendMsg(execute(llm("root", "scripted/demo", "greet"), "Say hi to Alice", greet)); err != nil {
				t.Fatal(err)
			}
			var text string
			var end *agentdv1.RunResponse_EndResponse
			for {
				msg := &agentdv1.RunResponse{}
				err := s.RecvMsg(msg)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if end != nil {
					t.Errorf("%v after EndResponse", msg)
				}
				if c := msg.GetOutputChunk(); c != nil && !c.GetIsThought() {
					text += c.GetContent()
				}
				if call := msg.GetToolCall(); call != nil {
					var in struct{ Name string }
					if err := json.Unmarshal([]byte(call.GetToolInput()), &in); err != nil || in.Name != "Alice" {
						t.Errorf("input %s", call.GetToolInput())
					}
					err := s.SendMsg(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
						ToolCallId: call.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "Salut, Alice"},
					}}})
					if err != nil {
						t.Fatal(err)
					}
				}
				if msg.GetEnd() != nil {
					end = msg.GetEnd()
					if halfCloses {
						if err := s.CloseSend(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if !end.GetCompleted() || !strings.Contains(text, "Salut, Alice") {
				t.Errorf("text %q, end %v", text, end)
			}
		})
	}
}

// An unknown method and an unknown service are errors of gRPC.
func TestGRPCUnknownMethod(t *testing.T) {
	d := start(t, daemon.Config{})
	conn, err := grpc.NewClient(d.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, method := range []string{"/agentd.v1.Agentd/Walk", "/agentd.v2.Agentd/Run"} {
		err := conn.Invoke(t.Context(), method, &agentdv1.RunRequest{}, &agentdv1.RunResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: got %v, want unimplemented", method, err)
		}
	}
}

// curl speaks the protocol in JSON.
func TestCurl(t *testing.T) {
	path, err := exec.LookPath("curl")
	if err == nil {
		var out []byte
		out, err = exec.CommandContext(t.Context(), path, "--version").Output()
		if err == nil && !bytes.Contains(out, []byte("HTTP2")) {
			err = errors.New("this curl has no HTTP/2")
		}
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d := start(t, daemon.Config{})
	message := `{"execute":{"userPrompt":"hello curl","agent":{"name":"root","llm":{"model":"echo"}}}}`
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	cmd := exec.CommandContext(t.Context(), path, "-sS", "--http2-prior-knowledge", "--max-time", "20",
		"-H", "Content-Type: application/connect+json", "--data-binary", "@-", d.URL()+agentdv1connect.AgentdRunProcedure)
	cmd.Stdin = bytes.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl: %v", err)
	}
	var text string
	var last *agentdv1.RunResponse
	for len(out) >= 5 && out[0] == 0 {
		n := 5 + binary.BigEndian.Uint32(out[1:])
		last = &agentdv1.RunResponse{}
		if err := protojson.Unmarshal(out[5:n], last); err != nil {
			t.Fatal(err)
		}
		text += last.GetOutputChunk().GetContent()
		out = out[n:]
	}
	if text != "hello curl" || !last.GetEnd().GetCompleted() || string(out) != "\x02\x00\x00\x00\x02{}" {
		t.Errorf("text %q, last %v, then %q", text, last, out)
	}
}

// refusal is a request that must not run, and what is said about it.
type refusal struct {
	msg  *agentdv1.RunRequest
	code agentdv1.ErrorCode
	text []string
}

func refusals() map[string]refusal {
	const (
		tree = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
		auth = agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED
		gone = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
	)
	deep := llm("leaf", "echo")
	for i := range 30 {
		deep = sequence("n"+string(rune('a'+i%26))+strings.Repeat("x", i/26), deep)
	}
	wide := sequence("wide")
	for range 2000 {
		wide.GetSequential().Agents = append(wide.GetSequential().Agents, llm("same", "echo"))
	}
	builtin := llm("root", "echo")
	builtin.GetLlm().BuiltinTools = []string{"shell"}
	return map[string]refusal{
		"no type":          {execute(&agentdv1.Agent{Name: "root"}, "hi"), tree, []string{"root"}},
		"no name":          {execute(sequence("root", llm("", "echo")), "hi"), tree, []string{"root"}},
		"bad name":         {execute(sequence("root", llm("no spaces", "echo")), "hi"), tree, []string{"no spaces"}},
		"same name twice":  {execute(sequence("root", llm("a", "echo"), llm("a", "echo")), "hi"), tree, []string{"a"}},
		"empty sequence":   {execute(sequence("root"), "hi"), tree, []string{"root"}},
		"too deep":         {execute(deep, "hi"), tree, []string{"16"}},
		"too wide":         {execute(wide, "hi"), tree, nil},
		"unknown tool":     {execute(sequence("root", llm("a", "echo", "nothing")), "hi"), tree, []string{"root/a", "nothing"}},
		"unknown builtin":  {execute(builtin, "hi"), tree, []string{"root", "shell"}},
		"schema not JSON":  {execute(llm("root", "echo", "t"), "hi", tool("t", "{")), tree, []string{"t"}},
		"schema not valid": {execute(llm("root", "echo", "t"), "hi", tool("t", `{"type":7}`)), tree, []string{"t"}},
		"schema of files":  {execute(llm("root", "echo", "t"), "hi", tool("t", `{"type":"object","$ref":"file:///etc/passwd"}`)), tree, []string{"t"}},
		"unknown model":    {execute(llm("root", "scripted/nothing"), "hi"), gone, []string{"nothing"}},
		"no model":         {execute(llm("root", ""), "hi"), tree, []string{"root"}},
		"no gemini key":    {execute(llm("root", "gemini-2.5-flash"), "hi"), auth, []string{"GEMINI_API_KEY", "X-Agentd-Gemini-Api-Key"}},
		"no anthropic key": {execute(llm("root", "claude-sonnet-4-5"), "hi"), auth, []string{"ANTHROPIC_API_KEY"}},
		"no openai key":    {execute(sequence("root", llm("a", "gpt-5")), "hi"), auth, []string{"OPENAI_API_KEY", "root/a"}},
	}
}

// What must not run is refused with the place and the rule, and the daemon
// serves the next call.
func TestRefusals(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{})
	c := agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)
	run := func(t *testing.T, msg *agentdv1.RunRequest) []*agentdv1.RunResponse {
		s := c.Run(t.Context())
		if err := s.Send(proto.CloneOf(msg)); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		var out []*agentdv1.RunResponse
		for {
			msg, err := s.Receive()
			if errors.Is(err, io.EOF) {
				_ = s.CloseResponse()
				return out
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, msg)
		}
	}
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			got := run(t, tc.msg)
			if len(got) != 1 || got[0].GetError() == nil {
				t.Fatalf("want one ErrorResponse, got %v", got)
			}
			e := got[0].GetError()
			if e.GetCode() != tc.code {
				t.Errorf("code %v, want %v: %s", e.GetCode(), tc.code, e.GetMessage())
			}
			for _, want := range tc.text {
				if !strings.Contains(e.GetMessage(), want) {
					t.Errorf("message %q does not name %q", e.GetMessage(), want)
				}
			}
			got = run(t, execute(llm("root", "echo"), "next"))
			if n := len(got); n == 0 || !got[n-1].GetEnd().GetCompleted() {
				t.Errorf("the next call must be served, got %v", got)
			}
		})
	}
}

// What a caller sends does not reach the log by way of a provider that repeats
// it in its errors; the caller receives it.
func TestPayloadsAreNotLogged(t *testing.T) {
	_, url := fakeprovider.Start(t, func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		at := max(bytes.Index(c.Body, []byte("canary")), 0)
		return fakeprovider.Reply{Status: http.StatusBadRequest, Message: "invalid value: " + string(c.Body[at:at+13])}
	})
	var log buffer
	env := map[string]string{
		"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url,
		"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url,
		"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url,
	}
	d := agentdtest.Start(t, agentdtest.Config{
		Getenv: func(name string) string { return env[name] },
		Logger: daemon.NewLogger(&log, daemon.LogConfig{Level: slog.Level(-8)}),
	})
	c := d.Client()
	for _, model := range []string{"gemini-2.5-flash", "claude-sonnet-4-5", "openai-chat/gpt-5", "openai-responses/gpt-5"} {
		_, err := c.Do(t.Context(), llm("root", model), "canary-prompt")
		if err == nil || !strings.Contains(err.Error(), "canary-prompt") {
			t.Errorf("%s: the caller is told %v", model, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if s := log.String(); strings.Contains(s, "canary") || strings.Count(s, "status 400") != 4 {
		t.Errorf("the log holds a payload, or no error: %s", s)
	}
}

// A key of the caller wins over the server's, and neither is ever logged, not
// even when a provider echoes it.
func TestKeysAreNotLogged(t *testing.T) {
	provider, url := fakeprovider.Start(t, func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		return fakeprovider.Reply{
			Status: http.StatusUnauthorized,
			Body:   fmt.Sprintf(`{"type":"error","error":{"type":"authentication_error","message":"bad key %[1]s","status":"%[1]s"}}`, c.Key()),
		}
	})
	var log buffer
	cfg := daemon.Providers{
		GeminiAPIKey: "canary-server-gemini", AnthropicAPIKey: "canary-server-anthropic", OpenAIAPIKey: "canary-server-openai",
		GeminiBaseURL: url, AnthropicBaseURL: url, OpenAIBaseURL: url,
	}
	d := start(t, daemon.Config{Providers: cfg, Logger: daemon.NewLogger(&log, daemon.LogConfig{Level: slog.Level(-8)})})
	c := agentdv1connect.NewAgentdClient(h2c(t), d.URL())
	for header, model := range map[string]string{
		"X-Agentd-Gemini-Api-Key": "gemini-2.5-flash", "X-Agentd-Anthropic-Api-Key": "claude-sonnet-4-5", "X-Agentd-Openai-Api-Key": "gpt-5",
	} {
		for _, key := range []string{"", "canary-callers-own"} {
			s := c.Run(context.Background())
			s.RequestHeader().Set(header, key)
			if err := errors.Join(s.Send(execute(llm("root", model), "canary-prompt")), s.CloseRequest()); err != nil {
				t.Fatal(err)
			}
			var code agentdv1.ErrorCode
			for {
				msg, err := s.Receive()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(msg.String(), "canary-server") || strings.Contains(msg.String(), "canary-callers") {
					t.Errorf("%s: a key came back: %v", model, msg)
				}
				if msg.GetError() != nil {
					code = msg.GetError().GetCode()
				}
			}
			_ = s.CloseResponse()
			if code != agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED {
				t.Errorf("%s: code %v, want AUTH_FAILED", model, code)
			}
			want := "canary-server"
			if key != "" {
				want = key
			}
			if got := provider.Last().Key(); !strings.Contains(got, want) {
				t.Errorf("%s: the provider got %q, want %s…", model, got, want)
			}
		}
	}
	stop(t, d)
	if s := log.String(); strings.Contains(s, "canary") || !strings.Contains(s, "turn ended") {
		t.Errorf("the log holds a canary, or no turn: %s", s)
	}
}
