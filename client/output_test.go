package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// person is the response of an agent.
type person struct {
	Name  string   `json:"name" jsonschema:"the full name"`
	Age   int64    `json:"age"`
	Likes []string `json:"likes,omitempty"`
}

func TestSchemaOf(t *testing.T) {
	want := `{"type":"object","properties":{"name":{"type":"string","description":"the full name"},"age":{"type":"integer"},"likes":{"type":"array","items":{"type":"string"}}},"required":["name","age"],"additionalProperties":false}`
	var got, expected any
	text := client.SchemaOf[person]()
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if a, b := mustJSON(t, got), mustJSON(t, expected); a != b {
		t.Errorf("schema %s, want %s", a, b)
	}
	// Models write the properties in the order of the schema.
	if strings.Index(text, `"name"`) > strings.Index(text, `"age"`) {
		t.Errorf("the properties are out of order: %s", text)
	}
	for name, schema := range map[string]func() string{"slice": client.SchemaOf[[]person], "channel": client.SchemaOf[struct{ C chan int }]} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.HasPrefix(p, "client.SchemaOf: ") {
					t.Errorf("%s: panic %q", name, p)
				}
			}()
			t.Errorf("%s: %s", name, schema())
		}()
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStructured runs an agent with an output schema on a real daemon.
func TestStructured(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{"clerk": `answers: [{text: '{"name":"Ann","age":40}'}, {text: 'Ann is 40.'}]`},
	})
	agent := &agentdv1.Agent{Name: "clerk", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
		Model: "scripted/clerk", OutputSchema: new(client.SchemaOf[person]()),
	}}}
	c := d.Client()
	result, err := c.Do(t.Context(), agent, "who?")
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Structured[person](result.Structured)
	if err != nil || got.Name != "Ann" || got.Age != 40 {
		t.Errorf("structured output %+v, %v", got, err)
	}
	if _, err := client.Structured[[]person](result.Structured); err == nil || !strings.Contains(err.Error(), "[]client_test.person") {
		t.Errorf("decoded into another type: %v", err)
	}
	result, err = c.Do(t.Context(), nil, "and in words?", client.WithSessionID(result.SessionID))
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.ErrOutputInvalid || e.Retryable || !strings.Contains(e.Message, "clerk: ") {
		t.Fatalf("error %v", err)
	}
	if result.Text != "Ann is 40." || result.Structured != nil {
		t.Errorf("result %+v", result)
	}
	if _, err := client.Structured[person](result.Structured); err == nil {
		t.Error("there is a structured output")
	}
	if v, err := client.Structured[map[string]any](json.RawMessage("{}")); err != nil || len(v) != 0 {
		t.Errorf("an empty object is %v, %v", v, err)
	}
}

// TestStructuredDigits: the output is the model's own text, of which no number is bent.
func TestStructuredDigits(t *testing.T) {
	const text = `{"id": 9007199254740993, "far": -1e400, "near": 0.1000000000000000055511151231257827}`
	d := agentdtest.Start(t, agentdtest.Config{
		Scripts: map[string]string{"clerk": `answers: [{text: '` + text + `'}]`},
	})
	agent := &agentdv1.Agent{Name: "clerk", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
		Model:        "scripted/clerk",
		OutputSchema: new(`{"type":"object","properties":{"id":{"type":"integer","minimum":9007199254740992}}}`),
	}}}
	result, err := d.Client().Do(t.Context(), agent, "who?")
	if err != nil {
		t.Fatal(err)
	}
	if string(result.Structured) != text {
		t.Errorf("structured output %s, want %s", result.Structured, text)
	}
	exact, err := client.Structured[struct {
		ID  int64       `json:"id"`
		Far json.Number `json:"far"`
	}](result.Structured)
	if err != nil || exact.ID != 9007199254740993 || exact.Far != "-1e400" {
		t.Errorf("decoded %+v, %v", exact, err)
	}
	turn, err := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL).GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: result.SessionID}))
	if err != nil || turn.Msg.GetTurn().GetStructuredOutput() != text {
		t.Errorf("turn %v, %v", turn, err)
	}
}
