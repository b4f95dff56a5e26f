package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// wires are the protocols and forms that existing clients speak.
var wires = map[string][]connect.ClientOption{
	"connect":       nil,
	"connect-json":  {connect.WithProtoJSON()},
	"grpc":          {connect.WithGRPC()},
	"grpc-json":     {connect.WithGRPC(), connect.WithProtoJSON()},
	"grpc-web":      {connect.WithGRPCWeb()},
	"grpc-web-json": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
}

func onEachWire(t *testing.T, test func(t *testing.T, opts []connect.ClientOption)) {
	for name, opts := range wires {
		t.Run(name, func(t *testing.T) { test(t, opts) })
	}
}

// joined is the agent's text without thoughts.
func joined(msgs []*agentdv1.RunResponse) string {
	var b strings.Builder
	for _, m := range msgs {
		if c := m.GetOutputChunk(); c != nil && !c.GetIsThought() {
			b.WriteString(c.GetContent())
		}
	}
	return b.String()
}

func lastOf(t *testing.T, msgs []*agentdv1.RunResponse) *agentdv1.RunResponse_EndResponse {
	t.Helper()
	if len(msgs) == 0 || msgs[len(msgs)-1].GetEnd() == nil {
		t.Fatalf("the last message must be EndResponse: %s", show(msgs))
	}
	if n := slices.IndexFunc(msgs, isEnd); n != len(msgs)-1 {
		t.Fatalf("EndResponse must come once: %s", show(msgs))
	}
	return msgs[len(msgs)-1].GetEnd()
}

func TestTurnOnEachWire(t *testing.T) {
	results := make(chan []record.ToolResult, 1)
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		if err := say(ctx, run, "m1", "he", "llo"); err != nil {
			return err
		}
		res, err := ask(ctx, run, "a", "b")
		if err != nil {
			return err
		}
		results <- res
		return say(ctx, run, "m2", " there")
	}}, server.Config{})
	onEachWire(t, func(t *testing.T, opts []connect.ClientOption) {
		c := f.open(t.Context(), t, opts...)
		req := execute()
		state, err := structpb.NewStruct(map[string]any{"k": "v"})
		if err != nil {
			t.Fatal(err)
		}
		req.GetExecute().InitialState = state
		c.send(req)
		id := c.next().GetExecute().GetSessionId()
		if id == "" {
			t.Fatal("the first message must be ExecuteResponse with the session's id")
		}
		if got := c.next().GetStateUpdate().GetStateDelta().AsMap()["k"]; got != "v" {
			t.Fatalf("the second message must be the state, got k=%v", got)
		}
		before := c.until(isCall)
		if got := c.next().GetToolCall(); got.GetToolCallId() != "b" || got.GetToolInput() != `{"n":1}` || !slices.Equal(got.GetAgentPath(), root) {
			t.Fatalf("the calls of one answer must go out together, got %v", got)
		}
		c.send(toolResult("b", "two"), toolResult("a", "one"))
		after := c.toEnd()
		if got := joined(append(before, after...)); got != "hello there" {
			t.Errorf("text %q, want each piece once", got)
		}
		res := <-results
		if *res[0].Output != "one" || *res[1].Output != "two" {
			t.Errorf("answers %v, want one and two", res)
		}
		e := lastOf(t, after)
		if !e.GetCompleted() || e.GetSessionId() != id || e.GetUsageSummary().GetLlmCalls() != 2 || e.GetUsageSummary().GetTotalUsage().GetTotalTokens() != 10 {
			t.Errorf("end %v, want completed with two calls and ten tokens", e)
		}
	})
}

// ExecuteResponse is the first message, whatever else the client has sent.
func TestExecuteResponseIsFirst(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	for range 30 {
		c := f.run(t)
		c.send(heartbeat(), heartbeat())
		if first := c.next(); first.GetExecute() == nil {
			t.Fatalf("the first message is %v", first)
		}
		c.toEnd()
	}
}

// A client that closes its side at once still receives all of the turn.
func TestHalfClose(t *testing.T) {
	onEachWire(t, func(t *testing.T, opts []connect.ClientOption) {
		outcome := make(chan record.Outcome, 1)
		e := engine{run: func(ctx context.Context, run *session.Run) error {
			if err := say(ctx, run, "m1", "a"); err != nil {
				return err
			}
			res, err := ask(ctx, run, "call")
			if err != nil {
				return err
			}
			outcome <- res[0].Outcome
			return say(ctx, run, "m2", "b")
		}}
		onPipes(t, e, server.Config{}, func(t *testing.T, f *fixture) {
			c := f.run(t, opts...)
			msgs := c.rest()
			if !lastOf(t, msgs).GetCompleted() || joined(msgs) != "ab" {
				t.Errorf("want the whole turn, got %s", show(msgs))
			}
			if got := <-outcome; got != record.Abandoned {
				t.Errorf("a call that nobody can answer is %q, want abandoned", got)
			}
		})
	})
}

func TestRefusedStreams(t *testing.T) {
	ran := make(chan struct{}, 100)
	f := serve(t, engine{
		check: func(spec *record.Spec, _ session.Keys) error {
			if spec.Agent.GetName() == "bad" {
				return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "agent \"bad\": no such name \xff")
			}
			return nil
		},
		run: func(context.Context, *session.Run) error { ran <- struct{}{}; return nil },
	}, server.Config{})
	change := func(edit func(*agentdv1.RunRequest_ExecuteRequest)) *agentdv1.RunRequest {
		m := execute()
		edit(m.GetExecute())
		return m
	}
	id := "nobody"
	long := strings.Repeat("x", 200)
	cases := map[string]struct {
		msg  *agentdv1.RunRequest
		code agentdv1.ErrorCode
		text []string
	}{
		"heartbeat first":   {heartbeat(), codeInvalid, []string{"ExecuteRequest", "HeartbeatRequest"}},
		"answer first":      {toolResult("a", "x"), codeInvalid, []string{"ToolCallResponse"}},
		"end first":         {end("x"), codeInvalid, []string{"EndRequest"}},
		"cancel first":      {cancelTurn(), codeInvalid, []string{"CancelRequest"}},
		"empty message":     {&agentdv1.RunRequest{}, codeInvalid, []string{"request"}},
		"bad tool name":     {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.Tools[0].Name = "no spaces" }), codeTree, []string{"execute.tools[0].name", `"no spaces"`}},
		"no description":    {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.Tools[0].Description = "" }), codeTree, []string{"execute.tools[0].description"}},
		"long session id":   {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.SessionId = &long }), codeInvalid, []string{"execute.session_id", "200 bytes"}},
		"unknown session":   {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.SessionId = &id }), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, []string{"nobody"}},
		"no agent":          {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.Agent = nil }), codeInvalid, []string{"agent"}},
		"no prompt":         {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.UserPrompt = " " }), codeInvalid, []string{"prompt"}},
		"refused by engine": {change(func(e *agentdv1.RunRequest_ExecuteRequest) { e.Agent.Name = "bad" }), codeTree, []string{"bad", "\uFFFD"}},
		"mcp without a name": {change(func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.Agent.GetLlm().McpAttachments = []*agentdv1.McpAttachment{{}}
		}), codeTree, []string{"execute.agent.llm.mcp_attachments[0].mcp_name"}},
		"infinite state": {change(func(e *agentdv1.RunRequest_ExecuteRequest) {
			e.InitialState = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(inf)}})}}
		}), codeInvalid, []string{`initial_state["k"][0]`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for wire, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
				c := f.open(t.Context(), t, opts...)
				c.send(tc.msg)
				msgs := c.rest()
				if len(msgs) != 1 || msgs[0].GetError() == nil {
					t.Fatalf("%s: want one ErrorResponse and a clean end, got %s", wire, show(msgs))
				}
				e := msgs[0].GetError()
				if e.GetCode() != tc.code {
					t.Errorf("%s: code %v, want %v: %s", wire, e.GetCode(), tc.code, e.GetMessage())
				}
				for _, want := range tc.text {
					if !strings.Contains(e.GetMessage(), want) {
						t.Errorf("%s: message %q does not name %q", wire, e.GetMessage(), want)
					}
				}
			}
		})
	}
	if len(ran) > 0 {
		t.Error("a refused request has run")
	}
	c := f.run(t)
	if !lastOf(t, c.toEnd()).GetCompleted() {
		t.Error("the next call must be served")
	}
}

func TestMessagesOfATurn(t *testing.T) {
	results := make(chan record.ToolResult, 1)
	one := engine{run: func(ctx context.Context, run *session.Run) error {
		res, err := ask(ctx, run, "call")
		if err != nil {
			return err
		}
		results <- res[0]
		return nil
	}}
	f := serve(t, one, server.Config{MaxRefused: 5})
	start := func(t *testing.T) *conversation {
		c := f.run(t)
		c.until(isCall)
		return c
	}
	refused := func(t *testing.T, c *conversation, text string) {
		t.Helper()
		e := c.next().GetError()
		if e.GetCode() != codeInvalid || !strings.Contains(e.GetMessage(), text) {
			t.Errorf("got %v, want INVALID_REQUEST with %q", e, text)
		}
	}
	t.Run("heartbeat", func(t *testing.T) {
		c := start(t)
		c.send(heartbeat())
		if c.next().GetHeartbeat().GetSessionId() == "" {
			t.Error("want a HeartbeatResponse with the session's id")
		}
		c.send(toolResult("call", "x"))
		if got := <-results; !lastOf(t, c.toEnd()).GetCompleted() || *got.Output != "x" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("foreign session", func(t *testing.T) {
		c := start(t)
		m := toolResult("call", "x")
		m.GetToolCallResponse().SessionId = "other"
		c.send(m)
		refused(t, c, `"other"`)
		c.send(toolResult("call", "y"))
		if got := <-results; !lastOf(t, c.toEnd()).GetCompleted() || *got.Output != "y" {
			t.Errorf("got %v, want the second answer", got)
		}
	})
	t.Run("unknown call", func(t *testing.T) {
		c := start(t)
		c.send(toolResult("nothing", "x"))
		refused(t, c, `"nothing"`)
		c.send(cancelCall("nothing"))
		refused(t, c, `"nothing"`)
		c.send(toolResult("call", "x"))
		<-results
		if !lastOf(t, c.toEnd()).GetCompleted() {
			t.Error("the turn must go on")
		}
	})
	t.Run("empty answer", func(t *testing.T) {
		c := start(t)
		c.send(toolFailure("call"))
		if got := <-results; !strings.Contains(got.Error, "neither output nor error") {
			t.Errorf("got %v, want a tool error that says so", got)
		}
		lastOf(t, c.toEnd())
	})
	t.Run("answer without id", func(t *testing.T) {
		c := start(t)
		c.send(toolResult("", "x"))
		refused(t, c, "tool_call_response.tool_call_id")
		c.send(toolResult("call", "x"))
		<-results
		lastOf(t, c.toEnd())
	})
	t.Run("cancel one call", func(t *testing.T) {
		c := start(t)
		c.send(cancelCall("call"))
		if got := <-results; got.Outcome != record.Cancelled {
			t.Errorf("outcome %q, want cancelled", got.Outcome)
		}
		msgs := c.toEnd()
		if !lastOf(t, msgs).GetCompleted() || !slices.ContainsFunc(msgs, func(m *agentdv1.RunResponse) bool { return m.GetToolCallCanceled().GetToolCallId() == "call" }) {
			t.Errorf("want ToolCancelled and a completed turn, got %s", show(msgs))
		}
	})
	t.Run("cancel the turn", func(t *testing.T) {
		c := start(t)
		c.send(cancelTurn())
		if e := lastOf(t, c.toEnd()); e.GetCompleted() || e.Reason == nil {
			t.Errorf("got %v, want a reason and not completed", e)
		}
	})
	t.Run("end", func(t *testing.T) {
		c := start(t)
		c.send(end("enough"))
		if e := lastOf(t, c.toEnd()); e.GetCompleted() || e.GetReason() != "enough" {
			t.Errorf("got %v, want the reason echoed", e)
		}
	})
	t.Run("second execute", func(t *testing.T) {
		c := start(t)
		c.send(execute(), heartbeat(), end("enough"))
		var refused []*agentdv1.RunResponse
		refused = append(refused, c.until(isError)...)
		if e := refused[len(refused)-1].GetError(); e.GetCode() != codeInvalid || !strings.Contains(e.GetMessage(), "second ExecuteRequest") {
			t.Errorf("refused with %v", e)
		}
		c.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
		if e := lastOf(t, c.toEnd()); e.GetReason() != "enough" {
			t.Errorf("got %v, want the turn to go on until it is ended", e)
		}
	})
	t.Run("too many refused", func(t *testing.T) {
		c := start(t)
		for range 5 {
			c.send(toolResult("nothing", "x"))
		}
		msgs := c.rest()
		endedEarly(t, msgs, codeLimit, "5 messages in a row")
	})
}

// The deadline that a client sends along ends its stream, as an error of the
// application.
func TestClientDeadline(t *testing.T) {
	onPipes(t, engine{run: hold}, server.Config{}, func(t *testing.T, f *fixture) {
		start := time.Now()
		c := f.open(t.Context(), t)
		c.RequestHeader().Set("Connect-Timeout-Ms", "200")
		c.send(execute())
		first := c.next()
		endedEarly(t, append(c.until(isError), c.rest()...), codeTimeout, "deadline")
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("took %v, want 200ms", took)
		}
		f.stillRuns(t, first)
	})
}

// Large state goes out in pieces that any client accepts: a session whose state
// has grown would be of no use otherwise. With a number that a float64 bends it goes out
// as text too, and a value that is too large for both comes twice.
func TestLargeState(t *testing.T) {
	for name, number := range map[string]json.Number{"a Struct": "1", "text too": "9007199254740993"} {
		t.Run(name, func(t *testing.T) {
			want := map[string]any{"number": number}
			for i := range 28 {
				want[fmt.Sprintf("k%d", i)] = strings.Repeat("x", 100<<10)
			}
			want["large"] = strings.Repeat("y", 1<<20)
			f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
				return emit(ctx, run, &record.Event{Path: root, State: want})
			}}, server.Config{})
			got, texts, alone, pieces := map[string]any{}, map[string]any{}, 0, 0
			for _, m := range f.run(t).toEnd() {
				u := m.GetStateUpdate()
				if u == nil {
					continue
				}
				pieces++
				if n := proto.Size(u); n > 1<<20 && (len(u.GetStateDelta().GetFields()) > 1 || n > 1<<20+1<<10) {
					t.Errorf("a state update of %d bytes", n)
				}
				maps.Copy(got, u.GetStateDelta().AsMap())
				if u.GetStateDeltaJson() == "" {
					if alone++; number != "1" && m.GetSeq() != 0 {
						t.Error("a piece has the position of what is behind it")
					}
					continue
				}
				piece := map[string]any{}
				dec := json.NewDecoder(strings.NewReader(u.GetStateDeltaJson()))
				dec.UseNumber()
				if err := dec.Decode(&piece); err != nil {
					t.Error(err)
				}
				maps.Copy(texts, piece)
			}
			sent := maps.Clone(want)
			sent["number"], _ = number.Float64()
			wantTexts, wantAlone := want, 1
			if number == "1" {
				wantTexts, wantAlone = nil, pieces
			}
			if !maps.Equal(got, sent) || !maps.Equal(texts, wantTexts) || alone != wantAlone {
				t.Errorf("got %d and %d keys, want %d and %d, or other values; %d messages without the text, want %d",
					len(got), len(texts), len(sent), len(wantTexts), alone, wantAlone)
			}
		})
	}
}

// Large text goes out in pieces that any client accepts.
func TestLargeText(t *testing.T) {
	text := strings.Repeat("日本", 1<<19) // 3 MiB
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		return emit(ctx, run, &record.Event{MessageID: "m", Path: root, Text: text, Last: true})
	}}, server.Config{})
	msgs := f.run(t).toEnd()
	if joined(msgs) != text {
		t.Error("the text is not the model's")
	}
	var last, whole int
	for _, m := range msgs {
		if m.GetTurnId() == "" {
			t.Errorf("a message without turn: %.200v", m)
		}
		if isText(m) && m.GetOutputChunk().GetContent() != "" && m.GetSeq() != 0 {
			whole++
		}
		if n := len(m.GetOutputChunk().GetContent()); n > 1<<20 {
			t.Errorf("a chunk of %d bytes", n)
		}
		if m.GetOutputChunk().GetLast() {
			last++
		}
	}
	if last != 1 {
		t.Errorf("last is set %d times, want once", last)
	}
	if whole != 1 {
		t.Errorf("%d pieces have a seq, want the last one alone", whole)
	}
}

// A caller's keys reach the engine and nothing else.
func TestKeys(t *testing.T) {
	got := make(chan session.Keys, 1)
	f := serve(t, engine{
		check: func(_ *record.Spec, keys session.Keys) error { got <- keys; return nil },
		run:   func(ctx context.Context, run *session.Run) error { panic("engine fault") },
	}, server.Config{})
	c := f.open(t.Context(), t)
	c.RequestHeader().Set("X-Agentd-Gemini-Api-Key", "canary-gemini")
	c.RequestHeader().Set("X-Agentd-Openai-Api-Key", " canary-openai ")
	c.RequestHeader().Set("X-Agentd-Anthropic-Api-Key", "")
	c.RequestHeader().Set("X-Agentd-Acme-Api-Key", "canary-acme")
	m := execute()
	m.GetExecute().UserPrompt = "canary-prompt"
	c.send(m)
	keys := <-got
	if len(keys) != 3 || keys["acme"] != "canary-acme" || keys["gemini"] != "canary-gemini" || keys["openai"] != "canary-openai" {
		t.Errorf("got %d keys", len(keys))
	}
	c.send(toolResult("canary-call", "canary-output"))
	msgs := c.toEnd()
	if lastOf(t, msgs).GetCompleted() {
		t.Error("a panic is no completion")
	}
	f.stop()
	for _, secret := range []string{"canary-gemini", "canary-openai", "canary-acme", "canary-prompt", "canary-output"} {
		if bytes.Contains(f.log.Bytes(), []byte(secret)) {
			t.Errorf("the log holds %s", secret)
		}
	}
	if !bytes.Contains(f.log.Bytes(), []byte("engine fault")) {
		t.Error("the log must hold the fault")
	}
}
