package agentfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxValues bounds the values of a file, aliases counted with what they stand
// for.
const maxValues = 20_000

// maxMessage bounds the tree and its tools, in bytes; servers take 4 MiB.
const maxMessage = 3 << 20

// refused are fields of the protocol that mean nothing in a file, and why.
var refused = map[protoreflect.Name]string{
	"mcp_attachments": "no MCP servers are attached here; declare the tools in this file and name them in tool_names",
}

// decoder turns nodes into messages. It goes on after a problem.
type decoder struct {
	file     *File
	problems Problems
	values   int
	path     []string // of the agent that is read
	where    string   // of a tool that is read, in place of path
}

// Parse reads a file's text. name is used in messages. Its errors are of type
// Problems.
func Parse(name string, data []byte) (*File, error) {
	d := &decoder{file: &File{Name: name, places: map[place]Position{}}}
	if root := read(data, d.problemf); root != nil {
		d.root(root)
	}
	if size := d.size(); size > maxMessage {
		d.problemf(Position{1, 1}, "the tree and its tools have %d bytes, at most %d can be sent", size, maxMessage)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return d.file, nil
}

// size is what is to be sent, in bytes: an alias is sent as often as it stands
// somewhere.
func (d *decoder) size() int {
	size := proto.Size(d.file.Agent)
	for _, t := range d.file.Tools {
		size += proto.Size(t.Tool)
	}
	return size
}

func (d *decoder) problemf(pos Position, format string, args ...any) {
	where := d.where
	if where == "" {
		where = strings.Join(d.path, "/")
	}
	d.problems = append(d.problems, Problem{File: d.file.Name, Position: pos, Where: where, Message: fmt.Sprintf(format, args...)})
}

// room counts a value; without room it reports so, once.
func (d *decoder) room(pos Position) bool {
	d.values++
	if d.values == maxValues+1 {
		d.problemf(pos, "the file has more than %d values, aliases counted with what they stand for", maxValues)
	}
	return d.values <= maxValues
}

// root reads a file: an agent with tools, or an agent alone.
func (d *decoder) root(n *node) {
	if n.kind != mappingKind {
		d.problemf(n.pos, "a file holds a mapping with agent and tools, got %s", n.kind)
		return
	}
	if n.get("agent") == nil && n.get("tools") == nil {
		d.file.Agent = d.agent(n)
		return
	}
	for _, p := range n.pairs {
		switch p.key {
		case "agent":
			d.file.Agent = d.agent(p.value)
		case "tools":
			d.tools(p.value)
		default:
			d.problemf(p.pos, "%s", unknown(p.key, []string{"agent", "tools"}))
		}
	}
	if n.get("agent") == nil {
		d.problemf(n.pos, "agent is missing")
	}
}

func (d *decoder) agent(n *node) *agentdv1.Agent {
	a := &agentdv1.Agent{}
	d.message(n, a.ProtoReflect(), nil)
	return a
}

func (d *decoder) tools(n *node) {
	if n.kind != listKind {
		d.problemf(n.pos, "tools: want a list, got %s", n.kind)
		return
	}
	for i, item := range n.items {
		d.where = fmt.Sprintf("tools[%d]", i)
		if name := item.get("name"); name != nil && name.kind == textKind && name.text != "" {
			d.where = "tool " + name.text
		}
		t := &Tool{Tool: &agentdv1.Tool{}}
		d.message(item, t.Tool.ProtoReflect(), map[string]func(*node){
			"command":  func(n *node) { t.Command = d.command(n) },
			"pass_env": func(n *node) { t.PassEnv = d.passEnv(n) },
		})
		if item.kind == mappingKind && item.get("command") == nil {
			d.problemf(item.pos, "no command: name the program that runs the tool and its arguments, as in command: [./greet.sh, --json]")
		}
		d.file.Tools = append(d.file.Tools, t)
		d.where = ""
	}
}

// command reads a program and its arguments.
func (d *decoder) command(n *node) []string {
	if n.kind != listKind || len(n.items) == 0 {
		d.problemf(n.pos, "command: want a list of the program and its arguments, as in [grep, -c, x]; no shell takes it apart")
		return nil
	}
	var out []string
	for _, item := range n.items {
		if !d.room(item.pos) {
			return nil
		}
		if text, ok := d.text(item, "command"); ok {
			if strings.ContainsRune(text, 0) {
				d.problemf(item.pos, "command: arguments cannot hold the character 0")
			}
			out = append(out, text)
		}
	}
	if len(out) > 0 && out[0] == "" {
		d.problemf(n.pos, "command: the program is empty")
	}
	return out
}

// passEnv reads names of variables.
func (d *decoder) passEnv(n *node) []string {
	if n.kind != listKind {
		d.problemf(n.pos, "pass_env: want a list of names of environment variables, as in [OPENAI_API_KEY]")
		return nil
	}
	var out []string
	for _, item := range n.items {
		if !d.room(item.pos) {
			return nil
		}
		if text, ok := d.text(item, "pass_env"); ok {
			if text == "" || strings.ContainsAny(text, "=\x00") {
				d.problemf(item.pos, "pass_env: %q is no name of a variable; its value comes from the environment", text)
			}
			out = append(out, text)
		}
	}
	return out
}

// message reads the fields of a mapping. more are fields that the message does
// not have.
func (d *decoder) message(n *node, m protoreflect.Message, more map[string]func(*node)) {
	if !d.room(n.pos) {
		return
	}
	_, isAgent := m.Interface().(*agentdv1.Agent)
	if isAgent {
		name := "?"
		if v := n.get("name"); v != nil && v.kind == textKind && v.text != "" {
			name = v.text
		}
		d.path = append(d.path, name)
		defer func() { d.path = d.path[:len(d.path)-1] }()
	}
	d.file.places[place{m.Interface(), "", -1}] = n.pos
	if n.kind != mappingKind {
		d.problemf(n.pos, "want a mapping of fields, got %s", n.kind)
		return
	}
	desc := m.Descriptor()
	chosen := map[protoreflect.Name]string{} // by oneof
	for _, p := range n.pairs {
		if f := more[p.key]; f != nil {
			f(p.value)
			continue
		}
		fd := desc.Fields().ByName(protoreflect.Name(p.key))
		if fd == nil {
			d.problemf(p.pos, "%s", unknown(p.key, fields(desc, more)))
			continue
		}
		if why, ok := refused[fd.Name()]; ok {
			d.problemf(p.pos, "%s: %s", p.key, why)
			continue
		}
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() {
			if other := chosen[of.Name()]; other != "" {
				d.problemf(p.pos, "%s and %s: only one of %s may be there", other, p.key, oneof(of))
				continue
			}
			chosen[of.Name()] = p.key
		}
		d.file.places[place{m.Interface(), p.key, -1}] = p.value.pos
		d.field(p.value, m, fd)
	}
}

// field reads one field.
func (d *decoder) field(n *node, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	name := string(fd.Name())
	switch {
	case fd.IsList():
		d.list(n, m, fd)
	case fd.IsMap():
		d.problemf(n.pos, "%s is not understood in a file", name)
	case isDuration(fd):
		if v := d.duration(n, name); v != nil {
			m.Set(fd, protoreflect.ValueOfMessage(v.ProtoReflect()))
		}
	case fd.Message() != nil:
		d.message(n, m.Mutable(fd).Message(), nil)
	case strings.HasSuffix(name, "_schema") && fd.Kind() == protoreflect.StringKind && n.kind == mappingKind:
		var b strings.Builder
		if err := jsonText(&b, n, d.counted(n)); err != nil {
			d.problemf(n.pos, "%s: %v", name, err)
			return
		}
		m.Set(fd, protoreflect.ValueOfString(b.String()))
	default:
		if v, ok := d.scalar(n, fd); ok {
			m.Set(fd, v)
		}
	}
}

func (d *decoder) counted(n *node) func() error {
	return func() error {
		if !d.room(n.pos) {
			return fmt.Errorf("more than %d values", maxValues)
		}
		return nil
	}
}

func (d *decoder) list(n *node, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	if n.kind != listKind {
		d.problemf(n.pos, "%s: want a list, got %s", fd.Name(), n.kind)
		return
	}
	list := m.Mutable(fd).List()
	for _, item := range n.items {
		d.file.places[place{m.Interface(), string(fd.Name()), list.Len()}] = item.pos
		if fd.Message() != nil {
			d.message(item, list.AppendMutable().Message(), nil)
		} else if v, ok := d.scalar(item, fd); ok {
			list.Append(v)
		}
	}
}

// scalar reads a value that is no message.
func (d *decoder) scalar(n *node, fd protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	if !d.room(n.pos) {
		return protoreflect.Value{}, false
	}
	name := string(fd.Name())
	switch fd.Kind() {
	case protoreflect.StringKind:
		text, ok := d.text(n, name)
		return protoreflect.ValueOfString(text), ok
	case protoreflect.BoolKind:
		if n.kind == boolKind {
			return protoreflect.ValueOfBool(n.text == "true"), true
		}
		d.problemf(n.pos, "%s: want true or false, got %s", name, shown(n))
	case protoreflect.Uint32Kind:
		if v, err := strconv.ParseUint(n.text, 10, 32); n.kind == numberKind && err == nil {
			return protoreflect.ValueOfUint32(uint32(v)), true
		}
		d.problemf(n.pos, "%s: want a whole number from 0 to %d, got %s", name, uint32(math.MaxUint32), shown(n))
	case protoreflect.Int32Kind:
		if v, err := strconv.ParseInt(n.text, 10, 32); n.kind == numberKind && err == nil {
			return protoreflect.ValueOfInt32(int32(v)), true
		}
		d.problemf(n.pos, "%s: want a whole number, got %s", name, shown(n))
	case protoreflect.Int64Kind:
		if v, err := strconv.ParseInt(n.text, 10, 64); n.kind == numberKind && err == nil {
			return protoreflect.ValueOfInt64(v), true
		}
		d.problemf(n.pos, "%s: want a whole number, got %s", name, shown(n))
	case protoreflect.EnumKind:
		return d.enum(n, fd)
	case protoreflect.DoubleKind:
		if v, err := strconv.ParseFloat(n.text, 64); n.kind == numberKind && err == nil {
			return protoreflect.ValueOfFloat64(v), true
		}
		d.problemf(n.pos, "%s: want a number, got %s", name, shown(n))
	default:
		d.problemf(n.pos, "%s is not understood in a file", name)
	}
	return protoreflect.Value{}, false
}

// enum reads a value by its name, as it is in the protocol or without the prefix
// that all of them have, in lower case.
func (d *decoder) enum(n *node, fd protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	values := fd.Enum().Values()
	var names []string
	for i := range values.Len() {
		v := values.Get(i)
		prefix, zero := strings.CutSuffix(string(values.Get(0).Name()), "UNSPECIFIED")
		if !zero || i == 0 {
			continue
		}
		short := strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix))
		if n.kind == textKind && (n.text == string(v.Name()) || n.text == short) {
			return protoreflect.ValueOfEnum(v.Number()), true
		}
		names = append(names, short)
	}
	d.problemf(n.pos, "%s: want one of %s, got %s", fd.Name(), strings.Join(names, ", "), shown(n))
	return protoreflect.Value{}, false
}

func (d *decoder) text(n *node, name string) (string, bool) {
	switch n.kind {
	case textKind:
		return n.text, true
	case numberKind, boolKind:
		d.problemf(n.pos, `%s: want text, got %s; write it as "%s"`, name, shown(n), n.text)
	default:
		d.problemf(n.pos, "%s: want text, got %s", name, n.kind)
	}
	return "", false
}

func (d *decoder) duration(n *node, name string) *durationpb.Duration {
	if !d.room(n.pos) {
		return nil
	}
	if n.kind == textKind {
		if v, err := time.ParseDuration(n.text); err == nil {
			if v > 0 {
				return durationpb.New(v)
			}
			d.problemf(n.pos, "%s: %s is not above 0", name, n.text)
			return nil
		}
	}
	d.problemf(n.pos, "%s: want a duration such as 30s or 1m30s, got %s", name, shown(n))
	return nil
}

func isDuration(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == proto.MessageName(&durationpb.Duration{})
}

// shown names a value for a message.
func shown(n *node) string {
	switch n.kind {
	case textKind:
		return fmt.Sprintf("the text %.40q", n.text)
	case numberKind:
		return "the number " + n.text[:min(len(n.text), 40)]
	case boolKind:
		return n.text
	default:
		return n.kind.String()
	}
}
