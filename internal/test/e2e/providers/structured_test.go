package providers

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// personSchema is what the agents of these tests have to answer.
const personSchema = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`

// TestStructuredOutput asks each provider for JSON that satisfies a schema, in
// its own way where it takes one, else in words, and ends the turn with the value,
// or with an error when the answer does not fit.
func TestStructuredOutput(t *testing.T) {
	for wire, c := range map[providertest.Wire]struct {
		model string
		// native is what a request says that names the schema, and with whether it
		// does so together with tools.
		native    string
		withTools bool
		served    string
	}{
		providertest.Anthropic:       {"claude-sonnet-4-5", `"output_config":{"format":{"type":"json_schema"`, true, "claude-invented"},
		providertest.Gemini:          {"gemini-2.5-flash", `"responseJsonSchema":{`, false, "gemini-invented"},
		providertest.OpenAIChat:      {"invented", `"response_format":{`, false, "gpt-invented"},
		providertest.OpenAIResponses: {"invented", `"text":{"format":{`, false, "gpt-invented"},
	} {
		t.Run(string(wire), func(t *testing.T) {
			f := harness.NewFaulty(t, wire)
			turn := func(session string, tools []string, answers ...providertest.Answer) (*harness.Dialogue, []providertest.Received) {
				t.Helper()
				srv := providertest.NewServer(t, providertest.Invent(wire, answers...), nil)
				f.Use(fakeprovider.Through(srv))
				agent := harness.LLMAgent("root", harness.WireProviders[wire].Describe().Name+"/"+c.model, "", tools...)
				agent.GetLlm().OutputSchema = new(personSchema)
				got := harness.FaultyTurn(t, f.D, agent, session)
				if n := srv.Left(); n != 0 {
					t.Errorf("%d answers were not asked for", n)
				}
				return got, srv.Received()
			}
			asked := func(requests []providertest.Received, native bool) {
				t.Helper()
				for _, r := range requests {
					body := string(r.Body)
					if strings.Contains(body, c.native) != native || strings.Contains(body, "satisfies the JSON Schema below") == native {
						t.Errorf("asked for the schema natively: want %v: %s", native, body)
					}
				}
			}
			look := providertest.Answer{Text: "Let me see.", Calls: []providertest.ToolCall{{Name: "look", Args: `{}`}}, Usage: harness.Hello.Usage}
			ann := providertest.Answer{Text: `{"name": "Ann", "age": 40}`, Usage: harness.Hello.Usage}

			got, requests := turn("", nil, ann)
			asked(requests, true)
			checkPerson(t, got)

			got, requests = turn(got.Session, []string{"look"}, look, ann)
			asked(requests, c.withTools)
			checkPerson(t, got)
			if got.Text["root"] != "Let me see."+ann.Text {
				t.Errorf("text %q", got.Text["root"])
			}
			checkTurn(t, f, got.Session, func(last *agentdv1.Turn) bool {
				return last.GetStatus() == agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED && last.GetOutputText() == ann.Text &&
					last.GetStructuredOutput() == ann.Text &&
					last.GetStopReason() == agentdv1.StopReason_STOP_REASON_STOP && last.GetModel() == c.served
			})

			got, _ = turn(got.Session, nil, providertest.Answer{Text: "```json\n" + ann.Text + "\n```", Usage: harness.Hello.Usage})
			harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID, 1, "root: ", "not JSON")
			if got.End.GetStructuredOutput() != "" || got.End.GetUsageSummary().GetLlmCalls() != 1 || got.Text["root"] == "" {
				t.Errorf("end %v, texts %v", got.End, got.Text)
			}
			checkTurn(t, f, got.Session, func(last *agentdv1.Turn) bool {
				return last.GetErrorCode() == agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID && last.GetStructuredOutput() == "" && last.GetOutputText() != ""
			})

			got, _ = turn(got.Session, nil, ann)
			checkPerson(t, got)
		})
	}
}

// providerRuns are the models, by wire, of providers that run tools: model, tool,
// how the wire writes the answer "text", and what stands in its place where the
// provider has run the tool between two texts, "before" and "behind".
var providerRuns = map[providertest.Wire]struct{ model, tool, text, run string }{
	providertest.Anthropic: {
		"claude-sonnet-4-5", "web_search", `{"text":"text","type":"text"}`, `{"type":"text","text":"before"},
			{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"Ann"}},
			{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},
			{"type":"text","text":"behind"}`,
	},
	providertest.Gemini: {
		"gemini-2.5-flash", "code_execution", `{"text":"text"}`, `{"text":"before"},
			{"executableCode":{"language":"PYTHON","code":"print(40)"}},
			{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"40"}},
			{"text":"behind"}`,
	},
	providertest.OpenAIResponses: {
		"invented", "web_search", `{"content":[{"annotations":[],"text":"text","type":"output_text"}],"id":"msg_1","role":"assistant","status":"completed","type":"message"}`,
		`{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"before","annotations":[]}]},
			{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"Ann"}},
			{"id":"msg_2","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"behind","annotations":[]}]}`,
	},
}

// withRun is an answer of two texts between which the provider has run a tool.
func withRun(t *testing.T, wire providertest.Wire, before, behind string, usage providertest.Usage) providertest.Exchange {
	t.Helper()
	e := providertest.Invent(wire, providertest.Answer{Text: "text", Usage: usage}).Exchanges[0]
	run := strings.NewReplacer(`"before"`, strconv.Quote(before), `"behind"`, strconv.Quote(behind)).Replace(providerRuns[wire].run)
	body := strings.Replace(string(e.JSON), providerRuns[wire].text, run, 1)
	if !strings.Contains(body, run) {
		t.Fatalf("the answer is %s", body)
	}
	e.JSON = json.RawMessage(body)
	return e
}

// TestStructuredOutputBehindRun: what a model says before its provider runs a tool
// is shown, and is no part of the output.
func TestStructuredOutputBehindRun(t *testing.T) {
	const looking, ann = "I'll look that up. ", `{"name": "Ann", "age": 40}`
	for wire, c := range providerRuns {
		t.Run(string(wire), func(t *testing.T) {
			f := harness.NewFaulty(t, wire)
			f.Use(fakeprovider.Through(providertest.NewServer(t, &providertest.Recording{Exchanges: []providertest.Exchange{withRun(t, wire, looking, ann, harness.Hello.Usage)}}, nil)))
			agent := harness.LLMAgent("root", harness.WireProviders[wire].Describe().Name+"/"+c.model, "")
			agent.GetLlm().OutputSchema, agent.GetLlm().BuiltinTools = new(personSchema), []string{c.tool}
			got := harness.FaultyTurn(t, f.D, agent, "")
			checkPerson(t, got)
			if got.Text["root"] != looking+ann {
				t.Errorf("text %q", got.Text["root"])
			}
			checkTurn(t, f, got.Session, func(last *agentdv1.Turn) bool {
				return last.GetOutputText() == ann && last.GetStructuredOutput() == ann
			})
		})
	}
}

// checkPerson checks that a turn ended with the value.
func checkPerson(t *testing.T, got *harness.Dialogue) {
	t.Helper()
	var person map[string]any
	err := json.Unmarshal([]byte(got.End.GetStructuredOutput()), &person)
	if err != nil || !got.End.GetCompleted() || len(person) != 2 || person["name"] != "Ann" || person["age"] != 40.0 {
		t.Errorf("end %v, errors %v", got.End, got.Errors)
	}
}

// checkTurn checks what is known of a session's last turn.
func checkTurn(t *testing.T, f *harness.Faulty, session string, ok func(*agentdv1.Turn) bool) {
	t.Helper()
	c := agentdv1connect.NewSessionServiceClient(f.D.HTTPClient(), f.D.URL)
	got, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: session}))
	if err != nil {
		t.Fatal(err)
	}
	if !ok(got.Msg.GetTurn()) {
		t.Errorf("turn %v", got.Msg.GetTurn())
	}
}

// TestStructuredWithoutNetwork has the models that need no provider: they know
// nothing of schemas, and their answers are held to them all the same.
func TestStructuredWithoutNetwork(t *testing.T) {
	f := harness.NewFaulty(t, providertest.Gemini)
	for prompt, want := range map[string]bool{`{"name":"Ann","age":40}`: true, "hello": false} {
		agent := harness.LLMAgent("root", "echo", "")
		agent.GetLlm().OutputSchema = new(personSchema)
		m := harness.StartTurn(agent)
		m.GetExecute().UserPrompt = prompt
		got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}.Talk(m, nil)
		if want {
			checkPerson(t, got)
			continue
		}
		harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID, 1, "root: ")
	}
}

// TestOutputSchemaRefused refuses a schema before a token is spent.
func TestOutputSchemaRefused(t *testing.T) {
	f := harness.NewFaulty(t, providertest.Gemini)
	agent := harness.LLMAgent("root", "echo", "")
	agent.GetLlm().OutputSchema = new(`{"type":"string"}`)
	r := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}
	r.Refused(r.Talk(harness.StartTurn(agent), nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, `root: output_schema: "type" is "string"`)
}
