package scripted_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// demo opens the built-in script.
func demo(t *testing.T) model.LLM {
	t.Helper()
	p, err := scripted.New(scripted.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return openAs(t, p, "demo")
}

func TestDemoReportsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greet := &genai.FunctionDeclaration{Name: "greet", ParametersJsonSchema: map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
		}}
		c := newTalk("greet people", &genai.FunctionDeclaration{Name: "transfer_to_agent"}, greet).user("Say hi to Alice")
		resp, deltas := ask(t, demo(t), c)
		if len(deltas) < 5 || !resp.Content.Parts[0].Thought || text(resp) == "" {
			t.Errorf("%d deltas, parts %+v", len(deltas), resp.Content.Parts)
		}
		call := resp.Content.Parts[len(resp.Content.Parts)-1]
		if call.FunctionCall == nil || call.FunctionCall.Name != "greet" || call.PartMetadata[seam.MetaArgs] != `{"name":"Alice"}` {
			t.Fatalf("call %+v, %v", call.FunctionCall, call.PartMetadata)
		}

		resp, _ = ask(t, demo(t), c.model(resp.Content).result("greet", map[string]any{"output": "Hello, Alice!"}))
		if text(resp) != "The tool greet says: Hello, Alice!" {
			t.Errorf("answer %q", text(resp))
		}

		// The next thing the user says starts over.
		resp, _ = ask(t, demo(t), c.model(resp.Content).user("And Bob?"))
		if call := resp.Content.Parts[len(resp.Content.Parts)-1]; call.PartMetadata[seam.MetaArgs] != `{"name":"Bob"}` {
			t.Errorf("second call %+v", call)
		}
	})
}

func TestDemoReportsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, _ := ask(t, demo(t), newTalk("").user("x").result("f", map[string]any{"error": "no luck"}).result("g", map[string]any{"a": 1, "b": 2}))
		if want := `The tool f failed: no luck. The tool g says: {"a":1,"b":2}`; text(resp) != want {
			t.Errorf("answer %q, want %q", text(resp), want)
		}
	})
}

func TestDemoWithoutTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, _ := ask(t, demo(t), newTalk("", &genai.FunctionDeclaration{Name: "exit_loop"}).user("hey"))
		if want := `Hello! You said: "hey". I am a scripted model without a provider behind me, so that is all I can do.`; text(resp) != want {
			t.Errorf("answer %q, want %q", text(resp), want)
		}
	})
}

func TestDemoArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for schema, want := range map[*genai.FunctionDeclaration]string{
			{Name: "none"}: `{}`,
			{Name: "genai schema", Parameters: &genai.Schema{
				Type: genai.TypeObject, Properties: map[string]*genai.Schema{"city": {Type: genai.TypeString}},
			}}: `{"city":"Oslo"}`,
			{Name: "all kinds", ParametersJsonSchema: map[string]any{"properties": map[string]any{
				"s": map[string]any{}, "i": map[string]any{"type": "integer"}, "n": map[string]any{"type": []any{"null", "number"}},
				"b": map[string]any{"type": "boolean"}, "l": map[string]any{"type": "array"}, "z": map[string]any{"type": "null"},
				"e": map[string]any{"enum": []any{"kelvin", "celsius"}}, "d": map[string]any{"type": "string", "default": "dflt"},
				"o": map[string]any{"type": "object", "properties": map[string]any{"x": map[string]any{"type": "string"}}},
			}}}: `{"b":true,"d":"dflt","e":"celsius","i":12,"l":[],"n":12.5,"o":{"x":"Oslo"},"s":"Oslo"}`,
			{Name: "required only", ParametersJsonSchema: map[string]any{
				"type": "object", "required": []any{"a"}, "properties": map[string]any{"a": map[string]any{"type": "string"}, "b": map[string]any{"type": "string"}},
			}}: `{"a":"Oslo"}`,
			{Name: "no schema at all", ParametersJsonSchema: "nonsense"}: `{}`,
		} {
			resp, _ := ask(t, demo(t), newTalk("", schema).user("Is it 012.5 Celsius (or so) in Oslo?"))
			call := resp.Content.Parts[len(resp.Content.Parts)-1]
			if got := call.PartMetadata[seam.MetaArgs]; got != want || call.PartMetadata[seam.MetaArgsError] != nil {
				t.Errorf("%s: arguments %v, want %s", schema.Name, got, want)
			}
		}
	})
}
