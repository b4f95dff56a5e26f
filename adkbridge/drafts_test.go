package adkbridge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// Schemas of older drafts become ones of 2020-12 that say the same, at any depth; all
// others stay as they are.
func TestOlderDrafts(t *testing.T) {
	in := func(schema string) string { // below other constructs, some of them of older drafts
		return `{"type":"object","definitions":{"d":{"not":{"anyOf":[` + schema + `]}}},"properties":{"p":{"items":{"additionalProperties":` + schema + `}}},"dependentSchemas":{"p":{"if":` + schema + `}}}`
	}
	for name, tc := range map[string]struct{ old, want string }{
		"a tuple":                 {`{"items":[{"type":"string"},{"type":"number"}]}`, `{"items":{},"prefixItems":[{"type":"string"},{"type":"number"}]}`},
		"a closed tuple":          {`{"items":[{}],"additionalItems":false}`, `{"items":false,"prefixItems":[{}]}`},
		"a tuple and more":        {`{"items":[{}],"additionalItems":{"items":[]}}`, `{"items":{"items":{}},"prefixItems":[{}]}`},
		"a tuple in a tuple":      {`{"items":[{"items":[true]}]}`, `{"items":{},"prefixItems":[{"items":{},"prefixItems":[true]}]}`},
		"exclusive bounds":        {`{"minimum":1,"exclusiveMinimum":true,"maximum":9.5,"exclusiveMaximum":true}`, `{"exclusiveMaximum":9.5,"exclusiveMinimum":1}`},
		"inclusive bounds":        {`{"minimum":1,"exclusiveMinimum":false,"exclusiveMaximum":true}`, `{"minimum":1}`},
		"dependencies":            {`{"dependencies":{"a":["b"],"c":{"items":[{}]},"d":"e","f":true}}`, `{"dependentRequired":{"a":["b"],"d":["e"]},"dependentSchemas":{"c":{"items":{},"prefixItems":[{}]},"f":true}}`},
		"required of a property":  {`{"properties":{"a":{"required":true},"b":{"required":false},"c":{"required":["d"]}},"required":["c"]}`, `{"properties":{"a":{},"b":{},"c":{"required":["d"]}},"required":["c","a"]}`},
		"any type":                {`{"properties":{"a":{"type":"any"},"b":{"type":["any","null"]}}}`, `{"properties":{"a":{},"b":{}}}`},
		"a reference to what was": {`{"items":[{"$ref":"#/definitions/d/not/anyOf/0"}]}`, `{"items":{},"prefixItems":[{"$ref":"#/definitions/d/not/anyOf/0"}]}`},
		"names like keywords":     {`{"properties":{"items":{"type":"array"},"required":{},"dependencies":{}}}`, `{"properties":{"dependencies":{},"items":{"type":"array"},"required":{}}}`},
		"data like schemas":       {`{"default":{"items":[{}],"exclusiveMinimum":true},"enum":[{"required":true}]}`, `{"default":{"exclusiveMinimum":true,"items":[{}]},"enum":[{"required":true}]}`},
		"2020-12":                 {`{"exclusiveMinimum":0,"prefixItems":[{}],"items":{"type":["string","null"]},"dependentRequired":{"a":["b"]},"required":["a"]}`, `{"dependentRequired":{"a":["b"]},"exclusiveMinimum":0,"items":{"type":["string","null"]},"prefixItems":[{}],"required":["a"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			text := in(tc.old)
			root, _, err := toolSchema(text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if err := json.Unmarshal([]byte(in(tc.want)), &want); err != nil {
				t.Fatal(err)
			}
			if wanted, err := json.Marshal(want); err != nil || !bytes.Equal(got, wanted) {
				t.Errorf("%s\nbecame %s\nwant   %s (%v)", text, got, wanted, err)
			}
			if modernize(root) {
				t.Error("it can be changed again")
			}
		})
	}
}

// References to what was moved follow it, and a schema says its draft no more.
func TestOlderDraftsReferences(t *testing.T) {
	text := `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{
		"items":{"items":[{"type":"string"},{"$ref":"#/properties/items/items/0"}],"additionalItems":{"type":"null"}},
		"rest":{"$ref":"#/properties/items/additionalItems"},"when":{"$ref":"#/dependencies/rest"}},
		"dependencies":{"rest":{"required":["items"]}}}`
	root, _, err := toolSchema(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(root)
	want := `{"dependentSchemas":{"rest":{"required":["items"]}},"properties":{` +
		`"items":{"items":{"type":"null"},"prefixItems":[{"type":"string"},{"$ref":"#/properties/items/prefixItems/0"}]},` +
		`"rest":{"$ref":"#/properties/items/items"},"when":{"$ref":"#/dependentSchemas/rest"}},"type":"object"}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s (%v)", got, want, err)
	}
}

// Arguments are checked by the schema of the older draft.
func TestOlderDraftsCheckInput(t *testing.T) {
	schema := `{"type":"object","properties":{"n":{"type":"number","minimum":1,"exclusiveMinimum":true,"required":true},"pair":{"items":[{"type":"string"}],"additionalItems":false}},"dependencies":{"pair":["unit"]}}`
	spec := &record.Spec{Tools: []*agentdv1.Tool{{Name: "t", InputSchema: &schema}}}
	for input, want := range map[string]string{
		`{"n":2}`:                         "",
		`{"n":2,"pair":["a"],"unit":1}`:   "",
		`{"n":1}`:                         "exclusiveMinimum",
		`{}`:                              "required",
		`{"n":2,"pair":["a"]}`:            "dependentRequired",
		`{"n":2,"pair":[1],"unit":1}`:     "type",
		`{"n":2,"pair":["a",1],"unit":1}`: "pair",
	} {
		err := new(Runner).CheckInput(spec, "t", json.RawMessage(input))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", input, err, want)
		}
	}
}
