// Package protorules checks messages against the rules in the protocol's own text, which
// are options of the protos ((buf.validate.field).string.max_len = 128). It is a part of
// agentd, not an API.
//
// Paths, ids and texts are those of protovalidate. This package replaces it because a rule
// of protovalidate may be an expression, whose interpreter takes 6 MB of the binary and
// 2 MB of memory. The package knows the kinds of rules that the protocol has and compiles
// no other. Its tests compare it with protovalidate.
//
// The package imports the generated protocol and knows nothing of what messages mean.
package protorules

import (
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Violation is a rule that a message breaks.
type Violation struct {
	// Path names the field, such as execute.tools[2].name, or a oneof.
	Path string
	// Rule is the id of the rule, such as string.max_len.
	Rule string
	// Text says what would be right.
	Text string
	// Value breaks the rule. It is invalid where a value is missing.
	Value protoreflect.Value
	// Most is the largest size that a rule allows. It is 0 for rules of another kind.
	Most uint64
}

func (v Violation) String() string { return v.Path + ": " + v.Text }

// Rules are the compiled rules of the protocol's messages. They do not change: any
// goroutine may use them.
type Rules struct {
	messages map[protoreflect.FullName]*message
}

// Protocol returns the rules of all messages of the protocol. The first call compiles them.
// The error is that of a rule of an unknown kind: a fault of the protos.
var Protocol = sync.OnceValues(compileProtocol)

// Broken returns the rules that msg breaks, in the order of its fields, at most the first
// most ones; nil for none. Messages of other protocols have no rules.
func (r *Rules) Broken(msg proto.Message, most int) []Violation {
	m := msg.ProtoReflect()
	rules := r.messages[m.Descriptor().FullName()]
	if rules == nil || most <= 0 {
		return nil
	}
	c := checking{most: most}
	c.message(rules, m)
	return c.broken
}

// message are the rules of a message.
type message struct {
	required []protoreflect.OneofDescriptor
	fields   []*field // without fields that have no rules
}

// field are the rules of a field.
type field struct {
	desc     protoreflect.FieldDescriptor
	required bool
	optional bool     // left out, it breaks no other rule
	whole    []rule   // of the value, or of the list or map
	keys     []rule   // of the keys of a map
	each     []rule   // of the items of a list or the values of a map
	message  *message // of the messages in the field; nil for none
}

// rule is one rule of one value.
type rule struct {
	id, text string
	most     uint64
	breaks   func(protoreflect.Value) bool
}

// checking is one check of one message.
type checking struct {
	most   int
	broken []Violation
}

func (c *checking) done() bool { return len(c.broken) >= c.most }

func (c *checking) message(rules *message, m protoreflect.Message) {
	for _, o := range rules.required {
		if c.done() {
			return
		}
		if m.WhichOneof(o) == nil {
			c.broken = append(c.broken, Violation{
				Path: string(o.Name()), Rule: ruleRequired, Text: "exactly one field is required in oneof"})
		}
	}
	for _, f := range rules.fields {
		if c.done() {
			return
		}
		from := len(c.broken)
		c.field(f, m)
		c.within(from, string(f.desc.Name()))
	}
}

func (c *checking) field(f *field, m protoreflect.Message) {
	if !m.Has(f.desc) {
		if f.required {
			c.broken = append(c.broken, Violation{Rule: ruleRequired, Text: "value is required"})
			return
		}
		if f.optional {
			return
		}
	}
	v := m.Get(f.desc)
	c.value(f.whole, nil, v)
	switch {
	case f.desc.IsMap():
		c.entries(f, v.Map())
	case f.desc.IsList():
		c.items(f, v.List())
	default:
		c.value(nil, f.message, v)
	}
}

func (c *checking) items(f *field, list protoreflect.List) {
	if f.each == nil && f.message == nil {
		return
	}
	for i := 0; i < list.Len() && !c.done(); i++ {
		from := len(c.broken)
		c.value(f.each, f.message, list.Get(i))
		if len(c.broken) > from {
			c.within(from, "["+strconv.Itoa(i)+"]")
		}
	}
}

func (c *checking) entries(f *field, entries protoreflect.Map) {
	if f.keys == nil && f.each == nil && f.message == nil {
		return
	}
	entries.Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
		from := len(c.broken)
		c.value(f.keys, nil, key.Value())
		c.value(f.each, f.message, v)
		if len(c.broken) > from {
			c.within(from, "["+strconv.Quote(cut(key.String()))+"]")
		}
		return !c.done()
	})
}

// maxKey bounds how much of a key of a map a path holds, in bytes: the key may be what is too long.
const maxKey = 80

func cut(key string) string {
	if len(key) <= maxKey {
		return key
	}
	return strings.ToValidUTF8(key[:maxKey], "") + "…"
}

func (c *checking) value(rules []rule, nested *message, v protoreflect.Value) {
	for _, r := range rules {
		if c.done() {
			return
		}
		if r.breaks(v) {
			c.broken = append(c.broken, Violation{Rule: r.id, Text: r.text, Value: v, Most: r.most})
		}
	}
	if nested != nil && !c.done() {
		c.message(nested, v.Message())
	}
}

// within puts a step before the paths of what was found since from.
func (c *checking) within(from int, step string) {
	for i := from; i < len(c.broken); i++ {
		path := &c.broken[i].Path
		if *path != "" && (*path)[0] != '[' {
			*path = "." + *path
		}
		*path = step + *path
	}
}
