package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

type place struct {
	City string `json:"city" jsonschema:"where to look"`
}

type lookup struct {
	Place place    `json:"place"`
	ID    int64    `json:"id"`
	Tags  []string `json:"tags,omitempty"`
	Extra any      `json:"extra,omitempty"`
}

// callTool runs one call of a tool and returns the result that reaches the
// server.
func callTool(t *testing.T, c *client.Client, url chan script, name, input string) *agentdv1.RunRequest_ToolCallResponse {
	t.Helper()
	results := make(chan *agentdv1.RunRequest_ToolCallResponse, 1)
	url <- func(_ context.Context, s *peer) error {
		return steps(
			s.started,
			func() error { return s.call("c-"+t.Name(), name, input) },
			func() error {
				m, err := s.toolResult()
				results <- m
				return err
			},
			func() error { return s.end(true, "") },
		)
	}
	if _, err := c.Do(t.Context(), llm(), "hi"); err != nil {
		t.Fatal(err)
	}
	return <-results
}

// scripted starts a server that takes its script anew for each run.
func scripted(t *testing.T) (string, chan script) {
	t.Helper()
	scripts := make(chan script, 1)
	return serve(t, func(ctx context.Context, s *peer) error { return (<-scripts)(ctx, s) }), scripts
}

func TestArguments(t *testing.T) {
	url, scripts := scripted(t)
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "lookup", "looks up", func(_ context.Context, in lookup) (any, error) { return in, nil }))
	mustAdd(t, client.AddTool(c, "nothing", "takes nothing", func(context.Context, struct{}) (any, error) { return "ok", nil }))
	mustAdd(t, client.AddTool(c, "anything", "takes a map", func(_ context.Context, in map[string]any) (any, error) { return in, nil }))
	mustAdd(t, client.AddRawTool(c, "raw", "raw",
		func(_ context.Context, in json.RawMessage) (any, error) { return in, nil }))
	mustAdd(t, client.AddTool(c, "enum", "takes one of two", func(_ context.Context, in struct {
		V string `json:"v"`
	}) (any, error) {
		return in.V, nil
	}, client.ToolSchema(`{"type":"object","properties":{"v":{"enum":["a","b"]}},"required":["v"]}`)))

	tests := map[string]struct {
		tool, input string
		output      string
		errs        []string // what the error must name
	}{
		"fits":             {tool: "lookup", input: `{"place":{"city":"A"},"id":1}`, output: `{"place":{"city":"A"},"id":1}`},
		"exact numbers":    {tool: "lookup", input: `{"place":{"city":"A"},"id":9007199254740993,"extra":9007199254740995}`, output: `{"place":{"city":"A"},"id":9007199254740993,"extra":9007199254740995}`},
		"null slice":       {tool: "lookup", input: `{"place":{"city":"A"},"id":1,"tags":null}`, output: `{"place":{"city":"A"},"id":1}`},
		"missing property": {tool: "lookup", input: `{"place":{"city":"A"}}`, errs: []string{"id"}},
		"nested type":      {tool: "lookup", input: `{"place":{"city":7},"id":1}`, errs: []string{"city", "string"}},
		"unknown property": {tool: "lookup", input: `{"place":{"city":"A"},"id":1,"idd":2}`, errs: []string{"idd"}},
		"too large":        {tool: "lookup", input: `{"place":{"city":"A"},"id":18446744073709551616}`, errs: []string{"id", "int64"}},
		"no JSON":          {tool: "lookup", input: `{"place":`, errs: []string{"valid JSON", "unexpected end"}},
		"two values":       {tool: "lookup", input: `{} {}`, errs: []string{"valid JSON"}},
		"no object":        {tool: "lookup", input: `[1]`, errs: []string{"object", "[1]"}},
		"left out":         {tool: "nothing", input: ``, output: "ok"},
		"null":             {tool: "nothing", input: ` null `, output: "ok"},
		"map":              {tool: "anything", input: `{"a":12345678901234567890}`, output: `{"a":12345678901234567890}`},
		"raw keeps order":  {tool: "raw", input: `{"b":1, "a":2.50}`, output: `{"b":1, "a":2.50}`},
		"raw no JSON":      {tool: "raw", input: `{`, errs: []string{"valid JSON"}},
		"own schema":       {tool: "enum", input: `{"v":"a"}`, output: "a"},
		"own schema fails": {tool: "enum", input: `{"v":"c"}`, errs: []string{"/v", "enum"}},
		"unregistered":     {tool: "nope", input: `{}`, errs: []string{`"nope"`, "lookup"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := callTool(t, c, scripts, test.tool, test.input)
			if got.GetOutput() != test.output {
				t.Errorf("output: got %q, want %q (error %q)", got.GetOutput(), test.output, got.GetError())
			}
			if (test.errs != nil) != (got.GetError() != "") {
				t.Errorf("error: got %q", got.GetError())
			}
			for _, want := range test.errs {
				if !strings.Contains(got.GetError(), want) {
					t.Errorf("error: want %q in %q", want, got.GetError())
				}
			}
			if got.GetToolName() != test.tool || got.GetSessionId() != session {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestResults(t *testing.T) {
	tests := map[string]struct {
		result any
		err    error
		panics any
		output string
		fails  string
	}{
		"string":      {result: "a<b>", output: "a<b>"},
		"empty":       {result: "", output: ""},
		"bytes":       {result: []byte("raw"), output: "raw"},
		"raw":         {result: json.RawMessage(`{"b":1, "a":2}`), output: `{"b":1, "a":2}`},
		"nil":         {result: nil, output: "null"},
		"struct":      {result: place{City: "<A>"}, output: `{"city":"<A>"}`},
		"list":        {result: []int{1, 2}, output: "[1,2]"},
		"number":      {result: int64(math.MaxInt64), output: "9223372036854775807"},
		"proto":       {result: structpb.NewStringValue("x"), output: `"x"`},
		"broken text": {result: "a\xffb", output: "a\uFFFDb"},
		"channel":     {result: make(chan int), fails: "chan int cannot be encoded as JSON"},
		"not finite":  {result: math.NaN(), fails: "NaN"},
		"error":       {err: errors.New("no such city"), fails: "no such city"},
		"error twice": {result: errors.New("as a result"), fails: "as a result"},
		"mute error":  {err: errors.New(""), fails: "no text"},
		"panic":       {panics: "kaboom", fails: "kaboom"},
		"nil panic":   {panics: (*int)(nil), fails: "panicked"},
		"too large":   {result: strings.Repeat("x", 5000), fails: "at most 4096"},
		"long error":  {err: errors.New(strings.Repeat("é", 20000)), fails: "[cut]"},
	}
	url, scripts := scripted(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limit := 4096
			if test.err != nil {
				limit = 1 << 20
			}
			c := dial(t, url, client.WithMaxMessageBytes(limit))
			mustAdd(t, client.AddTool(c, "it", "does it", func(context.Context, struct{}) (any, error) {
				if test.panics != nil {
					panic(test.panics)
				}
				return test.result, test.err
			}))
			got := callTool(t, c, scripts, "it", "{}")
			if got.GetOutput() != test.output || !strings.Contains(got.GetError(), test.fails) || (test.fails == "") != (got.GetError() == "") {
				t.Errorf("got output %q, error %q", got.GetOutput(), got.GetError())
			}
			if strings.Contains(got.GetError(), ".go:") {
				t.Errorf("the stack reached the model: %q", got.GetError())
			}
		})
	}
}

func TestDeclaredSchema(t *testing.T) {
	type args struct {
		Place place           `json:"place"`
		Tags  []string        `json:"tags,omitempty"`
		Data  []byte          `json:"data,omitempty"`
		Any   json.RawMessage `json:"any,omitempty"`
	}
	heads := make(chan *agentdv1.RunRequest_ExecuteRequest, 1)
	url := serve(t, func(_ context.Context, s *peer) error {
		heads <- s.execute
		return steps(s.started, func() error { return s.end(true, "") })
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "t", "does it", func(context.Context, *args) (any, error) { return nil, nil }))
	mustAdd(t, client.AddTool(c, "unused", "does it", func(context.Context, args) (any, error) { return nil, nil }))
	mustAdd(t, client.AddTool(c, "loop_continue", "asks", func(context.Context, map[string]any) (any, error) { return nil, nil }))
	if _, err := c.Do(t.Context(), llm("t", "t"), "hi"); err != nil {
		t.Fatal(err)
	}
	tools := (<-heads).GetTools()
	if len(tools) != 1 || tools[0].GetName() != "t" || tools[0].GetDescription() != "does it" {
		t.Fatalf("want the tool that the tree names, got %v", tools)
	}
	const want = `{"type":"object","properties":{"place":{"type":"object","properties":{"city":{"type":"string","description":"where to look"}},` +
		`"required":["city"],"additionalProperties":false},"tags":{"type":"array","items":{"type":"string"}},` +
		`"data":{"type":"string","contentEncoding":"base64"},"any":{"description":"any JSON value"}},"required":["place"],"additionalProperties":false}`
	if got := tools[0].GetInputSchema(); got != want {
		t.Errorf("schema:\n got %s\nwant %s", got, want)
	}
	if _, err := c.Do(t.Context(), nested("l", "a", "t"), "hi"); err != nil {
		t.Fatal(err)
	}
	if tools := (<-heads).GetTools(); len(tools) != 2 || tools[0].GetName() != "loop_continue" {
		t.Errorf("a loop must offer loop_continue, got %v", tools)
	}
}

func TestAddToolRefuses(t *testing.T) {
	ok := func(context.Context, struct{}) (any, error) { return nil, nil }
	type cyclic struct{ Next *cyclic }
	tests := map[string]struct {
		add  func(*client.ToolSet) error
		want string
	}{
		"name":        {func(s *client.ToolSet) error { return client.AddTool(s, "a b", "d", ok) }, `"a b"`},
		"long":        {func(s *client.ToolSet) error { return client.AddTool(s, strings.Repeat("a", 65), "d", ok) }, "must match"},
		"description": {func(s *client.ToolSet) error { return client.AddTool(s, "a", "", ok) }, "description"},
		"nil":         {func(s *client.ToolSet) error { return client.AddTool[struct{}, any](s, "a", "d", nil) }, "no function"},
		"twice": {func(s *client.ToolSet) error {
			return errors.Join(client.AddTool(s, "a", "d", ok), client.AddTool(s, "a", "d", ok))
		}, "twice"},
		"string": {func(s *client.ToolSet) error {
			return client.AddTool(s, "a", "d", func(context.Context, string) (any, error) { return nil, nil })
		}, "struct or a map"},
		"cyclic": {func(s *client.ToolSet) error {
			return client.AddTool(s, "a", "d", func(context.Context, cyclic) (any, error) { return nil, nil })
		}, "cycle"},
		"channel": {func(s *client.ToolSet) error {
			return client.AddTool(s, "a", "d", func(context.Context, struct{ C chan int }) (any, error) { return nil, nil })
		}, "unsupported"},
		"own schema": {func(s *client.ToolSet) error { return client.AddTool(s, "a", "d", ok, client.ToolSchema("{")) }, "JSON Schema"},
		"long schema": {func(s *client.ToolSet) error {
			return client.AddTool(s, "a", "d", ok, client.ToolSchema(`{"description":"`+strings.Repeat("x", 40000)+`"}`))
		}, "at most 32768"},
		"raw schema": {func(s *client.ToolSet) error {
			return client.AddRawTool(s, "a", "d",
				func(context.Context, json.RawMessage) (any, error) { return nil, nil }, client.ToolSchema("[]"))
		}, "JSON object"},
		"raw nil": {func(s *client.ToolSet) error { return client.AddRawTool[any](s, "a", "d", nil) }, "no function"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set := client.NewToolSet()
			err := test.add(set)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("want %q, got %v", test.want, err)
			}
			// Whoever ignores it learns it from the run.
			_, err = client.New("http://127.0.0.1:1").Do(t.Context(), llm(), "hi", client.WithTools(set))
			if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q from the run, got %v", test.want, err)
			}
		})
	}
}

// Outside of a call there is none, and a handler that a test calls by itself works.
func TestNoCall(t *testing.T) {
	call := client.CallFrom(t.Context())
	if _, ok := call.State("k"); call != nil || ok || call.ID() != "" || call.SessionID() != "" || call.AgentPath() != nil {
		t.Errorf("a call %v", call)
	}
	if err := call.SetState("k", 1); err == nil {
		t.Error("state was set")
	}
}

func TestState(t *testing.T) {
	results := make(chan *agentdv1.RunRequest_ToolCallResponse, 3)
	url := serve(t, func(_ context.Context, s *peer) error {
		if err := steps(s.started, func() error { return s.state(t, map[string]any{"n": 41.0}) }); err != nil {
			return err
		}
		for _, tool := range []string{"inc", "bad", "fails"} {
			if err := s.call("c-"+tool, tool, "{}"); err != nil {
				return err
			}
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			results <- m
		}
		return s.end(true, "")
	})
	c := dial(t, url)
	mustAdd(t, client.AddTool(c, "inc", "counts", func(ctx context.Context, _ struct{}) (any, error) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		call := client.CallFrom(inner)
		n, ok := call.State("n")
		if _, has := call.State("none"); !ok || has {
			t.Errorf("state: %v %v", ok, has)
		}
		if err := call.SetState("n", n.(float64)+1); err != nil {
			return nil, err
		}
		if call.ID() != "c-inc" || call.SessionID() != session || call.AgentPath()[0] != "root" {
			t.Errorf("call: %s %s %v", call.ID(), call.SessionID(), call.AgentPath())
		}
		own, _ := call.State("n")
		return own, nil
	}))
	mustAdd(t, client.AddTool(c, "bad", "ignores an error", func(ctx context.Context, _ struct{}) (string, error) {
		_ = client.CallFrom(ctx).SetState("big", math.Inf(1))
		return "fine", nil
	}))
	mustAdd(t, client.AddTool(c, "fails", "fails", func(ctx context.Context, _ struct{}) (any, error) {
		if err := client.CallFrom(ctx).SetState("n", 0); err != nil {
			return nil, err
		}
		return nil, errors.New("failed")
	}))
	if _, err := c.Do(t.Context(), llm("inc", "bad", "fails"), "hi"); err != nil {
		t.Fatal(err)
	}
	if m := <-results; m.GetOutput() != "42" || m.GetStateDeltaJson() != `{"n":42}` {
		t.Errorf("inc: %v", m)
	}
	if m := <-results; !strings.Contains(m.GetError(), `"big"`) {
		t.Errorf("bad: %v", m)
	}
	if m := <-results; m.GetError() != "failed" || m.GetStateDeltaJson() != "" {
		t.Errorf("fails: %v", m)
	}
}

func TestAttachments(t *testing.T) {
	set := client.NewToolSet()
	for _, name := range []string{"read", "write"} {
		mustAdd(t, client.AddTool(set, name, "does it", func(context.Context, struct{}) (any, error) { return name, nil }))
	}
	heads := make(chan *agentdv1.RunRequest_ExecuteRequest, 1)
	url := serve(t, func(_ context.Context, s *peer) error {
		heads <- s.execute
		return steps(s.started, func() error { return s.end(true, "") })
	})
	c := dial(t, url, client.WithAttachment("files", set))
	agent := attached("files", "read")
	if _, err := c.Do(t.Context(), agent, "hi"); err != nil {
		t.Fatal(err)
	}
	got := <-heads
	if names := got.GetAgent().GetLlm().GetToolNames(); len(names) != 1 || names[0] != "read" || len(got.GetTools()) != 1 {
		t.Errorf("got %v", got)
	}
	if len(agent.GetLlm().GetToolNames()) != 0 {
		t.Error("the caller's tree was changed")
	}
	if _, err := c.Do(t.Context(), attached("files"), "hi"); err != nil || len((<-heads).GetTools()) != 2 {
		t.Errorf("all tools of an attachment: %v", err)
	}
	if _, err := c.Do(t.Context(), attached("files", "delete"), "hi"); err == nil || !strings.Contains(err.Error(), "read, write") {
		t.Errorf("want the names that exist, got %v", err)
	}
	if _, err := c.Do(t.Context(), nil, "hi", client.WithSessionID("old")); err != nil || len((<-heads).GetTools()) != 0 {
		t.Errorf("without an agent the session's own tools count: %v", err)
	}
	mustAdd(t, client.AddTool(c, "read", "another", func(context.Context, struct{}) (any, error) { return nil, nil }))
	if _, err := c.Do(t.Context(), attached("files"), "hi"); err == nil || !strings.Contains(err.Error(), "also named") {
		t.Errorf("want a clash of names, got %v", err)
	}
}
