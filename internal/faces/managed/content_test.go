package managed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// A turn that fails says why, and whether another try may help; the next one is served.
func TestFailures(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{
		"invalid": `{answers: [{when: {user: bad}, error: {kind: invalid, message: no such thing}}, {when: {step: 1}, text: fine}]}`,
		"limited": `{answers: [{when: {user: bad}, error: {kind: rate_limited, status: 429, message: too much}}, {when: {step: 1}, text: fine}]}`,
	}})
	for model, want := range map[string][2]string{"invalid": {"unknown_error", "terminal"}, "limited": {"model_rate_limited_error", "exhausted"}} {
		id := d.session("scripted/" + model)
		d.post(id, said("bad"))
		events := d.untilIdle(id, "retries_exhausted")
		e := events[len(events)-2]
		if e.text("type") != "session.error" || e.text("error", "type") != want[0] || e.text("error", "retry_status", "type") != want[1] || e.text("error", "message") == "" {
			t.Errorf("%s: %v of %q", model, e, kinds(events))
		}
		if end := events[len(events)-3]; end.text("type") != "span.model_request_end" || end["is_error"] != true {
			t.Errorf("%s: the model call ended with %v", model, end)
		}
		d.post(id, said("good"))
		if got := lastText(d.untilIdle(id, "end_turn")); got != "fine" {
			t.Errorf("%s: the next turn said %q", model, got)
		}
	}
}

// What was posted is what is listed: texts, images and documents, errors of tools.
func TestContent(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	image := object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "aGk="}}
	link := object{"type": "image", "source": object{"type": "url", "url": "https://example.com/a.png"}}
	text := func(s string) object { return object{"type": "text", "text": s} }
	for _, content := range [][]object{{text("one"), text("two"), image}, {image, text("after it")}, {link}, {text("only")}} {
		posted := d.post(id, object{"type": "user.message", "content": content})[0]
		events := d.untilIdle(id, "requires_action")
		i := slices.IndexFunc(events, func(e object) bool { return e.text("id") == posted.text("id") })
		if a, b, c := fmt.Sprint(events[i]["content"]), fmt.Sprint(posted["content"]), len(events[i]["content"].([]any)); a != b || c != len(content) {
			t.Errorf("posted %v, listed %s, returned %s", content, a, b)
		}
		use := lastStatus(events).at("stop_reason", "event_ids", 0)
		result := object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{text("look"), image}}
		if len(content) == 1 {
			result = object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "is_error": true, "content": []object{text("broken")}}
		}
		got := d.post(id, result)[0]
		if want := len(result["content"].([]object)); len(got["content"].([]any)) != want || got["is_error"] != (want == 1) {
			t.Errorf("posted %v, returned %v", result, got)
		}
		d.untilIdle(id, "end_turn")
	}
}

// A model's question to a person is a custom tool, and what is said is its result.
func TestQuestion(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"asks": `
answers:
  - {when: {after_tool: ask_user}, text: 'so {{tool_result "ask_user"}}'}
  - {when: {step: 1}, calls: [{name: ask_user, args: {question: which one?, choices: [a, b]}}]}
`}})
	call(t, d.native.ApplyAgent, &agentdv1.ApplyAgentRequest{
		Name: "asks", Agent: &agentdv1.Agent{Name: "asks", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/asks", BuiltinTools: []string{"ask_user"}}}},
	})
	id := d.sessionOf("asks")
	d.post(id, said("go"))
	events := d.untilIdle(id, "requires_action")
	use := events[slices.Index(kinds(events), "agent.custom_tool_use")]
	if use["name"] != "ask_user" || use.text("input", "question") != "which one?" || use.text("input", "choices", 1) != "b" {
		t.Errorf("question %v", use)
	}
	result := object{"type": "user.custom_tool_result", "custom_tool_use_id": use["id"], "content": []object{{"type": "text", "text": "b"}}}
	first := d.post(id, result)[0]
	if again := d.post(id, result)[0]; again.text("id") != first.text("id") {
		t.Errorf("the same answer twice: %v and %v", first, again)
	}
	if got := lastText(d.untilIdle(id, "end_turn")); !strings.Contains(got, "b") {
		t.Errorf("the model read %q", got)
	}
}
