package gestalt_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// holders names the files of a folder that hold a text.
func holders(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), text) {
			names = append(names, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A grant is kept while its turn runs, also in a process that is killed, and is nowhere afterwards: neither in the files
// of the database, nor in what the provider logs, exports or says.
func TestGrantsAreForgotten(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents: [{name: a, llm: {model: scripted/calling}}]\ntools: [{name: send, description: d, needs_approval: true}]\n", map[string]string{"calling": calling})
	var mu sync.Mutex
	var exported strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&exported, "%s %v %s", r.URL, r.Header, data)
	}))
	defer collector.Close()
	h.env["OTEL_EXPORTER_OTLP_ENDPOINT"], h.env["AGENTD_LOG_LEVEL"] = collector.URL, "debug"
	h.config["payloads"] = "private"
	h.tools = deskTools()
	h.execute = func(_ context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		if req.GetToolId() == "t1" {
			return nil, status.Error(codes.Internal, "it does not work with "+req.GetRunGrant())
		}
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "sent"}, nil
	}
	h.start()
	const grant = "grant-of-the-secret-turn"
	h.session("s", ann, "")
	// Others keep the database busy, so that pages are moved.
	h.session("other", ann, "")
	said := &strings.Builder{}
	req := &gestaltv1.CreateTurnRequest{TurnId: "the-secret-turn", SessionId: "s"}
	fmt.Fprint(said, h.prompt(req))
	in := h.asked("the-secret-turn")
	if req.GetRunGrant() != grant || len(holders(t, h.path("data"), grant)) == 0 {
		t.Fatal("the grant is not in the database while the turn runs: the test would see nothing")
	}
	log := h.current().stderr
	h.kill()
	h.start()
	h.must("AgentProvider/ResolveInteraction", &gestaltv1.ResolveInteractionRequest{InteractionId: in.GetId(), Resolution: object(t, map[string]any{"approved": true}), Subject: of(ann)}, &gestaltv1.AgentInteraction{})
	fmt.Fprint(said, h.until("the-secret-turn", succeeded), h.events("the-secret-turn", 0, 0))
	for _, calls := range h.calls() {
		if calls[0].GetRunGrant() != grant {
			t.Errorf("a tool was called with the grant %q", calls[0].GetRunGrant())
		}
	}
	if len(h.calls()) != 2 {
		t.Errorf("calls: %v", h.calls())
	}
	var left []string
	h.await("the database forgets the grant", func() bool {
		left = holders(t, h.path("data"), grant)
		return len(left) == 0
	})
	h.stop()
	if left := holders(t, h.path("data"), grant); len(left) > 0 {
		t.Errorf("the grant is in %v", left)
	}
	if text := said.String(); strings.Contains(text, grant) || !strings.Contains(text, "it does not work with ***") {
		t.Errorf("the host was told %s", text)
	}
	for _, text := range []string{log.String(), h.current().stderr.String()} {
		if strings.Contains(text, grant) || !strings.Contains(text, "level=DEBUG") {
			t.Errorf("the log is\n%s", text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if text := exported.String(); strings.Contains(text, grant) || !strings.Contains(text, "the-secret-turn") {
		t.Errorf("exported: %d bytes, with the grant %v", len(text), strings.Contains(text, grant))
	}
}

// With payloads none, private events have no contents, and there are none that are nothing else; with private all are
// there, as they are.
func TestPayloads(t *testing.T) {
	t.Parallel()
	const script = `answers:
  - when: {after_tool: greet}
    thoughts: ["secret ", thought]
    text: "Done."
  - when: {}
    calls: [{name: greet, args: {name: secret-argument}}]
`
	for _, payloads := range []string{"", "none", "private"} {
		t.Run("payloads "+payloads, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, caller, map[string]string{"calling": script})
			if payloads != "" {
				h.config["payloads"] = payloads
			}
			h.tools = deskTools()
			h.execute = func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
				return &gestaltv1.ExecuteToolResponse{Status: 200, Body: `{"a":"secret-output"}`}, nil
			}
			h.start()
			h.session("s", ann, "")
			h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
			h.until("t", succeeded)
			events := h.events("t", 0, 0)
			checkEvents(t, "t", events)
			plain := []string{"turn.started", "tool.started", "tool.completed", "agent.reasoning.delta", "agent.message.delta", "assistant.completed", "turn.completed"}
			var others []string
			for _, e := range events {
				switch i := slices.Index(plain, e.GetType()); {
				case i < 0 && (payloads != "private" || !strings.HasPrefix(e.GetType(), "agentd.") || e.GetVisibility() != "private" || len(e.GetData().GetFields()) == 0):
					t.Errorf("an event is %v", e)
				case i < 0:
					others = append(others, e.GetType())
				default:
					others = append(others, e.GetType())
				}
				if strings.Contains(e.String(), "secret") && (payloads != "private" || e.GetVisibility() != "private") {
					t.Errorf("a secret is in %v", e)
				}
			}
			if payloads != "private" {
				if diff := cmp.Diff(plain, others); diff != "" {
					t.Errorf("events:\n%s", diff)
				}
				h.stop()
				return
			}
			for _, want := range append(plain, "agentd.agent_started", "agentd.model_call_ended", "agentd.agent_ended") {
				if !slices.Contains(others, want) {
					t.Errorf("there is no %s among %v", want, others)
				}
			}
			for _, e := range events {
				var want *structpb.Value
				switch e.GetType() {
				case "tool.started":
					want = structpb.NewStructValue(object(t, map[string]any{"name": "secret-argument"}))
					if !proto.Equal(e.GetData().GetFields()["arguments"], want) || !proto.Equal(e.GetDisplay().GetInput(), want) {
						t.Errorf("%v", e)
					}
				case "tool.completed":
					want = structpb.NewStructValue(object(t, map[string]any{"a": "secret-output"}))
					if !proto.Equal(e.GetData().GetFields()["output"], want) || !proto.Equal(e.GetDisplay().GetOutput(), want) {
						t.Errorf("%v", e)
					}
				case "agent.reasoning.delta":
					if e.GetData().GetFields()["text"].GetStringValue() != "secret thought" || e.GetDisplay().GetText() != "secret thought" || e.GetDisplay().GetKind() != "reasoning" || e.GetDisplay().GetPhase() != "delta" {
						t.Errorf("%v", e)
					}
				}
			}
			h.stop()
		})
	}
}

// What the host says of a turn reaches the models: instruction, parts, schema and options; the output comes back as an
// object.
func TestPrompt(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents: [{name: a, llm: {model: scripted/says}}, {name: all, parallel: {agents: [{name: x, llm: {model: echo}}, {name: y, llm: {model: echo}}]}}]\n", map[string]string{
		"says": `answers:
  - {when: {user: "number"}, text: '{"value": 17}'}
  - {when: {user: "object"}, text: '{"a": 1}'}
  - {when: {}, text: 'system: {{system}} user: {{last_user}}'}
`,
	})
	h.env["AGENTD_RECORD_TO"] = h.path("calls.jsonl")
	h.start()
	h.session("s", ann, "")
	got := h.prompt(&gestaltv1.CreateTurnRequest{
		TurnId: "t", SessionId: "s",
		Messages: []*gestaltv1.AgentMessage{
			{Role: "system", Text: "Be kind.", Metadata: object(t, map[string]any{"m": true})},
			{Role: "user", Text: "First.", Parts: []*gestaltv1.AgentMessagePart{
				{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_TEXT, Text: "Second."},
				{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_JSON, Json: object(t, map[string]any{"third": 3})},
				{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_IMAGE_REF, ImageRef: &gestaltv1.PartImageRef{Uri: "https://example.com/a.png"}},
			}},
		},
		ModelOptions: object(t, map[string]any{"temperature": 0.25, "max_output_tokens": 77}),
	})
	if len(got.GetMessages()) != 2 || len(got.GetMessages()[1].GetParts()) != 3 || got.GetMessages()[0].GetMetadata() == nil {
		t.Errorf("the messages are %v", got.GetMessages())
	}
	done := h.until("t", succeeded)
	if diff := cmp.Diff(got.GetMessages(), done.GetMessages(), protocmp.Transform()); diff != "" {
		t.Errorf("the messages have changed:\n%s", diff)
	}
	for _, want := range []string{"system: Be kind.", "First.", "Second.", `{"third":3}`} {
		if !strings.Contains(done.GetOutputText(), want) {
			t.Errorf("the model read %q, want %q in it", done.GetOutputText(), want)
		}
	}
	calls, err := os.ReadFile(h.path("calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"https://example.com/a.png", "image/png", "0.25", "77"} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("the model call has no %q: %s", want, calls)
		}
	}
	for text, tc := range map[string]struct{ schema, want map[string]any }{
		"number": {map[string]any{"$ref": "#/$defs/n", "$defs": map[string]any{"n": map[string]any{"type": "integer"}}}, map[string]any{"value": 17}},
		"object": {map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer"}}}, map[string]any{"a": 1}},
	} {
		req := &gestaltv1.CreateTurnRequest{TurnId: text, SessionId: "s", Messages: says(text), ResponseSchema: object(t, tc.schema)}
		h.prompt(req)
		if got := h.until(text, succeeded); !proto.Equal(got.GetStructuredOutput(), object(t, tc.want)) {
			t.Errorf("%s: the output is %v", text, got)
		}
	}
	req := &gestaltv1.CreateTurnRequest{TurnId: "all", SessionId: "s", Model: "all", ResponseSchema: object(t, map[string]any{"type": "object"})}
	h.granted(req)
	if text := h.refused("AgentProvider/CreateTurn", req, codes.InvalidArgument); !strings.Contains(text, "several agents") {
		t.Errorf("refused: %s", text)
	}
	req.ResponseSchema, req.TurnId = nil, "all2"
	req.Model = "echo"
	h.prompt(req)
	if got := h.until("all2", succeeded); got.GetModel() != "echo" || !strings.Contains(got.GetOutputText(), "hi") {
		t.Errorf("with another model: %v", got)
	}
	h.stop()
}

// Tools have names that models can call; those that came with the turn are called by their id; what the file says of a
// tool holds; a host without tools is no reason to fail, one that refuses is.
func TestTools(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": `answers:
  - {when: {after_tool: given}, text: '{{tool_result "given"}}'}
  - {when: {has_tool: given, step: 1}, calls: [{name: a_b_c_2, args: {}}, {name: _1st, args: {}}, {name: given, args: {x: 1}}]}
  - {when: {}, text: "No tools."}
`})
	h.tools = []*gestaltv1.ListedAgentTool{
		{Id: "t1", McpName: "a b/c"}, {Id: "t2", McpName: "a_b_c", Title: "Two"}, {Id: "t3", McpName: "1st"},
		{Id: "t4", McpName: "large", InputSchema: `{"type":"object","description":"` + strings.Repeat("x", 40_000) + `"}`},
		{Id: "t5", McpName: "broken", InputSchema: `[]`}, {Id: "t6", McpName: "long", Description: strings.Repeat("é", 10_000)},
	}
	h.paged = 2
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s", Tools: []*gestaltv1.ResolvedAgentTool{
		{Id: "g1", Name: "given", Description: "d", ParametersSchema: object(t, map[string]any{"type": "object"})},
	}})
	if got := h.until("t", succeeded); got.GetOutputText() != "ok" {
		t.Errorf("output %q", got.GetOutputText())
	}
	var ids []string
	for _, calls := range h.calls() {
		ids = append(ids, calls[0].GetToolId())
	}
	slices.Sort(ids)
	if diff := cmp.Diff([]string{"g1", "t2", "t3"}, ids); diff != "" {
		t.Errorf("executed:\n%s", diff)
	}
	for code, want := range map[codes.Code]gestaltv1.AgentExecutionStatus{
		codes.FailedPrecondition: succeeded, codes.Unimplemented: succeeded, codes.PermissionDenied: failed, codes.Internal: failed,
	} {
		id := "refused-" + code.String()
		h.refuse = status.Error(code, "not for grant-of-"+id)
		h.prompt(&gestaltv1.CreateTurnRequest{TurnId: id, SessionId: "s"})
		got := h.until(id, want)
		if want != failed {
			continue
		}
		if !strings.Contains(got.GetStatusMessage(), "not for ***") || got.GetCompletedAt() == nil {
			t.Errorf("%v: %v", code, got)
		}
		events := h.events(id, 0, 0)
		checkEvents(t, id, events)
		if end := events[len(events)-1]; end.GetType() != "turn.failed" || end.GetData().GetFields()["error"].GetStringValue() != got.GetStatusMessage() {
			t.Errorf("%v: %v", code, end)
		}
	}
	h.stop()
}

// A turn that fails says why, in its status and its last event.
func TestFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t, "name: a\nllm: {model: scripted/limited}\n", map[string]string{
		"limited": `answers: [{when: {}, error: {kind: blocked, message: "no such talk"}}]`,
	})
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	got := h.until("t", failed)
	events := h.events("t", 0, 0)
	checkEvents(t, "t", events)
	end := events[len(events)-1]
	if !strings.Contains(got.GetStatusMessage(), "no such talk") || end.GetType() != "turn.failed" || end.GetData().GetFields()["error"].GetStringValue() != got.GetStatusMessage() ||
		end.GetDisplay().GetPhase() != "failed" {
		t.Errorf("%v\n%v", got, end)
	}
	h.stop()
}

// What the daemon refuses only once the host's tools are known ends the turn, which says why; the next one is served.
func TestRefusedTools(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	good, bad := deskTools(), deskTools()
	bad[0].InputSchema = `{"type":"array"}`
	h.tools = bad
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "bad", SessionId: "s"})
	got := h.until("bad", failed)
	events := h.events("bad", 0, 0)
	end := events[len(events)-1]
	if !strings.Contains(got.GetStatusMessage(), "array") || got.GetCompletedAt() == nil ||
		end.GetType() != "turn.failed" || end.GetData().GetFields()["error"].GetStringValue() != got.GetStatusMessage() {
		t.Errorf("%v\n%v", got, end)
	}
	h.tools = good
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "good", SessionId: "s"})
	h.until("good", succeeded)
	h.stop()
}

// The host may be behind a relay, which asks for a token.
func TestRelay(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = h.server.Serve(l) }()
	h.env["GESTALT_AGENT_HOST_SOCKET"], h.env["GESTALT_AGENT_HOST_SOCKET_TOKEN"] = "tcp://"+l.Addr().String(), "token-of-the-relay"
	var mu sync.Mutex
	var tokens []string
	h.execute = func(ctx context.Context, _ *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, md.Get("x-gestalt-host-service-relay-token")...)
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	}
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	h.until("t", succeeded)
	h.stop()
	if diff := cmp.Diff([]string{"token-of-the-relay", "token-of-the-relay"}, tokens); diff != "" {
		t.Error(diff)
	}
}
