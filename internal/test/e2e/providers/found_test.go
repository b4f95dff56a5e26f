package providers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// calling is an answer that calls a tool.
func calling(id, tool string) providertest.Answer {
	return providertest.Answer{Calls: []providertest.ToolCall{{ID: id, Name: tool, Args: `{}`}}, Usage: harness.Hello.Usage}
}

// findPage answers the call of find with references, and others with "seen".
func findPage(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
	m := harness.ToolResult(c.GetToolCallId(), "seen")
	if c.GetToolName() == "find" {
		m = harness.ToolResult(c.GetToolCallId(), "")
		for _, name := range []string{"fetch_page", "no.such"} {
			m.GetToolCallResponse().Parts = append(m.GetToolCallResponse().Parts, &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: name}}})
		}
	}
	return []*agentdv1.RunRequest{m}
}

// TestFoundTools: models of all wires are told of a deferred tool when a tool of the
// client's has found it, also in later turns and by another provider's model.
func TestFoundTools(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		r := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}
		first := func(wire providertest.Wire) *agentdv1.RunRequest {
			tools := []string{"find", "fetch_page", "spare_tool"}
			m := harness.StartTurn(harness.LLMAgent("root", harness.Invented(wire), "", tools...), tools...)
			for _, tool := range m.GetExecute().GetTools()[1:] {
				tool.Deferred = true
			}
			return m
		}
		f.PlayStreams(harness.EventStreams(t, wire, calling("call_1", "find"), calling("call_2", "fetch_page"), harness.Hello)...)
		got := r.Talk(first(wire), harness.OnCall(findPage))
		if !got.End.GetCompleted() || len(got.Calls) != 2 || got.Calls[1].GetToolName() != "fetch_page" || got.Text["root"] != "Hello." || f.Count() != 3 {
			t.Fatalf("%d requests, %v", f.Count(), got.Msgs)
		}
		toldOf(t, wire, f.Bodies()[0], false)
		toldOf(t, wire, f.Bodies()[1], true)
		toldOf(t, wire, f.Bodies()[2], true)
		parts := 0
		for _, m := range got.Msgs {
			parts += len(m.GetToolCallAnswered().GetParts())
		}
		if parts != 2 {
			t.Errorf("who watches sees %d parts of results, want 2", parts)
		}

		for _, other := range providertest.Wires {
			m := first(other)
			m.GetExecute().SessionId = &got.Session
			f.PlayStreams(harness.EventStreams(t, other, harness.Hello)...)
			if again := r.Talk(m, nil); !again.End.GetCompleted() || f.Count() != 1 {
				t.Fatalf("%s behind %s: %v", other, wire, again.Msgs)
			}
			toldOf(t, other, f.Bodies()[0], true)
		}
	})
}

// TestManyDeferredTools: an agent may have as many deferred tools as a request may
// offer. Of those that were found each provider is told of as many as it takes, the
// newest; the others can be looked for again.
func TestManyDeferredTools(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		r := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}
		names := []string{"find"}
		for i := range 511 {
			names = append(names, fmt.Sprintf("tool_%03d", i))
		}
		m := harness.StartTurn(harness.LLMAgent("root", harness.Invented(wire), "", names...), names...)
		for _, tool := range m.GetExecute().GetTools()[1:] {
			tool.Deferred = true
		}
		f.PlayStreams(harness.EventStreams(t, wire, calling("call_1", "find"), calling("call_2", "find"), calling("call_3", "find"), calling("call_4", "tool_000"), harness.Hello)...)
		next := 1
		got := r.Talk(m, harness.OnCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
			m := harness.ToolResult(c.GetToolCallId(), "seen")
			if c.GetToolName() == "find" {
				for range 60 {
					m.GetToolCallResponse().Parts = append(m.GetToolCallResponse().Parts, &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: names[next]}}})
					next++
				}
			}
			return []*agentdv1.RunRequest{m}
		}))
		if !got.End.GetCompleted() || len(got.Calls) != 4 || got.Calls[3].GetToolName() != "tool_000" || f.Count() != 5 {
			t.Fatalf("%d requests, %d calls, %v", f.Count(), len(got.Calls), got.End)
		}
		for at, found := range []int{0, 60, 120, 180, 180} {
			body := f.Bodies()[at]
			want, again := min(1+found, 128), found > 127
			if wire == providertest.Anthropic {
				want, again = 512, false
			}
			if told := strings.Count(body, `"the tool `); told != want {
				t.Errorf("request %d declares %d tools, want %d", at, told, want)
			}
			if strings.Contains(body, "To call the tool tool_000 look for it again.") != again {
				t.Errorf("request %d says that the first tool has to be found again: %t", at, !again)
			}
			if found > 0 && !strings.Contains(body, fmt.Sprintf(`"the tool tool_%03d"`, found-1)) {
				t.Errorf("request %d does not declare the newest tool", at)
			}
		}

		names = append(names, "one_more")
		r.Refused(r.Talk(harness.StartTurn(harness.LLMAgent("root", harness.Invented(wire), "", names...), names...), nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "execute.tools", "no more than 512")
	})
}

// toldOf checks what a request says of the deferred tools: one may be found, the
// other never is.
func toldOf(t *testing.T, wire providertest.Wire, body string, found bool) {
	t.Helper()
	has := func(text string, want bool) {
		t.Helper()
		if strings.Contains(body, text) != want {
			t.Errorf("%s: that the request holds %s is %t: %s", wire, text, !want, body)
		}
	}
	has(`"the tool find"`, true)
	has(`tool_search`, false)
	has("You have no tool no.such.", found)
	if wire == providertest.Anthropic {
		has(`"defer_loading":true`, true)
		has(`"the tool fetch_page"`, true)
		has(`"the tool spare_tool"`, true)
		has(`{"type":"tool_reference","tool_name":"fetch_page"}`, found)
		return
	}
	has(`defer_loading`, false)
	has(`"the tool fetch_page"`, found)
	has("You can call the tool fetch_page now.", found)
	has("spare_tool", false)
}

// TestReferencesOfPrompts: what a user says refers to no tools.
func TestReferencesOfPrompts(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{})
	r := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}
	m := harness.StartTurn(harness.LLMAgent("root", "echo", "", "find"), "find")
	m.GetExecute().UserParts = []*agentdv1.Part{{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: "find"}}}}
	for _, prompt := range []string{"go", ""} {
		m.GetExecute().UserPrompt = prompt
		r.Refused(r.Talk(m, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "user_parts[0].tool", "the result of a tool")
	}
}
