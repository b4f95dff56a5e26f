package adkbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// personSchema is an output schema, personText and noPerson are outputs that
	// satisfy it and that do not.
	personSchema = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0}},"required":["name","age"]}`
	personText   = `{"name":"Ann","age":40}`
	noPerson     = `{"name":"Ann","age":-1}`
)

func outputs(schema string) option {
	return func(a *agentdv1.LlmAgent) { a.OutputSchema = &schema }
}

// doublingSchema is a small schema that is a huge one with its references
// followed.
func doublingSchema(levels int, leaf string) string {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":%s}}`, levels, leaf)
	return b.String()
}

func TestOutputSchemaRefused(t *testing.T) {
	for _, tc := range []struct {
		name, schema string
		want         string
	}{
		{"not JSON", `{`, "root/a: output_schema: not JSON"},
		{"boolean", `true`, "root/a: output_schema: not a JSON object but true"},
		{"array", `{"type":"array","items":{"type":"string"}}`, `"type" is "array"; an agent's output is an "object"`},
		{"nullable", `{"type":["object","null"]}`, `"type" must be "object"`},
		{"no type", `{"properties":{}}`, `"type" is missing; an agent's output is an "object"`},
		{"remote", `{"type":"object","properties":{"a":{"$ref":"https://example.com/a"}}}`, "only references within"},
		{"remote in a property with a keyword's name", `{"type":"object","properties":{"default":{"$ref":"file:///etc/passwd"}}}`, "only references within"},
		{"recursive", `{"type":"object","properties":{"a":{"$ref":"#"}}}`, `$ref "#" is recursive`},
		{"recursive on the spot", `{"type":"object","allOf":[{"$ref":"#"}]}`, `$ref "#" is recursive`},
		{"recursive in a property with a keyword's name", `{"type":"object","properties":{"enum":{"$ref":"#/$defs/const"}},"$defs":{"const":{"items":{"$ref":"#/$defs/const"}}}}`, `$ref "#/$defs/const" is recursive`},
		{"doubling", doublingSchema(20, `{"type":"string"}`), "more than 10000 nodes"},
		{"data that doubles", doublingSchema(8, `{"enum":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q","r","s","t","u","v","w","x","y","z","1","2","3","4","5","6","7","8","9","10"]}`), "more than 10000 nodes"},
		{"pattern that repeats", `{"type":"object","properties":{"a":{"pattern":"a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}"}}}`, "more than 10000 nodes"},
		{"property pattern that repeats", `{"type":"object","patternProperties":{"((abc){100}d{700}){1}((abc?){300}d{9}e{800}){1}(a|(bc)+){300}((d|e|f){300}g{400}h{700}i{900}){1}(ab{9}){100}j{900}k{900}":{}}}`, "more than 10000 nodes"},
		{"bad pattern", `{"type":"object","properties":{"a":{"pattern":"("}}}`, "not a valid JSON Schema"},
		{"other draft", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`, "draft-04/schema#\"; known are draft-07"},
		{"no draft", `{"$schema":7,"type":"object"}`, "$schema is"},
		{"too long", `{"type":"object","description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "at most 32768 are allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := check(&script{}, &record.Spec{Agent: seq("root", llm("a", tools(), outputs(tc.schema)))})
			e := fault.As(err)
			if err == nil || e.Code != codeTree || !strings.Contains(e.Message, tc.want) || !strings.HasPrefix(e.Message, "root/a: output_schema: ") || len(e.Message) > 1000 {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	for name, schema := range map[string]string{
		"left out": "", "blank": " ", "shared definition": `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"},"b":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"string"}}}`,
		"draft-07": `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"a":{}},"properties":{"a":{"$ref":"#/definitions/a"}}}`,
		"2020-12":  `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`,
		"patterns": `{"type":"object","properties":{"a":{"pattern":"^[\\p{L} ]{1,255}$"}},"patternProperties":{"^x-":{}}}`,
	} {
		if err := check(&script{}, &record.Spec{Agent: llm("a", tools(), outputs(schema))}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// largeSchema has a limit beyond which float64 does not have every integer.
const largeSchema = `{"type":"object","properties":{"a":{"type":"integer","minimum":9007199254740992}}}`

func TestOutputCheck(t *testing.T) {
	for _, tc := range []struct {
		name, schema, text string
		want               string // part of the error; "" for none
	}{
		{"fits", personSchema, personText, ""},
		{"white space", personSchema, "\n " + personText + " \n", ""},
		{"more keys", personSchema, `{"name":"Ann","age":40,"x":[{}]}`, ""},
		{"digits beyond float64", personSchema, `{"name":"Ann","age":12345678901234567890}`, ""},
		{"empty", personSchema, "", "empty"},
		{"blank", personSchema, " \n", "empty"},
		{"prose", personSchema, "Here you are: " + personText, "not JSON"},
		{"fenced", personSchema, "```json\n" + personText + "\n```", "not JSON"},
		{"cut", personSchema, personText[:10], "not JSON"},
		{"two values", personSchema, personText + personText, "something follows the JSON value"},
		{"prose behind", personSchema, personText + " Done.", "something follows the JSON value: Done."},
		{"value out of range", personSchema, noPerson, "minimum"},
		{"missing key", personSchema, `{"name":"Ann"}`, `"age"`},
		{"null", personSchema, "null", `want "object"`},
		{"an integer that no float64 is", largeSchema, `{"a":9007199254740993}`, ""},
		{"one that rounds to the limit", largeSchema, `{"a":9007199254740991}`, "minimum"},
		{"beyond float64", largeSchema, `{"a":1e400,"b":[-1e999999999]}`, ""},
		{"below float64", largeSchema, `{"a":-1e400}`, "minimum"},
		{"deep", `{"type":"object"}`, `{"a":` + strings.Repeat("[", 29) + strings.Repeat("]", 29) + "}", ""},
		{"too deep", `{"type":"object"}`, `{"a":` + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "}", "30 levels"},
		{"absurdly deep", `{"type":"object"}`, `{"a":` + strings.Repeat("[", 1<<20), "30 levels"},
		{"too many values", `{"type":"object"}`, `{"a":[` + strings.Repeat("0,", 100_000) + "0]}", "100000 values"},
		{"too much for the schema", doublingSchema(8, `{"type":"array"}`), `{"a":[` + strings.Repeat("0,", 50_000) + "0]}", "too many to be checked"},
		{"too long for the schema", doublingSchema(8, `{"type":"string"}`), `{"a":"` + strings.Repeat("x", 100_000) + `"}`, "too many to be checked"},
		{"unique", `{"type":"object","properties":{"a":{"uniqueItems":true}}}`, `{"a":[` + strings.Repeat("0,", 50_000) + "0]}", "uniqueItems"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := readOutputSchema(tc.schema)
			if err != nil {
				t.Fatal(err)
			}
			switch err := o.check(tc.text); {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzOutputCheck(f *testing.F) {
	f.Add(personSchema, personText)
	f.Add(`{"type":"object","properties":{"a":{"anyOf":[{"pattern":"^(a|b)*$"},{"items":{"enum":[1,{"x":[]}]},"uniqueItems":true}]}}}`, `{"a":[1,{"x":[]}]}`)
	f.Add(`{"type":"object","not":{"if":{"const":null},"then":false},"dependentRequired":{"a":["b"]}}`, `{"a":null}`)
	f.Add(`{"type":"object","properties":{"multiple":{"multipleOf":0}},"unevaluatedProperties":false}`, `{"multiple":0,"x":1e308}`)
	f.Fuzz(func(t *testing.T, schema, text string) {
		o, err := readOutputSchema(schema)
		if err != nil || o == nil {
			return
		}
		if err := o.check(text); err != nil {
			if strings.Contains(err.Error(), "cannot be evaluated") {
				t.Errorf("schema %q: output %q makes the checker panic", schema, text)
			}
			return
		}
		if !json.Valid([]byte(text)) || !strings.HasPrefix(strings.TrimSpace(text), "{") {
			t.Errorf("schema %q: output %q counts as an object", schema, text)
		}
	})
}

// TestStructuredResponses runs turns whose agents have output schemas.
func TestStructuredResponses(t *testing.T) {
	person := outputs(personSchema)
	for _, tc := range []struct {
		name  string
		tree  *agentdv1.Agent
		steps map[string][]step
		want  string // the structured output; "" for none
		state map[string]any
		err   []string // parts of the error's message; none for none
		text  map[string]string
	}{
		{
			name: "an answer that fits", tree: llm("root", person, output("who")),
			steps: map[string][]step{"root": {say(personText)}},
			want:  personText, state: map[string]any{"who": personText},
		},
		{
			name: "thoughts do not count", tree: llm("root", person),
			steps: map[string][]step{"root": {{thought: "only thoughts"}, {thought: "hm", text: personText}}},
			want:  personText,
		},
		{
			name: "what is said before the provider runs a tool does not count", tree: llm("root", person, output("who")),
			steps: map[string][]step{"root": {{looks: "I'll look that up.", text: personText}}},
			want:  personText, state: map[string]any{"who": personText}, text: map[string]string{"root": "I'll look that up." + personText},
		},
		{
			name: "nor does JSON", tree: llm("root", person, output("who")),
			steps: map[string][]step{"root": {{looks: `{"name":"Bob","age":1}`, text: personText}}},
			want:  personText, state: map[string]any{"who": personText},
		},
		{
			name: "what is said behind it does", tree: llm("root", person, output("who")),
			steps: map[string][]step{"root": {{looks: personText, text: "Done."}}},
			err:   []string{"not JSON"}, text: map[string]string{"root": personText + "Done."}, state: map[string]any{},
		},
		{
			name: "what is said with calls is not held to it", tree: llm("root", person),
			steps: map[string][]step{"root": {{text: "let me see", calls: use("search").calls}, {text: "or", calls: use("ghost").calls}, say(personText)}},
			want:  personText,
		},
		{
			name: "nor what is said when handing over", tree: llm("root", person, subs(llm("a"))),
			steps: map[string][]step{"root": {{text: "a, please", calls: transfer("a").calls}}, "a": {say("hello")}},
		},
		{
			name: "nor what is said when leaving a loop", tree: seq("root", rounds("l", 3, llm("a", person, builtin("exit_loop"), output("who"))), llm("b", person)),
			steps: map[string][]step{"a": {say(personText), {text: "done", calls: exit().calls}}, "b": {say(`{"name":"Bob","age":1}`)}},
			want:  `{"age":1,"name":"Bob"}`, state: map[string]any{"who": personText},
		},
		{
			name: "the last agent decides", tree: seq("root", llm("a", person), llm("b")),
			steps: map[string][]step{"a": {say(personText)}, "b": {say("hello")}},
		},
		{
			name: "an answer that does not fit", tree: seq("root", llm("a", person, output("who")), llm("b")),
			steps: map[string][]step{"a": {use("search"), say(noPerson)}},
			err:   []string{`root/a: the response of model "a" does not satisfy output_schema: `, "minimum"},
			text:  map[string]string{"root/a": noPerson}, state: map[string]any{},
		},
		{
			name: "an answer that was cut", tree: llm("root", person),
			steps: map[string][]step{"root": {{text: personText[:12], finish: genai.FinishReasonMaxTokens}}},
			err:   []string{"not JSON", "it was cut off"}, text: map[string]string{"root": personText[:12]},
		},
		{
			name: "no answer at all", tree: llm("root", person),
			steps: map[string][]step{"root": {{}}}, err: []string{"it is empty"}, text: map[string]string{},
		},
		{
			name: "a very long misfit", tree: llm("root", outputs(`{"type":"object","properties":{"a":{"type":"integer"}}}`)),
			steps: map[string][]step{"root": {say(`{"a":"` + strings.Repeat("x", 5000) + `"}`)}}, err: []string{"integer"[:0], "…"},
		},
		{
			name: "an answer that is too long", tree: llm("root", outputs(`{"type":"object"}`)),
			steps: map[string][]step{"root": {say(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)}}, err: []string{"it has 1048584 bytes, at most 1048576 are allowed"},
		},
		{
			name: "a sibling of one that fails", tree: par("root", llm("a", person), llm("b", person)),
			steps: map[string][]step{"a": {say("no")}, "b": {{hang: true, text: "{"}}}, err: []string{"root/a: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.steps)
			w.onDisk()
			res := w.run(tc.tree, "go")
			w.checkAll()
			if len(tc.err) == 0 {
				res.ok(t)
			} else if res.err == nil || res.err.GetCode() != codeOutput || res.err.GetRetryable() || res.end.GetCompleted() || len(res.err.GetMessage()) > 1000 {
				t.Fatalf("error %v, end %v", res.err, res.end)
			}
			for _, want := range tc.err {
				if !strings.Contains(res.err.GetMessage(), want) {
					t.Errorf("message %q does not contain %q", res.err.GetMessage(), want)
				}
			}
			got := canonicalJSON(t, res.end.GetStructuredOutput())
			if want := canonicalJSON(t, tc.want); got != want {
				t.Errorf("structured output %s, want %s", got, want)
			}
			if tc.state != nil && compact(res.state) != compact(tc.state) {
				t.Errorf("state %v, want %v", res.state, tc.state)
			}
			if tc.text != nil && compact(res.text) != compact(tc.text) {
				t.Errorf("texts %v, want %v", res.text, tc.text)
			}
			if n := int(res.end.GetUsageSummary().GetLlmCalls()); tc.name != "a sibling of one that fails" && n != len(w.script.requests) {
				t.Errorf("%d model calls counted, %d made", n, len(w.script.requests))
			}
			turn, err := w.manager.Turn(t.Context(), w.session, "")
			if err != nil || turn.Structured != (tc.want != "") || turn.Structured && canonicalJSON(t, turn.Output) != canonicalJSON(t, tc.want) {
				t.Errorf("turn %+v, %v", turn, err)
			}
			continueSession(t, w, seq("next", llm("x"), llm("z")))
		})
	}
}

// TestOutputText finds the output of responses in which the provider ran tools, in all
// forms of such runs.
func TestOutputText(t *testing.T) {
	said := func(text string) *genai.Part { return &genai.Part{Text: text} }
	opaque := &genai.Part{PartMetadata: map[string]any{seam.MetaOpaque: "{}"}}
	for name, tc := range map[string]struct {
		parts []*genai.Part
		want  string
	}{
		"no run":                   {[]*genai.Part{said("a "), said("{}")}, "a {}"},
		"opaque":                   {[]*genai.Part{said("a"), opaque, said("{}")}, "{}"},
		"tool of Gemini's":         {[]*genai.Part{said("a"), {ToolCall: &genai.ToolCall{}}, {ToolResponse: &genai.ToolResponse{}}, said("{}")}, "{}"},
		"code":                     {[]*genai.Part{said("a"), {ExecutableCode: &genai.ExecutableCode{}}, {CodeExecutionResult: &genai.CodeExecutionResult{}}, said("{}")}, "{}"},
		"several runs":             {[]*genai.Part{said("a"), opaque, said("b"), opaque, said("{"), said("}")}, "{}"},
		"thoughts between":         {[]*genai.Part{said("a"), opaque, {Text: "hm", Thought: true}, said("{}")}, "{}"},
		"a run at the end":         {[]*genai.Part{said("a"), opaque, said("{}"), opaque, said(" \n")}, "{}"},
		"a run at the beginning":   {[]*genai.Part{opaque, said("{}")}, "{}"},
		"an opaque thought":        {[]*genai.Part{said("a"), {Thought: true, PartMetadata: opaque.PartMetadata}, said("{}")}, "a{}"},
		"text with opaque data":    {[]*genai.Part{said("a"), {Text: "b", PartMetadata: opaque.PartMetadata}, said("{}")}, "ab{}"},
		"a signature alone":        {[]*genai.Part{said("a"), {ThoughtSignature: []byte("s")}, said("{}")}, "a{}"},
		"JSON around a run":        {[]*genai.Part{said(`{"a":`), opaque, said(`1}`)}, `{"a":1}`},
		"nothing but runs":         {[]*genai.Part{opaque, opaque}, ""},
		"white space around a run": {[]*genai.Part{said(" "), opaque, said("\n{}")}, " \n{}"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := outputText(&genai.Content{Role: genai.RoleModel, Parts: tc.parts}, &meta{LLM: "a|#0"}); got != tc.want {
				t.Errorf("the output is %q, want %q", got, tc.want)
			}
		})
	}
}

// canonicalJSON is a JSON text with its keys in order; "" stays what it is.
func canonicalJSON(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return compact(v)
}

// TestStructuredRequest asks the model for the schema as the client wrote it.
func TestStructuredRequest(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), say(personText)}, "b": {say("hello")}})
	w.run(seq("root", llm("a", outputs(personSchema)), llm("b")), "go").ok(t)
	for _, r := range w.script.seen("a") {
		text, ok := r.raw.Config.ResponseJsonSchema.(json.RawMessage)
		if !ok || string(text) != personSchema || r.raw.Config.ResponseMIMEType != "application/json" {
			t.Errorf("schema %s of type %q", text, r.raw.Config.ResponseMIMEType)
		}
		if slices.Contains(r.tools, modelResultTool) {
			t.Errorf("tools %v", r.tools)
		}
	}
	if cfg := w.script.seen("b")[0].raw.Config; cfg.ResponseJsonSchema != nil || cfg.ResponseMIMEType != "" {
		t.Errorf("an agent without a schema asks for %v", cfg.ResponseJsonSchema)
	}
}

// TestInvalidOutputReplayed ends a turn in the same way wherever its process has died,
// without a second request for what the log holds.
func TestInvalidOutputReplayed(t *testing.T) {
	tree := seq("root", llm("a", outputs(personSchema)), llm("b", outputs(personSchema), output("who")), llm("c"))
	steps := func() map[string][]step {
		return map[string][]step{"a": {use("search"), say(personText)}, "b": {use("fetch", "calc"), say(noPerson)}}
	}
	first := newFakeRun(t, tree, "go")
	want := New(Config{Resolve: (&script{steps: steps()}).Resolve}).runTurn(t.Context(), first)
	if e := fault.As(want); want == nil || e.Code != codeOutput || !strings.HasPrefix(e.Message, "root/b: ") {
		t.Fatalf("error %v", want)
	}
	last := func(f *fakeRun) *record.Event {
		events := f.events(New(Config{}))
		return events[len(events)-1]
	}
	if ev := last(first); ev.Text != noPerson || ev.Structured || len(ev.State) != 0 || ev.Usage == nil {
		t.Fatalf("last event %s", compact(ev))
	}
	for n := 1; n <= len(first.recs); n++ {
		restarted := first.restarted(n)
		// The models continue where the log ends.
		models := &script{steps: steps()}
		for _, ev := range restarted.events(New(Config{})) {
			if ev.MessageID != "" {
				agent := ev.Path[len(ev.Path)-1]
				models.steps[agent] = models.steps[agent][1:]
			}
		}
		err := New(Config{Resolve: models.Resolve}).runTurn(t.Context(), restarted)
		if err == nil || err.Error() != want.Error() {
			t.Fatalf("%d records: error %v, want %v", n, err, want)
		}
		if len(restarted.recs) != len(first.recs) || last(restarted).Text != noPerson {
			t.Fatalf("%d records: %d in the end, want %d", n, len(restarted.recs), len(first.recs))
		}
		for i := range n {
			if !bytes.Equal(restarted.recs[i].Data, first.recs[i].Data) {
				t.Fatalf("%d records: record %d was rewritten", n, i+1)
			}
		}
		for agent, rest := range models.steps {
			if len(rest) > 0 {
				t.Errorf("%d records: %s has %d answers left", n, agent, len(rest))
			}
		}
		restarted.begin("and on")
		models.always = func(string) step { return say(personText) }
		if err := New(Config{Resolve: models.Resolve}).runTurn(t.Context(), restarted); err != nil {
			t.Fatalf("%d records: the next turn: %v", n, err)
		}
	}
}

// TestOutputCheckIsBounded checks about the worst that the bounds let through, and
// sees that more is refused.
func TestOutputCheckIsBounded(t *testing.T) {
	branches := func(kind string) string {
		return strings.Repeat(`{"type":"`+kind+`"},`, 120) + `{"type":"` + kind + `"}`
	}
	for name, c := range map[string]struct{ schema, text, more string }{
		"values":  {`{"type":"object","properties":{"a":{"items":{"anyOf":[` + branches("string") + `]}}}}`, "0,", "0"},
		"bytes":   {`{"type":"object","properties":{"a":{"items":{"anyOf":[` + branches("array") + `]}}}}`, strings.Repeat("x", 9<<10), ""},
		"pattern": {`{"type":"object","properties":{"a":{"items":{"pattern":"^(a?){900}b$"}}}}`, strings.Repeat("a", 9<<10), ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := readOutputSchema(c.schema)
			if err != nil {
				t.Fatal(err)
			}
			output := func(n int) string {
				if c.more != "" {
					return `{"a":[` + strings.Repeat(c.text, n) + c.more + `]}`
				}
				return `{"a":["` + strings.Repeat(c.text, n) + `"]}`
			}
			n := 1
			for {
				err := o.check(output(n))
				if err == nil {
					t.Fatalf("%d times: it fits", n)
				}
				if strings.Contains(err.Error(), "too many to be checked") {
					break
				}
				if n *= 2; n > 1<<17 {
					t.Fatal("there is no bound")
				}
			}
			if n < 4 {
				t.Errorf("%d times are refused", n)
			}
		})
	}
}
