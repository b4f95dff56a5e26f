package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"
)

// TestSchemas translates schemas, or says that it cannot.
func TestSchemas(t *testing.T) {
	optional := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"p%d":{"type":"string"},`, i)
		}
		return `{"type":"object","properties":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	for _, c := range []struct {
		name, schema string
		want         string // "" for not at all
	}{
		{
			"closed, in its own order",
			`{"type":"object","properties":{"z":{"type":"string"},"a":{"type":["integer","null"]}},"required":["z","a"]}`,
			`{"type":"object","properties":{"z":{"type":"string"},"a":{"type":["integer","null"]}},"required":["z","a"],"additionalProperties":false}`,
		},
		{
			"bounds are told",
			`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"n":{"type":"integer","minimum":0,"description":"How <many>","maximum":9},"l":{"type":"array","items":{"type":"string","format":"uri"},"minItems":1},"m":{"type":"array","items":{"type":"string","format":"color"},"minItems":2}},"additionalProperties":false}`,
			`{"type":"object","properties":{"n":{"type":"integer","description":"How <many>\nMust satisfy {\"minimum\":0,\"maximum\":9}"},"l":{"type":"array","items":{"type":"string","format":"uri"},"minItems":1},"m":{"type":"array","items":{"type":"string","description":"Must satisfy {\"format\":\"color\"}"},"description":"Must satisfy {\"minItems\":2}"}},"additionalProperties":false}`,
		},
		{
			"references, alternatives, literals",
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x","description":"dropped"},"b":{"oneOf":[{"const":1},{"enum":["u","v",null]},{"type":"null"}]}},"$defs":{"x":{"type":"object","properties":{"y":{"type":"boolean"}},"required":["y"]}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":{"anyOf":[{"const":1},{"enum":["u","v",null]},{"type":"null"}]}},"$defs":{"x":{"type":"object","properties":{"y":{"type":"boolean"}},"required":["y"],"additionalProperties":false}},"additionalProperties":false}`,
		},
		{"as many optional properties as may be", optional(24), strings.TrimSuffix(optional(24), "}") + `,"additionalProperties":false}`},
		{"one more", optional(25), ""},
		{"many types", `{"type":"object","properties":{` + strings.Repeat(`"a":{"type":["string","null"]},`, 16) + `"b":{"anyOf":[{"type":"null"}]}},"required":["a","b"]}`, ""},
		{"open object", `{"type":"object"}`, ""},
		{"object without properties", `{"type":"object","properties":{}}`, ""},
		{"map", `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`, ""},
		{"explicitly open", `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}`, ""},
		{"any value", `{"type":"object","properties":{"a":{}}}`, ""},
		{"true", `{"type":"object","properties":{"a":true}}`, ""},
		{"intersection", `{"type":"object","allOf":[{"type":"object","properties":{"a":{"type":"string"}}}]}`, ""},
		{"object with alternatives", `{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"type":"object","properties":{"b":{"type":"string"}}}]}`, ""},
		{"two kinds of alternatives", `{"type":"object","properties":{"a":{"anyOf":[{"type":"null"}],"oneOf":[{"type":"null"}]}}}`, ""},
		{"condition", `{"type":"object","properties":{"a":{"type":"string"}},"if":{"required":["a"]},"then":{}}`, ""},
		{"enum of objects", `{"type":"object","properties":{"a":{"enum":[{"b":1}]}}}`, ""},
		{"tuple", `{"type":"object","properties":{"a":{"type":"array","items":[{"type":"string"}]}}}`, ""},
		{"no list", `{"type":"object","properties":{"a":{"anyOf":{}}}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(nativeSchema("claude-sonnet-4-5", structured(c.schema))); got != c.want {
				t.Errorf("schema\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// structured asks for a JSON answer.
func structured(schema string, tools ...*genai.Tool) *genai.GenerateContentConfig {
	return &genai.GenerateContentConfig{Tools: tools, ResponseMIMEType: "application/json", ResponseJsonSchema: json.RawMessage(schema)}
}

// TestNativeSchemas sends schemas natively to whom it can.
func TestNativeSchemas(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}}}`
	functions := &genai.Tool{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}}}
	for _, c := range []struct {
		model string
		tools []*genai.Tool
		want  bool
	}{
		{"claude-3-5-sonnet-latest", nil, false},
		{"claude-opus-4-1", nil, false},
		{"claude-sonnet-4-20250514", nil, false},
		{"claude-sonnet-4-5", []*genai.Tool{functions}, true},
		{"claude-haiku-4-5@20251001", nil, true},
		{"claude-opus-4-6", nil, true},
		{"claude-sonnet-5", nil, true},
		{"my-claude", nil, true},
		{"claude-opus-4-6", []*genai.Tool{functions, {GoogleSearch: &genai.GoogleSearch{}}}, false},
	} {
		if got := nativeSchema(c.model, structured(schema, c.tools...)); (got != nil) != c.want {
			t.Errorf("%s with %d tools: %s", c.model, len(c.tools), got)
		}
	}
}

func FuzzSchemas(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"integer","minimum":0}}}`)
	f.Add(`{"anyOf":[{"$ref":"#"}],"description":7}`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		if out, ok := (&grammar{}).schema(json.RawMessage(text)); ok && !json.Valid(out) {
			t.Errorf("%s became %s", text, out)
		}
	})
}
