package toolschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
)

// TestAlternatives: the properties of all alternatives are the tool's, those are
// required that each of them requires, and the rest is told in words.
func TestAlternatives(t *testing.T) {
	for name, c := range map[string]struct{ schema, want string }{
		"sets of required ones": {
			`{"type":"object","description":"Finds.","properties":{"id":{"type":"string"},"name":{}},"anyOf":[{"required":["id"]},{"required":["name"]}],"additionalProperties":false}`,
			`{"type":"object","properties":{"id":{"type":"string"},"name":{}},"additionalProperties":false,"description":"Finds.\nGive the arguments of at least one of these sets: id; name."}`,
		},
		"actions": {
			`{"oneOf":[{"type":"object","title":"Make","properties":{"do":{"const":"make"},"text":{}},"required":["do","text"]},{"type":"object","properties":{"do":{"const":"drop"},"id":{}},"required":["id","do"]}]}`,
			`{"type":"object","properties":{"do":{"anyOf":[{"const":"make"},{"const":"drop"}]},"text":{},"id":{}},"required":["do"],"description":"Give the arguments of exactly one of these sets: Make (do, text); do, id."}`,
		},
		"all of them": {
			`{"allOf":[{"properties":{"a":{}},"required":["a"]},{"$ref":"#/$defs/more"}],"required":["c","b"],"$defs":{"more":{"properties":{"b":{},"a":{}},"required":["b"]}}}`,
			`{"type":"object","properties":{"a":{},"b":{}},"required":["a","b"],"$defs":{"more":{"properties":{"b":{},"a":{}},"required":["b"]}}}`,
		},
		"a reference":    {`{"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"object","properties":{"x":{"$ref":"#/definitions/a~1b"}}}}}`, `{"type":"object","properties":{"x":{"$ref":"#/definitions/a~1b"}},"definitions":{"a/b":{"type":"object","properties":{"x":{"$ref":"#/definitions/a~1b"}}}}}`},
		"to itself":      {`{"$ref":"#","properties":{"a":{}}}`, `{"type":"object","properties":{"a":{}}}`},
		"or nothing":     {`{"anyOf":[{"type":"object","properties":{"a":{}},"required":["a"]},{"type":"null"},true]}`, `{"type":"object","properties":{"a":{}},"description":"Give the arguments of at least one of these sets: a; none in particular."}`},
		"several types":  {`{"type":["object","null"],"properties":{"a":{}},"required":["a"]}`, `{"type":"object","properties":{"a":{}},"required":["a"]}`},
		"another type":   {`{"type":"string","enum":["a"]}`, `{"type":"object","properties":{},"description":"Must satisfy {\"enum\": [\"a\"]}."}`},
		"no alternative": {`{"properties":{"a":{"oneOf":[{},{}]}},"if":{"anyOf":[]}}`, `{"type":"object","properties":{"a":{"oneOf":[{},{}]}},"if":{"anyOf":[]}}`},
	} {
		if got := string(Parameters(&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(c.schema)})); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestAlternativesAreBounded: what refers to itself, and to others many times over,
// becomes no more than it was.
func TestAlternativesAreBounded(t *testing.T) {
	var defs []string
	for i := range 60 { // written out this would be 2 to the power of 60
		defs = append(defs, fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}],"properties":{"p%d":{}},"required":["p%d"]}`, i, i+1, i+1, i, i))
	}
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf(`{"properties":{"x":{"const":%d}},"required":["x"]}`, i))
	}
	for name, schema := range map[string]string{
		"doubling": `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `}}`,
		"deep":     strings.Repeat(`{"allOf":[`, 500) + `{}` + strings.Repeat(`]}`, 500),
		"many":     `{"oneOf":[` + strings.Join(many, ",") + `]}`,
	} {
		got := Parameters(&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(schema)})
		if !json.Valid(got) || len(got) > 2*len(schema)+maxWords {
			t.Errorf("%s: %d bytes became %d", name, len(schema), len(got))
		}
	}
}

func TestParameters(t *testing.T) {
	const empty = `{"type":"object","properties":{}}`
	for _, c := range []struct {
		decl *genai.FunctionDeclaration
		want string
	}{
		{&genai.FunctionDeclaration{}, empty},
		{&genai.FunctionDeclaration{ParametersJsonSchema: map[string]any{}}, empty},
		{&genai.FunctionDeclaration{ParametersJsonSchema: true}, empty},
		{&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(`{"type":"object"}`)}, `{"properties":{},"type":"object"}`},
		{&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(`{"properties":{"z":{},"a":{}}}`)}, `{"type":"object","properties":{"z":{},"a":{}}}`},
		{
			&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"string","description":"<b>"},"a":{}}}`)},
			`{"type":"object","properties":{"z":{"type":"string","description":"<b>"},"a":{}}}`,
		},
		{
			&genai.FunctionDeclaration{Parameters: &genai.Schema{Type: genai.TypeObject, Properties: map[string]*genai.Schema{
				"agent_name": {Type: genai.TypeString, Enum: []string{"a", "b"}},
				"n":          {Type: genai.TypeInteger, Nullable: new(true), Minimum: new(1.5), MaxLength: new(int64(3))},
				"list":       {Type: genai.TypeArray, Items: &genai.Schema{AnyOf: []*genai.Schema{{Type: genai.TypeString}, {Type: genai.TypeNumber}}}},
			}, Required: []string{"agent_name"}}},
			`{"properties":{"agent_name":{"enum":["a","b"],"type":"string"},"list":{"items":{"anyOf":[{"type":"string"},{"type":"number"}]},"type":"array"},` +
				`"n":{"maxLength":3,"minimum":1.5,"type":["integer","null"]}},"required":["agent_name"],"type":"object"}`,
		},
	} {
		if got := string(Parameters(c.decl)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func FuzzParameters(f *testing.F) {
	for _, s := range []string{`{"anyOf":[{"required":["a"]},{"$ref":"#/$defs/x"}],"$defs":{"x":{"allOf":[{"$ref":"#"},{"$ref":"#/$defs/x"}]}}}`, `{"type":["object","null"],"properties":1}`, `{}`, `{"type":"object"}`, `{ "a" : 1 }`, `[]`, `true`, `{"properties":null}`, ``} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		got := Parameters(&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(schema)})
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(got, &keys); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		for _, key := range []string{"type", "properties"} {
			if _, ok := keys[key]; !ok {
				t.Errorf("%s lacks %q", got, key)
			}
		}
		if second := (&genai.FunctionDeclaration{ParametersJsonSchema: got}); !IsPlain(second) || !slices.Equal(Parameters(second), got) {
			t.Errorf("%s is not what providers take", got)
		}
		if len(got) > 8*len(schema)+maxWords+1000 { // as escapes may take
			t.Errorf("%d bytes became %d", len(schema), len(got))
		}
		var given map[string]json.RawMessage
		if json.Unmarshal([]byte(schema), &given) == nil {
			for key := range maps.Keys(given) {
				if _, ok := keys[key]; !ok && !slices.Contains(append(refused, "required"), key) {
					t.Errorf("%s lost %q", got, key)
				}
			}
		}
	})
}
