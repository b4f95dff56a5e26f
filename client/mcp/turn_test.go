//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/client/permit"
)

// answer is a result as it is in the log of a daemon.
type answer struct {
	client.ToolCallAnswered
}

// turn has the scripted model of a daemon call a tool of a server, in a turn of its own.
func turn(ctx context.Context, t *testing.T, s *mcp.Server, tool string, args any) answer {
	t.Helper()
	input, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	if args == nil {
		input = []byte("{}")
	}
	var got *client.ToolCallAnswered
	for event, err := range run(ctx, t, s, tool, input) {
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if a, ok := event.Data.(*client.ToolCallAnswered); ok {
			got = a
		}
	}
	if got == nil {
		t.Fatalf("%s was not called", tool)
	}
	return answer{*got}
}

func run(ctx context.Context, t *testing.T, s *mcp.Server, tool string, input []byte) iter.Seq2[*client.Event, error] {
	t.Helper()
	script := fmt.Sprintf(`{"answers":[{"calls":[{"name":%q,"args":%s}]},{"when":{},"text":"done"}]}`, tool, input)
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"caller": script}})
	c := d.Client(client.WithAttachment("server", s.ToolSet()))
	agent := client.LLM("caller", "scripted/caller", client.AttachedTools("server"))
	return c.Run(ctx, agent, "go")
}

// gives fails the test unless a tool gives a text.
func gives(t *testing.T, s *mcp.Server, tool string, args any, want string) {
	t.Helper()
	if got := turn(t.Context(), t, s, tool, args); got.Output != want || got.Error != "" {
		t.Errorf("%s: got %q and the error %q, want %q", tool, got.Output, got.Error, want)
	}
}

// fails fails the test unless a tool fails with words.
func fails(t *testing.T, s *mcp.Server, tool string, args any, words ...string) {
	t.Helper()
	got := turn(t.Context(), t, s, tool, args)
	for _, word := range words {
		if !strings.Contains(got.Error, word) {
			t.Errorf("%s: got %q and the error %q, want an error with %q", tool, got.Output, got.Error, word)
		}
	}
}

// wires are the ways to a server: by either transport, and with the protocol of today and the one before.
func wires(t *testing.T) map[string]map[string]any {
	t.Helper()
	return map[string]map[string]any{
		"stdio": program(t, "plain"), "stdio legacy": program(t, "legacy"),
		"http": newFront(t, "plain").entry(), "http legacy": newFront(t, "legacy").entry(),
	}
}

// TestTurn: a turn of a daemon calls the tools of real servers; what they give becomes what the table of the package says.
func TestTurn(t *testing.T) {
	for name, entry := range wires(t) {
		t.Run(name, func(t *testing.T) {
			s := build(t, map[string]any{"my-srv": entry}, nil)[0]
			if s.Status != mcp.StatusOK || s.Err != nil {
				t.Fatalf("status %s: %v", s.Status, s.Err)
			}
			gives(t, s, "my_srv_echo", map[string]any{"text": "hello"}, "hello")
			gives(t, s, "my_srv_structured", nil, `{"a":2.5,"b":"<1>"}`)
			gives(t, s, "my_srv_exact", nil, `{"id": 9007199254740993, "a": 1}`)
			gives(t, s, "my_srv_empty", nil, "")
			fails(t, s, "my_srv_fail", nil, "there is no such city")
			got := turn(t.Context(), t, s, "my_srv_image", nil)
			if want := "one\ntwo\n[resource mem://c text/plain c]"; got.Output != want {
				t.Errorf("got %q, want %q", got.Output, want)
			}
			want := []client.Part{
				client.Inline("image/png", []byte("PNG")), client.Inline("audio/wav", []byte("WAV")),
				client.Inline("application/octet-stream", []byte("BLOB")), client.FileURI("application/pdf", "https://example.com/a.pdf"),
			}
			if fmt.Sprint(got.Parts) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got.Parts, want)
			}
			read := turn(t.Context(), t, s, "my_srv_read_resource", map[string]any{"uri": "mem://note"})
			if read.Output != "noted" || len(read.Parts) != 1 || string(read.Parts[0].Data) != "PNG" {
				t.Errorf("read %q and %v", read.Output, read.Parts)
			}
			fails(t, s, "my_srv_read_resource", map[string]any{"uri": "mem://none"}, "not found")
		})
	}
}

// TestSchemas: schemas arrive as they are; what a daemon would refuse is left out, with a notice.
func TestSchemas(t *testing.T) {
	var n notices
	s := build(t, map[string]any{"s": program(t, "plain")}, nil, mcp.OnNotice(n.add))[0]
	for _, left := range []string{"s_bad_ref", "s_too_large"} {
		if strings.Contains(strings.Join(s.Tools, " "), left) {
			t.Errorf("%s is offered", left)
		}
	}
	for _, want := range []string{"bad-ref", "example.com/schema", "too-large", "at most 32768"} {
		if !strings.Contains(n.all(), want) {
			t.Errorf("no notice has %q: %s", want, n.all())
		}
	}
	said := n.all()
	gives(t, s, "s_extend", nil, "extended")
	eventually(t, "the list has changed", func() bool { return strings.Contains(strings.Join(s.State().Tools, " "), "s_extra") })
	if n.all() != said {
		t.Errorf("it is said again: %s", n.all())
	}
	if !strings.Contains(strings.Join(s.Tools, " "), "s_echo") {
		t.Errorf("got %v", s.Tools)
	}
}

// TestGate: each call asks; what is refused never reaches the server, and a read of a resource asks too.
func TestGate(t *testing.T) {
	p := &person{says: permit.Once}
	note := map[string]any{"uri": "mem://note"}
	open := func(gate *permit.Gate) *mcp.Server {
		servers, err := mcp.Build(t.Context(), folder(t, map[string]any{"s": program(t, "plain")}), gate, nil, mcp.OnNotice(func(string) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { servers[0].Close() })
		return servers[0]
	}
	s := open(gateOf(t, "ask", p, "mcp:s_pid"))
	gives(t, s, "s_echo", map[string]any{"text": "x"}, "x")
	if got := turn(t.Context(), t, s, "s_read_resource", note); got.Output != "noted" {
		t.Errorf("read %+v", got)
	}
	log := filepath.Join(t.TempDir(), "log")
	p.says = permit.Deny
	fails(t, s, "s_wait_readonly", map[string]any{"text": log}, "denied")
	if count(log, "called") > 0 {
		t.Error("the server was called though it was denied")
	}
	fails(t, s, "s_pid", nil, "denied")
	want := permit.PromptRequest{Kind: permit.Call, ToolName: "mcp", Detail: "s_echo", PersistTool: "mcp", PersistKey: "s_echo", Access: "n"}
	if len(p.asked) != 3 || p.asked[0] != want {
		t.Errorf("asked %+v, want first %+v", p.asked, want)
	}
	s = open(yolo(t, "mcp:s_e*"))
	fails(t, s, "s_echo", map[string]any{"text": "x"}, "denied")
	gives(t, s, "s_structured", nil, `{"a":2.5,"b":"<1>"}`)
	if _, err := mcp.Build(t.Context(), t.TempDir(), nil, nil); err == nil || !strings.Contains(err.Error(), "gate") {
		t.Errorf("without a gate: %v", err)
	}
}

// TestPlanMode: what a server says of its tools lets none run.
func TestPlanMode(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := build(t, map[string]any{"s": program(t, "plain")}, nil)[0]
	script := fmt.Sprintf(`{"answers":[{"calls":[{"name":"s_wait_readonly","args":{"text":%q}}]},
		{"when":{},"text":"told {{tool_result \"s_wait_readonly\"}}"}]}`, log)
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"m": script}})
	c := d.Client(client.WithAttachment("s", s.ToolSet()))
	got, err := c.Do(t.Context(), client.LLM("m", "scripted/m", client.AttachedTools("s")), "go", client.WithPlanMode())
	if err != nil || !strings.Contains(got.Text, "plan mode: s_wait_readonly (NETWORK) was not run") || count(log, "called") > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestBegun: a call that was under way when its program ended is not made again by the next one, unless it may be.
func TestBegun(t *testing.T) {
	for tool, again := range map[string]bool{"wait": false, "wait_readonly": true} {
		log, journal := filepath.Join(t.TempDir(), "log"), t.TempDir()
		s := build(t, map[string]any{"s": program(t, "plain")}, nil)[0]
		script := fmt.Sprintf(`{"answers":[{"calls":[{"name":"s_%s","args":{"text":%q}}]},{"when":{},"text":"done"}]}`, tool, log)
		d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"m": script}})
		program := func() *client.Client {
			return d.Client(client.WithAttachment("s", s.ToolSet()), client.WithToolJournal(journal))
		}
		ctx, end := context.WithCancel(t.Context())
		go func() {
			eventually(t, "the call is under way", func() bool { return count(log, "called") > 0 })
			end()
		}()
		session := ""
		agent := client.LLM("m", "scripted/m", client.AttachedTools("s"))
		for event, err := range program().Run(ctx, agent, "go", client.WithOnLeave(client.OnLeaveDetach)) {
			if err == nil && event.SessionID != "" {
				session = event.SessionID
			}
		}
		var got *client.ToolCallAnswered
		for event, err := range program().Attach(t.Context(), session) {
			if err != nil {
				t.Fatal(err)
			}
			if a, ok := event.Data.(*client.ToolCallAnswered); ok {
				got = a
			}
		}
		n := count(log, "called")
		if got == nil || again != (got.Output == "done") || again != (n == 2) || !again && !strings.Contains(got.Error, "may have happened") {
			t.Errorf("%s: called %d times, got %+v", tool, n, got)
		}
	}
}

// TestListChanged: the next turn has the tools that the server has now, from the same set.
func TestListChanged(t *testing.T) {
	for name, entry := range wires(t) {
		t.Run(name, func(t *testing.T) {
			s := build(t, map[string]any{"s": entry}, nil)[0]
			gives(t, s, "s_extend", nil, "extended")
			eventually(t, "the list has changed", func() bool {
				tools := strings.Join(s.State().Tools, " ")
				return strings.Contains(tools, "s_extra") && !strings.Contains(tools, "s_empty")
			})
			gives(t, s, "s_extra", nil, "extra")
			if strings.Contains(strings.Join(s.Tools, " "), "s_extra") {
				t.Error("what Build found has changed")
			}
		})
	}
}

// TestMany: more than 100 tools of all servers together are deferred, and no longer when they become fewer.
func TestMany(t *testing.T) {
	deferred := func(s *mcp.Server, tool string) bool {
		script := fmt.Sprintf(`{"answers":[{"when":{"has_tool":%q},"text":"seen"},{"when":{},"text":"hidden"}]}`, tool)
		d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"m": script}})
		find := client.NewToolSet()
		if err := client.AddTool(find, "find", "finds tools", func(context.Context, struct{}) (any, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
		c := d.Client(client.WithAttachment("server", s.ToolSet()), client.WithAttachment("find", find))
		agent := client.LLM("m", "scripted/m", client.AttachedTools("server"), client.AttachedTools("find"))
		got, err := c.Do(t.Context(), agent, "go")
		if err != nil {
			t.Fatal(err)
		}
		return got.Text == "hidden"
	}
	servers := build(t, map[string]any{"few": program(t, "plain"), "many": program(t, "many")}, nil)
	if !deferred(servers[0], "few_echo") || !deferred(servers[1], "many_tool002") {
		t.Error("some are not deferred")
	}
	few := build(t, map[string]any{"few": program(t, "plain")}, nil)
	if deferred(few[0], "few_echo") {
		t.Error("few are deferred")
	}
}

// TestPrompts: prompts are data for commands, and are rendered by the server.
func TestPrompts(t *testing.T) {
	s := build(t, map[string]any{"s": program(t, "plain")}, nil)[0]
	prompts := s.Prompts()
	if len(prompts) != 1 || prompts[0].Name != "greet" || prompts[0].Arguments[0].Name != "who" {
		t.Fatalf("got %v", prompts)
	}
	text, parts, err := s.Prompt(t.Context(), "greet", map[string]string{"who": "Hal"})
	if err != nil || text != "Greet Hal.\n\nassistant: Hello!" || len(parts) != 1 || string(parts[0].Data) != "PNG" {
		t.Errorf("got %q, %v, %v", text, parts, err)
	}
	if _, _, err := s.Prompt(t.Context(), "none", nil); err == nil {
		t.Error("a prompt that is not there was rendered")
	}
}
