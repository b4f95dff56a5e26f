package adkbridge

import (
	"fmt"
	"strings"
	"testing"
)

func TestSchema(t *testing.T) {
	doubling := &strings.Builder{}
	doubling.WriteString(`{"type":"object","$ref":"#/$defs/d0","$defs":{`)
	for i := range 30 {
		fmt.Fprintf(doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"d30":{"type":"object"}}}`)
	for _, tc := range []struct {
		name, schema string
		want         string // part of the error; "" for none
	}{
		{"left out", "", ""},
		{"object", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, ""},
		{"no type", `{"properties":{"a":{"type":"string"}}}`, ""},
		{"shared definition", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"},"b":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"string"}}}`, ""},
		{"pointer escapes", `{"type":"object","properties":{"a":{"$ref":"#/$defs/x~1y%20z"}},"$defs":{"x/y z":{"type":"string"}}}`, ""},
		{"property named $ref", `{"type":"object","properties":{"$ref":{"type":"string"}}}`, ""},
		{"data that looks like a reference", `{"type":"object","properties":{"a":{"default":{"$ref":"http://x"}}}}`, ""},
		{"not JSON", `{`, "not JSON"},
		{"two values", `{} {}`, "more than one JSON value"},
		{"array", `[]`, "not a JSON object"},
		{"boolean", `true`, "not a JSON object"},
		{"string type", `{"type":"string"}`, `"type" is "string"`},
		{"type list", `{"type":["object","null"]}`, `must be "object"`},
		{"no such type", `{"type":"object","properties":{"a":{"type":7}}}`, "not a JSON Schema"},
		{"bad pattern", `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`, "not a valid JSON Schema"},
		{"too long", `{"type":"object","description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "at most 32768"},
		{"too deep", `{"type":"object","properties":` + strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20) + `}`, "deeper than 16"},
		{"absurdly deep", `{"type":"object","x":` + strings.Repeat(`[`, 12000) + strings.Repeat(`]`, 12000) + `}`, "not JSON"},
		{"too many values", `{"type":"object","enum":[` + strings.Repeat(`1,`, 1000) + `1]}`, "more than 1000 values"},
		{"remote reference", `{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}`, "only references within"},
		{"file reference", `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "only references within"},
		{"base", `{"type":"object","$id":"https://example.com/"}`, "$id is not supported"},
		{"dynamic reference", `{"type":"object","$dynamicRef":"#x"}`, "$dynamicRef is not supported"},
		{"dangling reference", `{"type":"object","$ref":"#/$defs/nothing"}`, "points to nothing"},
		{"recursion", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"properties":{"q":{"$ref":"#/$defs/p"}}}}}`, ""},
		{"recursion through two definitions", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"},"b":{"$ref":"#/$defs/q"}},"$defs":{"p":{"items":{"$ref":"#/$defs/q"}},"q":{"items":{"$ref":"#/$defs/p"}}}}`, ""},
		{"recursion through the root", `{"type":"object","properties":{"a":{"$ref":"#"}}}`, ""},
		{"reference to itself", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"$ref":"#/$defs/p"}}}`, ""},
		{"recursion to nothing", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"items":{"$ref":"#/$defs/p/nothing"}}}}`, "points to nothing"},
		{"doubling", doubling.String(), "more than 10000 nodes"},
		{"doubling that leads back", strings.Replace(doubling.String(), `"d30":{"type":"object"}`, `"d30":{"$ref":"#"}`, 1), "more than 10000 nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := checkSchema(&tc.schema)
			switch {
			case tc.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tc.want == "":
				if got["type"] != "object" {
					t.Errorf("type %v", got["type"])
				}
			case err == nil || !strings.Contains(err.Error(), tc.want):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/p/0"}},"$defs":{"p":[{"const":1}]}}`)
	f.Add(`{"$ref":"#/%zz","patternProperties":{"[":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		schema, err := checkSchema(&text)
		if err == nil && schema["type"] != "object" {
			t.Errorf("accepted %q with type %v", text, schema["type"])
		}
	})
}
