package anthropic

import (
	"encoding/json"
	"regexp"
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model/internal/toolschema"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// nativeSchema returns the response schema as Anthropic takes it, nil if there is
// none that it does. It compiles a schema to a grammar, whose rules are those of its
// guide "Structured outputs": models from 4.5 on, no citations (which web search
// always gives), and the part of JSON Schema that grammar.schema knows.
func nativeSchema(modelName string, cfg *genai.GenerateContentConfig) json.RawMessage {
	schema, err := toolschema.Response(cfg)
	asked, _ := wire.ProviderTools(cfg)
	if err != nil || schema == nil || asked.Search != nil || !familyOf(modelName).atLeast(4, 5) {
		return nil
	}
	g := &grammar{}
	native, ok := g.schema(schema)
	if !ok || g.optional > maxOptional || g.unions > maxUnions {
		return nil
	}
	return native
}

// What a grammar may have of properties that are not required, and of values of
// several types.
const (
	maxOptional = 24
	maxUnions   = 16
)

// grammar turns a JSON Schema into one that Anthropic compiles. The result allows
// no more than the original but for what it moves into descriptions, which the
// model reads: bounds of numbers, lengths and the like.
type grammar struct{ optional, unions int }

// formats are those of strings that are known.
var formats = []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}

// schema translates a schema; ok is false for one that cannot be.
func (g *grammar) schema(text json.RawMessage) (out json.RawMessage, ok bool) {
	members, ok := rawjson.Members(text)
	if !ok {
		return nil, false
	}
	if rawjson.Find(members, "anyOf") != nil && rawjson.Find(members, "oneOf") != nil {
		return nil, false
	}
	if ref := rawjson.Find(members, "$ref"); ref != nil {
		return rawjson.Object([]rawjson.Member{{Key: "$ref", Value: ref}}), true
	}
	var kept, described []rawjson.Member
	for _, m := range members {
		var keep bool
		if m, keep, ok = g.keyword(m); !ok {
			return nil, false
		}
		switch m.Key {
		case "$schema", "$comment", "deprecated", "readOnly", "writeOnly":
		default:
			if keep {
				kept = append(kept, m)
			} else {
				described = append(described, m)
			}
		}
	}
	if kept, ok = g.shape(kept); !ok {
		return nil, false
	}
	return rawjson.Object(describe(kept, described)), true
}

// keyword translates what stands at a key. What is not kept goes into the description.
func (g *grammar) keyword(m rawjson.Member) (_ rawjson.Member, keep, ok bool) {
	switch m.Key {
	case "type", "title", "description", "const", "required", "additionalProperties":
		return m, true, true
	case "enum":
		var values []any
		ok := json.Unmarshal(m.Value, &values) == nil
		return m, true, ok && !slices.ContainsFunc(values, func(v any) bool {
			switch v.(type) {
			case map[string]any, []any:
				return true
			}
			return false
		})
	case "properties", "$defs", "definitions":
		m.Value, ok = g.named(m.Value)
		return m, true, ok
	case "items":
		m.Value, ok = g.schema(m.Value)
		return m, true, ok
	case "anyOf", "oneOf":
		m.Key = "anyOf"
		g.unions++
		m.Value, ok = g.list(m.Value)
		return m, true, ok
	case "format":
		format, ok := rawjson.Strings(m.Value)
		return m, ok && len(format) == 1 && slices.Contains(formats, format[0]), ok
	case "minItems":
		return m, string(m.Value) == "0" || string(m.Value) == "1", true
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
		"pattern",
		"maxItems", "uniqueItems", "minProperties", "maxProperties", "default", "examples",
		"$schema", "$comment", "deprecated", "readOnly", "writeOnly":
		return m, false, true
	}
	return m, false, false
}

// named translates schemas by names.
func (g *grammar) named(text json.RawMessage) (json.RawMessage, bool) {
	members, ok := rawjson.Members(text)
	for i := range members {
		if members[i].Value, ok = g.schema(members[i].Value); !ok {
			return nil, false
		}
	}
	return rawjson.Object(members), ok
}

// list translates a list of schemas.
func (g *grammar) list(text json.RawMessage) (json.RawMessage, bool) {
	var list []json.RawMessage
	ok := json.Unmarshal(text, &list) == nil && len(list) > 0
	for i := range list {
		if list[i], ok = g.schema(list[i]); !ok {
			return nil, false
		}
	}
	out, err := rawjson.Marshal(list)
	return out, ok && err == nil
}

// shape checks that a schema says what a value looks like, and closes an object
// that names its properties.
func (g *grammar) shape(members []rawjson.Member) ([]rawjson.Member, bool) {
	types, typed := rawjson.Strings(rawjson.Find(members, "type"))
	if len(types) > 1 {
		g.unions++
	}
	properties := rawjson.Find(members, "properties")
	if !slices.Contains(types, "object") && properties == nil {
		known := typed || rawjson.Find(members, "anyOf") != nil || rawjson.Find(members, "enum") != nil ||
			rawjson.Find(members, "const") != nil
		return members, known
	}
	named, ok := rawjson.Members(properties)
	if !ok || !typed || rawjson.Find(members, "anyOf") != nil {
		return nil, false // closed twice, an object would fit neither
	}
	required, _ := rawjson.Strings(rawjson.Find(members, "required"))
	for _, p := range named {
		if !slices.Contains(required, p.Key) {
			g.optional++
		}
	}
	switch closed := string(rawjson.Find(members, "additionalProperties")); {
	case closed == "false":
		return members, true
	case closed == "" && len(named) > 0:
		return append(members, rawjson.Member{Key: "additionalProperties", Value: json.RawMessage("false")}), true
	}
	return nil, false
}

// describe adds the described members to the description.
func describe(members, described []rawjson.Member) []rawjson.Member {
	if len(described) == 0 {
		return members
	}
	i := slices.IndexFunc(members, func(m rawjson.Member) bool { return m.Key == "description" })
	var text string
	if i >= 0 && json.Unmarshal(members[i].Value, &text) == nil {
		members = slices.Delete(members, i, i+1)
		text += "\n"
	}
	value, _ := rawjson.Marshal(text + "Must satisfy " + string(rawjson.Object(described))) // a string always encodes
	return append(members, rawjson.Member{Key: "description", Value: value})
}

// argumentName is what Anthropic takes as the name of an argument: "Property keys
// should match pattern".
var argumentName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// maxDescribed bounds what is said of arguments in words, in bytes.
const maxDescribed = 2 << 10

// inputSchema is the schema of a tool's arguments as Anthropic takes it. Arguments
// whose names it does not take go into the description: the model still gives them.
func inputSchema(schema json.RawMessage) json.RawMessage {
	members, _ := rawjson.Members(schema)
	properties, _ := rawjson.Members(rawjson.Find(members, "properties"))
	other := func(name string) bool { return !argumentName.MatchString(name) }
	if !slices.ContainsFunc(properties, func(p rawjson.Member) bool { return other(p.Key) }) {
		return schema
	}
	var moved []rawjson.Member
	left := maxDescribed
	properties = slices.DeleteFunc(properties, func(p rawjson.Member) bool {
		if !other(p.Key) {
			return false
		}
		if left -= len(p.Key) + len(p.Value); left >= 0 {
			moved = append(moved, p)
		}
		return true
	})
	described := []rawjson.Member{{Key: "properties", Value: rawjson.Object(moved)}}
	required, _ := rawjson.Strings(rawjson.Find(members, "required"))
	var needed []string // of those in the description
	for _, p := range moved {
		if slices.Contains(required, p.Key) {
			needed = append(needed, p.Key)
		}
	}
	if len(needed) > 0 {
		described = append(described, rawjson.Member{Key: "required", Value: json.RawMessage(rawjson.JSON(needed))})
	}
	required = slices.DeleteFunc(slices.Clone(required), other)
	kept := slices.DeleteFunc(members, func(m rawjson.Member) bool {
		return m.Key == "properties" || m.Key == "required" || m.Key == "additionalProperties"
	})
	kept = append(kept, rawjson.Member{Key: "properties", Value: rawjson.Object(properties)})
	if len(required) > 0 {
		kept = append(kept, rawjson.Member{Key: "required", Value: json.RawMessage(rawjson.JSON(required))})
	}
	return rawjson.Object(describe(kept, described))
}
