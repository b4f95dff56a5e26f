// Package toolschema makes schemas of tools into what every provider takes.
package toolschema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
)

// noParameters is the schema of a function that has none.
const noParameters = `{"type":"object","properties":{}}`

// Parameters returns the JSON Schema of a function's parameters as every provider takes it: of type
// "object", with "properties", and without alternatives at the top. A schema that only lacks these
// members keeps the order of its keys. In others the properties of all alternatives become those of
// the whole, and the description says what is lost by that; the server checks arguments against the
// schema that was declared.
func Parameters(d *genai.FunctionDeclaration) json.RawMessage {
	text, members := declared(d)
	switch {
	case members == nil:
		return json.RawMessage(noParameters)
	case !isPlain(members):
		return merge(members)
	}
	var missing []string
	if rawjson.Find(members, "type") == nil {
		missing = append(missing, `"type":"object"`)
	}
	if rawjson.Find(members, "properties") == nil {
		missing = append(missing, `"properties":{}`)
	}
	if len(missing) == 0 {
		return text
	}
	head := "{" + strings.Join(missing, ",")
	if len(members) == 0 {
		return json.RawMessage(head + "}")
	}
	return json.RawMessage(head + "," + strings.TrimLeft(string(text[1:]), " \t\r\n"))
}

// IsPlain reports whether Parameters only adds members to the parameters of d.
func IsPlain(d *genai.FunctionDeclaration) bool {
	_, members := declared(d)
	none := d.ParametersJsonSchema == nil && d.Parameters == nil
	return none || members != nil && isPlain(members)
}

// declared is the schema of d's parameters; members is nil if there is none, or it is
// no object.
func declared(d *genai.FunctionDeclaration) (text json.RawMessage, members []rawjson.Member) {
	var v any
	switch {
	case d.ParametersJsonSchema != nil:
		v = d.ParametersJsonSchema
	case d.Parameters != nil:
		v = JSONSchema(d.Parameters)
	}
	text, err := rawjson.Marshal(v)
	if err != nil {
		return nil, nil
	}
	members, ok := rawjson.Members(text)
	if !ok {
		return nil, nil
	}
	return text, slices.Clip(append([]rawjson.Member{}, members...))
}

// isPlain reports whether a schema is of type "object", or of any, and has nothing at
// its top that OpenAI or Anthropic refuse there.
func isPlain(members []rawjson.Member) bool {
	kind := rawjson.Find(members, "type")
	properties, isObject := rawjson.Members(rawjson.Find(members, "properties"))
	return (kind == nil || string(kind) == `"object"`) &&
		(isObject || properties == nil && rawjson.Find(members, "properties") == nil) &&
		!slices.ContainsFunc(members, func(m rawjson.Member) bool { return slices.Contains(refused, m.Key) })
}

// refused is what a schema must not have at its top: "schema must have type 'object'
// and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level" (OpenAI),
// "input_schema does not support oneOf, allOf, or anyOf at the top level" (Anthropic).
// A reference is nothing but what it refers to.
var refused = []string{"oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"}

const (
	// maxMergeDepth bounds how deep alternatives of alternatives are looked at.
	maxMergeDepth = 8
	// maxRefs bounds how many references are followed.
	maxRefs = 256
	// maxWords bounds what the description says of one schema, in bytes.
	maxWords = 2 << 10
)

// merger collects what the parts of a schema say. Each part of the schema is taken
// once, so that the result is never longer than the schema and what it refers to, and
// the words.
type merger struct {
	root  []rawjson.Member
	names []string                     // of the properties, in their order
	forms map[string][]json.RawMessage // of each property, without equal ones
	same  map[string]bool              // name and form
	refs  map[string]bool              // that were followed
	said  []string
	left  int // bytes that may be said yet
}

// merge returns a schema that isPlain accepts and that allows whatever the one with these members
// allows.
func merge(root []rawjson.Member) json.RawMessage {
	m := &merger{root: root, forms: map[string][]json.RawMessage{}, same: map[string]bool{}, refs: map[string]bool{},
		left: maxWords}
	required := slices.DeleteFunc(m.take(root, 0), func(name string) bool { return m.forms[name] == nil })
	out := []rawjson.Member{
		{Key: "type", Value: json.RawMessage(`"object"`)}, {Key: "properties", Value: rawjson.Object(m.properties())},
	}
	if len(required) > 0 {
		out = append(out, rawjson.Member{Key: "required", Value: json.RawMessage(rawjson.JSON(required))})
	}
	var description string
	for _, member := range root {
		switch {
		case member.Key == "description":
			_ = json.Unmarshal(member.Value, &description) // What is no text describes nothing.
		case slices.Contains(refused, member.Key), member.Key == "type", member.Key == "properties",
			member.Key == "required":
		default:
			out = append(out, member)
		}
	}
	if text := strings.Join(slices.DeleteFunc(append([]string{description}, m.said...),
		func(s string) bool { return s == "" }), "\n"); text != "" {
		out = append(out, rawjson.Member{Key: "description", Value: json.RawMessage(rawjson.JSON(text))})
	}
	return rawjson.Object(out)
}

// properties are those of all parts. One that has several forms is of any of them.
func (m *merger) properties() []rawjson.Member {
	var out []rawjson.Member
	for _, name := range m.names {
		form := m.forms[name][0]
		if len(m.forms[name]) > 1 {
			form = json.RawMessage(rawjson.JSON(map[string]any{"anyOf": m.forms[name]}))
		}
		out = append(out, rawjson.Member{Key: name, Value: form})
	}
	return out
}

// take collects what a part of the schema says and returns which properties it
// requires.
func (m *merger) take(part []rawjson.Member, depth int) (required []string) {
	if depth > maxMergeDepth {
		return nil
	}
	properties, _ := rawjson.Members(rawjson.Find(part, "properties"))
	for _, p := range properties {
		m.property(p)
	}
	required, _ = rawjson.Strings(rawjson.Find(part, "required"))
	required = slices.Clone(required)
	if to := m.follow(rawjson.Find(part, "$ref")); to != nil {
		required = append(required, m.take(to, depth+1)...)
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		var names [][]string
		for _, branch := range parts(rawjson.Find(part, key)) {
			names = append(names, m.take(branch, depth+1))
		}
		switch {
		case key == "allOf":
			required = append(required, slices.Concat(names...)...)
		case len(names) > 0:
			m.alternatives(key, parts(rawjson.Find(part, key)), names)
			required = append(required, common(names)...)
		}
	}
	for _, key := range []string{"enum", "const", "not"} {
		if v := rawjson.Find(part, key); v != nil {
			m.say(fmt.Sprintf("Must satisfy {%q: %s}.", key, v))
		}
	}
	slices.Sort(required)
	return slices.Compact(required)
}

func (m *merger) property(p rawjson.Member) {
	if id := p.Key + "\x00" + string(p.Value); !m.same[id] {
		m.same[id] = true
		if m.forms[p.Key] == nil {
			m.names = append(m.names, p.Key)
		}
		m.forms[p.Key] = append(m.forms[p.Key], p.Value)
	}
}

// follow returns what a reference within the schema refers to, once.
func (m *merger) follow(ref json.RawMessage) []rawjson.Member {
	var to string
	if json.Unmarshal(ref, &to) != nil || m.refs[to] || len(m.refs) >= maxRefs {
		return nil
	}
	m.refs[to] = true
	path, ok := strings.CutPrefix(to, "#/")
	if !ok {
		return nil
	}
	at := m.root
	for step := range strings.SplitSeq(path, "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		at, _ = rawjson.Members(rawjson.Find(at, step))
	}
	return at
}

// alternatives describes several sets of properties; names are those that each set requires.
func (m *merger) alternatives(key string, branches [][]rawjson.Member, names [][]string) {
	if len(branches) < 2 {
		return
	}
	how := map[string]string{"oneOf": "exactly one", "anyOf": "at least one"}[key]
	var sets []string
	size := 0
	for i, branch := range branches {
		var title string
		_ = json.Unmarshal(rawjson.Find(branch, "title"), &title) // Few have one.
		set := strings.Join(names[i], ", ")
		if title != "" && set != "" {
			set = title + " (" + set + ")"
		}
		set = cmp.Or(set, title, "none in particular")
		if size += len(set) + 2; size > m.left {
			sets = append(sets, fmt.Sprintf("and %d more", len(branches)-i))
			break
		}
		sets = append(sets, set)
	}
	m.say(fmt.Sprintf("Give the arguments of %s of these sets: %s.", how, strings.Join(sets, "; ")))
}

// say adds words to the description, as far as there is room for them.
func (m *merger) say(text string) {
	if len(text) <= m.left {
		m.said = append(m.said, text)
	}
	m.left = max(m.left-len(text), 0)
}

// parts are the schemas of a list that are objects; others say nothing of properties.
func parts(list json.RawMessage) [][]rawjson.Member {
	var texts []json.RawMessage
	_ = json.Unmarshal(list, &texts) // What is no list has none.
	var out [][]rawjson.Member
	for _, text := range texts {
		if members, ok := rawjson.Members(text); ok {
			out = append(out, members)
		}
	}
	return out
}

// common are the names that are in all lists, each of which has a name once.
func common(lists [][]string) []string {
	in := map[string]int{}
	for _, list := range lists {
		for _, name := range list {
			in[name]++
		}
	}
	return slices.DeleteFunc(slices.Clone(lists[0]), func(name string) bool { return in[name] < len(lists) })
}
