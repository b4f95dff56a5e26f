package providertest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"
	"pgregory.net/rapid"
)

// drawSchema is a JSON Schema, of which MCP servers have any.
func drawSchema(t *rapid.T, depth int) any {
	label := func(s string) string { return fmt.Sprintf("%s %d", s, depth) }
	if depth > 3 || rapid.IntRange(0, 9).Draw(t, label("true")) == 0 {
		return rapid.Bool().Draw(t, label("all or nothing"))
	}
	s := map[string]any{}
	maybe := func(key string, value func() any) {
		if rapid.IntRange(0, 3).Draw(t, label(key)) == 0 {
			s[key] = value()
		}
	}
	name := rapid.SampledFrom([]string{"a", "b", "a b", "ä", "$ref", "x.y-z", strings.Repeat("n", 65), ""})
	named := func() any {
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, label("properties")) {
			out[name.Draw(t, label("name"))] = drawSchema(t, depth+1)
		}
		return out
	}
	several := func() any {
		out := []any{drawSchema(t, depth+1)}
		for range rapid.IntRange(0, 2).Draw(t, label("more")) {
			out = append(out, drawSchema(t, depth+1))
		}
		return out
	}
	word := func() any { return rapid.SampledFrom([]any{"a", 1, nil, true}).Draw(t, label("value")) }
	kinds := rapid.SampledFrom([]any{"object", "string", "array", []any{"object", "null"}})
	maybe("type", func() any { return kinds.Draw(t, label("kind")) })
	maybe("properties", named)
	maybe("$defs", named)
	maybe("required", func() any { return rapid.SliceOfDistinct(name, rapid.ID).Draw(t, label("needed")) })
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		maybe(key, several)
	}
	maybe("not", func() any { return drawSchema(t, depth+1) })
	maybe("additionalProperties", func() any { return drawSchema(t, depth+1) })
	maybe("enum", func() any { return []any{word()} })
	maybe("const", word)
	maybe("description", func() any { return "Words." })
	maybe("$ref", func() any {
		return rapid.SampledFrom([]string{"#", "#/$defs/a", "#/$defs/a b", "#/anyOf/0", "https://a.example"}).Draw(t, label("to"))
	})
	return s
}

// TestToolSchemas: whatever schema a tool has becomes a request that each provider
// takes, and that is not longer than what was declared and some words.
func TestToolSchemas(t *testing.T) {
	for wire := range modelNames {
		t.Run(string(wire), func(t *testing.T) {
			a := newAsker(t, wire)
			rapid.Check(t, func(rt *rapid.T) {
				schema, err := json.Marshal(drawSchema(rt, 0))
				if err != nil {
					rt.Fatal(err)
				}
				req := request(asked(text("hi")))
				req.Config.Tools = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
					weather, {Name: "any", Description: "Does.", ParametersJsonSchema: json.RawMessage(schema)},
				}}}
				body, err := a.ask(t, req)
				if err == nil {
					err = checkRequest(wire, body)
				}
				if err != nil {
					rt.Fatalf("%s: %v\n%s", schema, err, body)
				}
				if len(body) > 3*len(schema)+8<<10 {
					rt.Fatalf("a schema of %d bytes became a request of %d", len(schema), len(body))
				}
			})
		})
	}
}
