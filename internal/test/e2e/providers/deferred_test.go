package providers

import (
	"net/http"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// searchAnswers are answers in which the model looks for a tool, finds it and calls it.
var searchAnswers = map[providertest.Wire]string{
	providertest.Anthropic: `{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2},"content":[
		{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{"query":"look"}},
		{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"look"}]}},
		{"type":"tool_use","id":"toolu_1","name":"look","input":{}}]}`,
	providertest.OpenAIResponses: `{"id":"resp_1","object":"response","status":"completed","model":"m","error":null,"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"output":[
		{"type":"tool_search_call","id":"ts_1","call_id":null,"execution":"server","status":"completed","arguments":{"paths":["look"]}},
		{"type":"tool_search_output","id":"tso_1","call_id":null,"execution":"server","status":"completed","tools":[{"type":"function","name":"look","parameters":{}}]},
		{"type":"function_call","id":"fc_1","call_id":"call_1","name":"look","namespace":"look","arguments":"{}","status":"completed"}]}`,
}

// TestDeferredTools: a tool that the model has to look for is called by it once it
// has found it; the search is told, and goes back to the provider. Providers without
// such a search are refused before a token is spent.
func TestDeferredTools(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		f := harness.NewFaulty(t, wire)
		agent := f.Agent("look")
		agent.GetLlm().BuiltinTools = []string{"tool_search"}
		m := harness.StartTurn(agent, "look")
		m.GetExecute().Tools[0].Deferred = true
		r := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}
		finding, can := searchAnswers[wire]
		if !can {
			r.Refused(r.Talk(m, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, `builtin tool "tool_search": not available`)
			return
		}
		found := providertest.Exchange{Method: http.MethodPost, Wire: wire, Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, JSON: []byte(finding)}
		first, err := found.EventStream()
		if err != nil {
			t.Fatal(err)
		}
		f.PlayStreams(first, harness.EventStreams(t, wire, harness.Hello)[0])
		got := r.Talk(m, harness.AnswerAll("seen"))
		bodies := f.Bodies()
		if !got.End.GetCompleted() || len(got.Calls) != 1 || got.Text["root"] != "Hello." || len(bodies) != 2 {
			t.Fatalf("%d requests, %v", len(bodies), got.Msgs)
		}
		var uses []*agentdv1.ProviderToolUse
		for _, m := range got.Msgs {
			uses = append(uses, m.GetProviderToolsUsed().GetUses()...)
		}
		if len(uses) != 1 || uses[0].GetToolName() != "tool_search" || !strings.Contains(uses[0].GetInput(), "look") || !strings.Contains(uses[0].GetOutput(), "look") {
			t.Errorf("provider tools %v", uses)
		}
		for i, want := range []string{`"defer_loading":true`, `{"type":"tool_search`} {
			if !strings.Contains(bodies[0], want) || !strings.Contains(bodies[1], want) {
				t.Errorf("check %d: %q is not in the requests %s", i, want, bodies)
			}
		}
		back := map[providertest.Wire][]string{
			providertest.Anthropic:       {`"srvtoolu_1"`, `"tool_references"`},
			providertest.OpenAIResponses: {`"tool_search_call"`, `"tool_search_output"`, `"namespace":"look"`},
		}
		for _, want := range back[wire] {
			if strings.Contains(bodies[0], want) || !strings.Contains(bodies[1], want) {
				t.Errorf("%s does not go back, or went out first: %s", want, bodies)
			}
		}
	})
}
