package providertest_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/apzuk3/agentd/internal/test/providertest"
)

// TestNamesOfOtherCase: Go's JSON takes a name for a field's also in other letters, the
// last one if there are several. Adapters do so, and an answer that they take for complete
// is then what the stream says.
func TestNamesOfOtherCase(t *testing.T) {
	each(t, func(t *testing.T, wire providertest.Wire, stream string) {
		from := &memory{}
		llm := reader(t, wire, from)
		names := map[string]bool{}
		spell(stream, func(name string, v any) []member { names[name] = true; return []member{{name, v}} })
		for _, target := range slices.Sorted(maps.Keys(names)) {
			for _, twice := range []bool{false, true} {
				for _, first := range []bool{false, true} {
					judge(t, wire, llm, from, spell(stream, func(name string, v any) []member {
						other := member{titled(name), v}
						switch {
						case name != target:
							return []member{{name, v}}
						case !twice:
							return []member{other}
						case first:
							other.value = changed(v)
							return []member{other, {name, v}}
						default:
							other.value = changed(v)
							return []member{{name, v}, other}
						}
					}))
				}
			}
		}
	})
}

// TestSpaceAroundEvents: an adapter may take space around an event's JSON that JSON does
// not know, and nothing becomes of it.
func TestSpaceAroundEvents(t *testing.T) {
	each(t, func(t *testing.T, wire providertest.Wire, stream string) {
		from := &memory{}
		llm := reader(t, wire, from)
		for _, space := range []string{"\v", "\f", "\u0085", "\u00a0"} {
			judge(t, wire, llm, from, strings.ReplaceAll(stream, "data: ", "data: "+space))
		}
	})
}

// member is a name and its value in an object.
type member struct {
	name  string
	value any
}

// titled is a name whose first letter is a capital one.
func titled(name string) string {
	for i, r := range name {
		return name[:i] + string(unicode.ToUpper(r)) + name[i+len(string(r)):]
	}
	return name
}

// changed is another text for a text, and no list where there is one.
func changed(v any) any {
	switch v := v.(type) {
	case string:
		return v + "x"
	case []any:
		return []any{}
	default:
		return v
	}
}

// spell writes the JSON of a stream's events anew, with the members that as makes of each
// member.
func spell(stream string, as func(name string, v any) []member) string {
	var out strings.Builder
	for _, event := range providertest.Events(stream) {
		head, data, ok := strings.Cut(event, "data: ")
		var v any
		dec := json.NewDecoder(strings.NewReader(data))
		dec.UseNumber()
		if !ok || dec.Decode(&v) != nil {
			out.WriteString(event)
			continue
		}
		var b bytes.Buffer
		spellValue(&b, v, as)
		out.WriteString(head + "data: " + b.String() + "\n\n")
	}
	return out.String()
}

func spellValue(b *bytes.Buffer, v any, as func(string, any) []member) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		n := 0
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, m := range as(name, v[name]) {
				if n++; n > 1 {
					b.WriteByte(',')
				}
				spellValue(b, m.name, as)
				b.WriteByte(':')
				spellValue(b, m.value, as)
			}
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			spellValue(b, e, as)
		}
		b.WriteByte(']')
	default:
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		b.Write(data)
	}
}
