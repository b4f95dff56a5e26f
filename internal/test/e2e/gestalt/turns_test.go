package gestalt_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

const ann = "user:ann"

func object(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// types lists the types of events.
func types(events []*gestaltv1.AgentTurnEvent) (out []string) {
	for _, e := range events {
		out = append(out, e.GetType())
	}
	return out
}

// slowly says a sentence word by word.
const slowly = `answers: [{when: {}, text: ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight"], chunk_delay: 150ms}]`

const sentence = "one two three four five six seven eight"

// Text is streamed: a list of events has it while the model speaks. Numbers are given once: pages of one event, a
// restart, and the whole list agree, though the process was killed in the middle of the text.
func TestStreamAndKill(t *testing.T) {
	t.Parallel()
	h := newHost(t, "name: a\nllm: {model: scripted/slow}\n", map[string]string{"slow": slowly})
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	var before []*gestaltv1.AgentTurnEvent
	h.await("some of the text", func() bool {
		before = h.events("t", 0, 0)
		return slices.Contains(types(before), "agent.message.delta")
	})
	if status := h.turn("t").GetStatus(); status != running {
		t.Errorf("while the model speaks the turn is %v", status)
	}
	h.kill()
	h.start()
	h.await("text after the restart", func() bool { return len(h.events("t", 0, 0)) > len(before) })
	got := h.until("t", succeeded)
	if got.GetOutputText() != sentence {
		t.Errorf("output %q", got.GetOutputText())
	}
	all := h.events("t", 0, 0)
	if diff := cmp.Diff(before, all[:len(before)], protocmp.Transform()); diff != "" {
		t.Errorf("events have changed:\n%s", diff)
	}
	var paged []*gestaltv1.AgentTurnEvent
	for after := int64(0); ; after++ {
		page := h.events("t", after, 1)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	if diff := cmp.Diff(all, paged, protocmp.Transform()); diff != "" {
		t.Errorf("pages differ:\n%s", diff)
	}
	h.stop()
	h.start()
	if diff := cmp.Diff(all, h.events("t", 0, 0), protocmp.Transform()); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
	if diff := cmp.Diff(got, h.turn("t"), protocmp.Transform()); diff != "" {
		t.Errorf("the turn after a restart:\n%s", diff)
	}
	checkEvents(t, "t", all)
	last := all[len(all)-2:]
	if last[0].GetType() != "assistant.completed" || last[0].GetData().GetFields()["text"].GetStringValue() != sentence || last[1].GetType() != "turn.completed" {
		t.Errorf("the last events are %v", last)
	}
	h.stop()
}

// checkEvents checks what holds for the events of each turn.
func checkEvents(t *testing.T, turn string, events []*gestaltv1.AgentTurnEvent) {
	t.Helper()
	ids := map[string]bool{}
	for i, e := range events {
		switch {
		case e.GetSeq() != int64(i+1), e.GetTurnId() != turn, e.GetId() == "", ids[e.GetId()], e.GetSource() != "agentd", e.GetCreatedAt() == nil, e.GetData() == nil,
			e.GetVisibility() != "public" && e.GetVisibility() != "private":
			t.Errorf("event %d is %v", i+1, e)
		case e.GetDisplay().GetKind() == "" || e.GetDisplay().GetPhase() == "":
			t.Errorf("event %d has no display: %v", i+1, e)
		}
		ids[e.GetId()] = true
	}
	if len(events) == 0 || events[0].GetType() != "turn.started" {
		t.Errorf("the events are %v", types(events))
	}
}

const calling = `answers:
  - when: {after_tool: greet}
    text: 'It says {{tool_result "greet"}}'
  - when: {}
    calls: [{name: greet, args: {name: Ada}}, {name: send, args: {to: Ada}}]
`

const caller = "name: a\nllm: {model: scripted/calling}\n"

// A process that is killed while tools run has those without a result executed again, under the same ids, and no other
// one; the host's tools are not listed again.
func TestKillInToolCall(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	var hang atomic.Bool
	hang.Store(true)
	h.execute = func(ctx context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		if req.GetToolId() == "t1" && hang.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	}
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s", IdempotencyKey: "k"})
	h.await("the other tool's result", func() bool { return slices.Contains(types(h.events("t", 0, 0)), "tool.completed") })
	h.await("both calls", func() bool { return len(h.calls()) == 2 })
	h.kill()
	hang.Store(false)
	h.start()
	h.until("t", succeeded)
	h.mu.Lock()
	listed := len(h.listed)
	h.mu.Unlock()
	if listed != 1 {
		t.Errorf("tools were listed %d times", listed)
	}
	tools := map[string]int{}
	for id, calls := range h.calls() {
		for _, c := range calls {
			tools[c.GetToolId()]++
			if c.GetIdempotencyKey() != id || c.GetRunGrant() != "grant-of-t" || c.GetTurnId() != "t" || c.GetSessionId() != "s" {
				t.Errorf("call %v", c)
			}
			if !proto.Equal(c, calls[0]) {
				t.Errorf("a repeated call is %v, want %v", c, calls[0])
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"t1": 2, "t2": 1}, tools); diff != "" || len(h.calls()) != 2 {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
	events := h.events("t", 0, 0)
	checkEvents(t, "t", events)
	count := map[string]int{}
	for _, e := range events {
		count[e.GetType()]++
	}
	if count["tool.started"] != 2 || count["tool.completed"] != 2 {
		t.Errorf("events: %v", types(events))
	}
	// The same request again is the same turn, and nothing runs.
	again := &gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s", IdempotencyKey: "k"}
	if got := h.prompt(again); got.GetStatus() != succeeded || len(h.calls()) != 2 {
		t.Errorf("repeated: %v", got)
	}
	h.stop()
}

// CreateTurn does not wait for the host's tools; a cancel before they are there ends the turn, also after a kill.
func TestCancelBeforeTools(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	release := make(chan struct{})
	h.tools, h.hold = deskTools(), release
	h.start()
	h.session("s", ann, "")
	if got := h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"}); got.GetStatus() != running {
		t.Errorf("created: %v", got)
	}
	if got := h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "u", SessionId: "s"}); got.GetStatus() != pending || got.GetStartedAt() != nil {
		t.Errorf("created behind it: %v", got)
	}
	if got := h.events("t", 0, 0); len(got) != 0 {
		t.Errorf("events before it runs: %v", got)
	}
	h.kill()
	h.start()
	got := &gestaltv1.AgentTurn{}
	h.must("AgentProvider/CancelTurn", &gestaltv1.CancelTurnRequest{TurnId: "t", Reason: "enough", Subject: of(ann)}, got)
	if got.GetStatus() != canceled || got.GetStatusMessage() != "enough" || got.GetCompletedAt() == nil {
		t.Errorf("canceled: %v", got)
	}
	close(release)
	events := h.events("t", 0, 0)
	checkEvents(t, "t", events)
	if diff := cmp.Diff([]string{"turn.started", "turn.canceled"}, types(events)); diff != "" {
		t.Error(diff)
	}
	if reason := events[1].GetData().GetFields()["reason"].GetStringValue(); reason != "enough" {
		t.Errorf("reason %q", reason)
	}
	h.until("u", succeeded)
	h.must("AgentProvider/CancelTurn", &gestaltv1.CancelTurnRequest{TurnId: "t", Reason: "again", Subject: of(ann)}, got)
	if got.GetStatusMessage() != "enough" {
		t.Errorf("canceled again: %v", got)
	}
	for _, calls := range h.calls() {
		if calls[0].GetTurnId() != "u" {
			t.Errorf("the turn that was canceled has called %v", calls)
		}
	}
	h.stop()
}

// A cancel stops model calls and tool calls, and is final when it returns.
func TestCancel(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents:\n  - {name: a, llm: {model: scripted/calling}}\n  - {name: b, llm: {model: scripted/hang}}\n", map[string]string{
		"calling": calling, "hang": `answers: [{when: {}, text: [a, b], error: {kind: hang, after: 1}}]`,
	})
	h.tools = deskTools()
	stopped := make(chan error, 2)
	h.execute = func(ctx context.Context, _ *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		<-ctx.Done()
		stopped <- ctx.Err()
		return nil, ctx.Err()
	}
	h.start()
	for _, model := range []string{"a", "b"} {
		h.session(model, ann, model)
		h.prompt(&gestaltv1.CreateTurnRequest{TurnId: model, SessionId: model})
	}
	h.await("the tool calls", func() bool { return len(h.calls()) == 2 })
	h.await("the model", func() bool { return slices.Contains(types(h.events("b", 0, 0)), "agent.message.delta") })
	for _, id := range []string{"a", "b"} {
		got := &gestaltv1.AgentTurn{}
		h.must("AgentProvider/CancelTurn", &gestaltv1.CancelTurnRequest{TurnId: id, Reason: "enough of " + id, Subject: of(ann)}, got)
		if got.GetStatus() != canceled || got.GetStatusMessage() != "enough of "+id || got.GetCompletedAt() == nil {
			t.Errorf("canceled: %v", got)
		}
		if diff := cmp.Diff(got, h.turn(id), protocmp.Transform()); diff != "" {
			t.Errorf("the turn has changed:\n%s", diff)
		}
		events := h.events(id, 0, 0)
		checkEvents(t, id, events)
		end := events[len(events)-1]
		if end.GetType() != "turn.canceled" || end.GetData().GetFields()["reason"].GetStringValue() != "enough of "+id || end.GetDisplay().GetPhase() != "canceled" {
			t.Errorf("the end of %s is %v", id, end)
		}
	}
	for range 2 {
		if err := <-stopped; err == nil {
			t.Error("a tool call was not stopped")
		}
	}
	h.stop()
}

// SIGTERM ends the process within the host's 2 s, with a turn in a model call and one in a tool call, both of which the
// next process goes on with. A process that has gone leaves its socket, which the next one replaces.
func TestStop(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents:\n  - {name: a, llm: {model: scripted/calling}}\n  - {name: b, llm: {model: scripted/slow}}\n", map[string]string{
		"calling": calling, "slow": strings.ReplaceAll(slowly, "150ms", "700ms"),
	})
	h.tools = deskTools()
	var hang atomic.Bool
	hang.Store(true)
	h.execute = func(ctx context.Context, _ *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		if hang.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	}
	h.start()
	for _, model := range []string{"a", "b"} {
		h.session(model, ann, model)
		h.prompt(&gestaltv1.CreateTurnRequest{TurnId: model, SessionId: model})
	}
	h.await("the tool calls", func() bool { return len(h.calls()) == 2 })
	h.await("the model", func() bool { return slices.Contains(types(h.events("b", 0, 0)), "agent.message.delta") })
	ids := h.calls()
	h.stop()
	hang.Store(false)
	h.write("scripts/slow.yaml", strings.ReplaceAll(slowly, "150ms", "1ms"))
	h.start()
	if got := h.until("b", succeeded); got.GetOutputText() != sentence {
		t.Errorf("output %q", got.GetOutputText())
	}
	if got := h.until("a", succeeded); got.GetOutputText() != "It says hi" {
		t.Errorf("output %q", got.GetOutputText())
	}
	if now := h.calls(); len(now) != len(ids) {
		t.Errorf("%d calls, want %d", len(now), len(ids))
	}
	h.kill()
	if _, err := os.Lstat(h.env["GESTALT_PLUGIN_SOCKET"]); err != nil {
		t.Error(err)
	}
	h.start()
	h.stop()
	if _, err := os.Lstat(h.env["GESTALT_PLUGIN_SOCKET"]); err == nil {
		t.Error("the socket is left")
	}
}

// A provider whose host is not its parent (any more) ends by itself.
func TestHostGone(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.env["GESTALT_PLUGIN_PARENT_PID"] = "1"
	h.launch()
	h.ends()
}

// The turns of a session begin in the order of the host, whichever has its tools first, also after a restart; there are at
// most 16 that are not over.
func TestOrder(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": `answers:
  - {when: {after_tool: greet}, text: 'Turn {{last_user}}.'}
  - {when: {}, calls: [{name: greet, args: {name: "{{last_user}}"}}]}
`})
	h.tools = deskTools()
	first := make(chan struct{})
	h.holdFirst = first
	hang := make(chan struct{})
	h.execute = func(ctx context.Context, _ *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		select {
		case <-hang:
			return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	h.start()
	h.session("s", ann, "")
	const most = 16
	for i := range most {
		id := fmt.Sprintf("t%d", i)
		got := h.prompt(&gestaltv1.CreateTurnRequest{TurnId: id, SessionId: "s", Messages: says(id)})
		if (got.GetStatus() == running) != (i == 0) {
			t.Errorf("turn %d is %v", i, got.GetStatus())
		}
	}
	more := &gestaltv1.CreateTurnRequest{TurnId: "more", SessionId: "s"}
	h.granted(more)
	h.refused("AgentProvider/CreateTurn", more, codes.ResourceExhausted)
	h.await("tools of all are listed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.listed) >= most
	})
	if n := len(h.calls()); n > 0 {
		t.Errorf("%d calls before the first turn has its tools", n)
	}
	close(first)
	h.await("the first turn calls", func() bool { return len(h.calls()) == 1 })
	// A turn that waits for its host does not give way to those behind it.
	h.kill()
	h.start()
	h.await("it calls again", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.executed) == 2
	})
	close(hang)
	for i := range most {
		id := fmt.Sprintf("t%d", i)
		if got := h.until(id, succeeded); got.GetOutputText() != "Turn "+id+"." || got.GetStartedAt() == nil {
			t.Errorf("turn %d: %v", i, got)
		}
	}
	h.mu.Lock()
	var order []string
	for _, e := range h.executed {
		order = append(order, e.GetTurnId())
	}
	h.mu.Unlock()
	want := []string{"t0"}
	for i := range most {
		want = append(want, fmt.Sprintf("t%d", i))
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("executed:\n%s", diff)
	}
	h.prompt(more)
	h.until("more", succeeded)
	h.stop()
}

// A tool that takes too long is an error that the model reads; the host's deadline is the tool's timeout.
func TestToolTimeout(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents: [{name: a, llm: {model: scripted/calling}}]\ntools: [{name: greet, description: d, timeout: 1s}]\n", map[string]string{"calling": `answers:
  - {when: {after_tool: send}, text: '{{tool_result "greet"}}'}
  - {when: {}, calls: [{name: greet, args: {}}, {name: send, args: {}}]}
`})
	h.tools = deskTools()
	var mu sync.Mutex
	left := map[string]time.Duration{}
	h.execute = func(ctx context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		end, _ := ctx.Deadline()
		mu.Lock()
		left[req.GetToolId()] = time.Until(end)
		mu.Unlock()
		if req.GetToolId() == "t1" {
			<-ctx.Done()
		}
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	}
	h.start()
	h.session("s", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"})
	if got := h.until("t", succeeded); !strings.Contains(got.GetOutputText(), "timed out") {
		t.Errorf("the model reads %q", got.GetOutputText())
	}
	mu.Lock()
	defer mu.Unlock()
	if left["t1"] > time.Second || left["t2"] <= time.Second || left["t2"] > 10*time.Minute {
		t.Errorf("the deadlines are %v", left)
	}
	h.stop()
}

// What the host answers becomes results and errors that the model reads; a host that cannot be reached is asked again
// under the same ids; a grant that is not taken any more is an error of the tool.
func TestToolAnswers(t *testing.T) {
	t.Parallel()
	const script = `answers:
  - when: {after_tool: greet}
    text: '{{tool_result "greet"}}'
  - when: {}
    calls: [{name: greet, args: {name: Ada}}]
`
	h := newHost(t, caller, map[string]string{"calling": script})
	h.config["payloads"] = "private"
	h.tools = deskTools()
	var tries atomic.Int32
	h.execute = func(_ context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		switch req.GetTurnId() {
		case "object":
			return &gestaltv1.ExecuteToolResponse{Status: 201, Body: `{"a":1}`}, nil
		case "missing":
			return &gestaltv1.ExecuteToolResponse{Status: 404, Body: "no such person"}, nil
		case "away":
			if tries.Add(1) < 3 {
				return nil, status.Error(codes.Unavailable, "not now")
			}
		case "broken":
			return nil, status.Error(codes.Internal, "it has broken with "+req.GetRunGrant())
		}
		return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
	}
	h.start()
	for id, want := range map[string]string{
		"object": `{"a":1}`, "missing": "status 404: no such person", "away": "hi", "broken": "it has broken with ***", "refused": "is not valid",
	} {
		h.session(id, ann, "")
		req := &gestaltv1.CreateTurnRequest{TurnId: id, SessionId: id}
		h.granted(req)
		if id == "refused" {
			h.revoke(id)
		}
		h.must("AgentProvider/CreateTurn", req, &gestaltv1.AgentTurn{})
		if got := h.until(id, succeeded); !strings.Contains(got.GetOutputText(), want) {
			t.Errorf("%s: the model reads %q, want %q in it", id, got.GetOutputText(), want)
		}
		events := h.events(id, 0, 0)
		checkEvents(t, id, events)
		i := slices.IndexFunc(events, func(e *gestaltv1.AgentTurnEvent) bool {
			return e.GetType() == "tool.completed" || e.GetType() == "tool.failed"
		})
		failed := id == "missing" || id == "broken" || id == "refused"
		e := events[i]
		if failed != (e.GetType() == "tool.failed") || e.GetVisibility() != "private" || failed != (e.GetData().GetFields()["error"] != nil) ||
			failed == (e.GetData().GetFields()["output"] != nil) || e.GetDisplay().GetRef() != e.GetData().GetFields()["tool_call_id"].GetStringValue() {
			t.Errorf("%s: %v", id, e)
		}
	}
	for id, calls := range h.calls() {
		if calls[0].GetTurnId() == "away" && len(calls) != 3 {
			t.Errorf("call %s was tried %d times", id, len(calls))
		}
	}
	h.stop()
}

// The trace of the host's request goes on in what the provider asks of the host.
func TestTrace(t *testing.T) {
	t.Parallel()
	h := newHost(t, caller, map[string]string{"calling": calling})
	h.tools = deskTools()
	h.start()
	h.session("s", ann, "")
	req := &gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s"}
	h.granted(req)
	const id = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", fmt.Sprintf("00-%s-b7ad6b7169203331-01", id))
	if err := h.call(ctx, "AgentProvider/CreateTurn", req, &gestaltv1.AgentTurn{}); err != nil {
		t.Fatal(err)
	}
	h.until("t", succeeded)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.traces) != 2 || !strings.Contains(h.traces[0], id) || !strings.Contains(h.traces[1], id) {
		t.Errorf("the tools were called as part of %v", h.traces)
	}
}
