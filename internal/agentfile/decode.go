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
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// limits bounds a file.
var limits = yamlfile.Limits{
	Bytes: MaxBytes, Tokens: 200_000, Depth: 64, Anchors: 100, Values: 20_000, Holds: "an agent, and perhaps tools",
}

// maxMessage bounds the tree and its tools, in bytes; servers take 4 MiB.
const maxMessage = 3 << 20

// start is the place of what is wrong with a whole file.
var start = yamlfile.Position{Line: 1, Column: 1}

// decoder turns nodes into messages. It continues after a problem.
type decoder struct {
	file     *File
	problems Problems
	path     []string // of the agent that is read
	where    string   // of a tool that is read, in place of path
	// noCommand allows tools without a command.
	noCommand bool
}

// Parse reads a file's text. name is used in messages. Its errors are of type
// Problems.
func Parse(name string, data []byte) (*File, error) {
	d := &decoder{file: &File{Name: name, places: map[place]yamlfile.Position{}}}
	root, problems := yamlfile.Parse(data, limits)
	for _, p := range problems {
		d.problemf(p.Position, "%s", p.Message)
	}
	if root != nil {
		d.root(root)
	}
	if size := d.size(); size > maxMessage {
		d.problemf(start, "the tree and its tools have %d bytes, at most %d can be sent", size, maxMessage)
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

func (d *decoder) problemf(pos yamlfile.Position, format string, args ...any) {
	where := d.where
	if where == "" {
		where = strings.Join(d.path, "/")
	}
	d.problems = append(d.problems, Problem{
		File:     d.file.Name,
		Position: pos,
		Where:    where,
		Message:  fmt.Sprintf(format, args...),
	})
}

// root reads a file: an agent with tools, or an agent alone.
func (d *decoder) root(n *yamlfile.Node) {
	if n.Kind != yamlfile.Mapping {
		d.problemf(n.Pos, "a file holds a mapping with agent and tools, got %s", n.Kind)
		return
	}
	if n.Get("agent") == nil && n.Get("tools") == nil {
		d.file.Agent = d.agent(n)
		return
	}
	for _, p := range n.Pairs {
		switch p.Key {
		case "agent":
			d.file.Agent = d.agent(p.Value)
		case "tools":
			d.tools(p.Value)
		default:
			d.problemf(p.Pos, "%s", unknown(p.Key, []string{"agent", "tools"}))
		}
	}
	if n.Get("agent") == nil {
		d.problemf(n.Pos, "agent is missing")
	}
}

func (d *decoder) agent(n *yamlfile.Node) *agentdv1.Agent {
	a := &agentdv1.Agent{}
	d.message(n, a.ProtoReflect(), nil)
	return a
}

func (d *decoder) tools(n *yamlfile.Node) {
	if n.Kind != yamlfile.List {
		d.problemf(n.Pos, "tools: want a list, got %s", n.Kind)
		return
	}
	for i, item := range n.Items {
		d.where = fmt.Sprintf("tools[%d]", i)
		if name := item.Get("name"); name != nil && name.Kind == yamlfile.Text && name.Text != "" {
			d.where = "tool " + name.Text
		}
		t := &Tool{Tool: &agentdv1.Tool{}}
		d.message(item, t.Tool.ProtoReflect(), map[string]func(*yamlfile.Node){
			"command":  func(n *yamlfile.Node) { t.Command = d.command(n) },
			"pass_env": func(n *yamlfile.Node) { t.PassEnv = d.passEnv(n) },
		})
		if item.Kind == yamlfile.Mapping && item.Get("command") == nil && !d.noCommand {
			d.problemf(item.Pos, "no command: "+
				"name the program that runs the tool and its arguments, as in command: [./greet.sh, --json]")
		}
		d.file.Tools = append(d.file.Tools, t)
		d.where = ""
	}
}

// command reads a program and its arguments.
func (d *decoder) command(n *yamlfile.Node) []string {
	if n.Kind != yamlfile.List || len(n.Items) == 0 {
		d.problemf(n.Pos, "command: want a list of the program and its arguments, as in [grep, -c, x]; "+
			"no shell takes it apart")
		return nil
	}
	var out []string
	for _, item := range n.Items {
		if text, ok := d.text(item, "command"); ok {
			if strings.ContainsRune(text, 0) {
				d.problemf(item.Pos, "command: arguments cannot hold the character 0")
			}
			out = append(out, text)
		}
	}
	if len(out) > 0 && out[0] == "" {
		d.problemf(n.Pos, "command: the program is empty")
	}
	return out
}

// passEnv reads names of variables.
func (d *decoder) passEnv(n *yamlfile.Node) []string {
	if n.Kind != yamlfile.List {
		d.problemf(n.Pos, "pass_env: want a list of names of environment variables, as in [OPENAI_API_KEY]")
		return nil
	}
	var out []string
	for _, item := range n.Items {
		if text, ok := d.text(item, "pass_env"); ok {
			if text == "" || strings.ContainsAny(text, "=\x00") {
				d.problemf(item.Pos,
					"pass_env: %q is no name of a variable; its value comes from the environment", text)
			}
			out = append(out, text)
		}
	}
	return out
}

// message reads the fields of a mapping. more are fields that the message does
// not have.
func (d *decoder) message(n *yamlfile.Node, m protoreflect.Message, more map[string]func(*yamlfile.Node)) {
	_, isAgent := m.Interface().(*agentdv1.Agent)
	if isAgent {
		name := "?"
		if v := n.Get("name"); v != nil && v.Kind == yamlfile.Text && v.Text != "" {
			name = v.Text
		}
		d.path = append(d.path, name)
		defer func() { d.path = d.path[:len(d.path)-1] }()
	}
	d.file.places[place{m.Interface(), "", -1}] = n.Pos
	if n.Kind != yamlfile.Mapping {
		d.problemf(n.Pos, "want a mapping of fields, got %s", n.Kind)
		return
	}
	desc := m.Descriptor()
	chosen := map[protoreflect.Name]string{} // by oneof
	for _, p := range n.Pairs {
		if f := more[p.Key]; f != nil {
			f(p.Value)
			continue
		}
		fd := desc.Fields().ByName(protoreflect.Name(p.Key))
		if fd == nil {
			d.problemf(p.Pos, "%s", unknown(p.Key, fields(desc, more)))
			continue
		}
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() {
			if other := chosen[of.Name()]; other != "" {
				d.problemf(p.Pos, "%s and %s: only one of %s may be there", other, p.Key, oneof(of))
				continue
			}
			chosen[of.Name()] = p.Key
		}
		d.file.places[place{m.Interface(), p.Key, -1}] = p.Value.Pos
		d.field(p.Value, m, fd)
	}
}

// field reads one field.
func (d *decoder) field(n *yamlfile.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	name := string(fd.Name())
	switch {
	case fd.IsList():
		d.list(n, m, fd)
	case fd.IsMap():
		d.problemf(n.Pos, "%s is not understood in a file", name)
	case isDuration(fd):
		if v := d.duration(n, name); v != nil {
			m.Set(fd, protoreflect.ValueOfMessage(v.ProtoReflect()))
		}
	case fd.Message() != nil:
		d.message(n, m.Mutable(fd).Message(), nil)
	case strings.HasSuffix(name, "_schema") && fd.Kind() == protoreflect.StringKind && n.Kind == yamlfile.Mapping:
		var b strings.Builder
		if err := jsonText(&b, n); err != nil {
			d.problemf(n.Pos, "%s: %v", name, err)
			return
		}
		m.Set(fd, protoreflect.ValueOfString(b.String()))
	default:
		if v, ok := d.scalar(n, fd); ok {
			m.Set(fd, v)
		}
	}
}

func (d *decoder) list(n *yamlfile.Node, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	if n.Kind != yamlfile.List {
		d.problemf(n.Pos, "%s: want a list, got %s", fd.Name(), n.Kind)
		return
	}
	list := m.Mutable(fd).List()
	for _, item := range n.Items {
		d.file.places[place{m.Interface(), string(fd.Name()), list.Len()}] = item.Pos
		if fd.Message() != nil {
			d.message(item, list.AppendMutable().Message(), nil)
		} else if v, ok := d.scalar(item, fd); ok {
			list.Append(v)
		}
	}
}

// scalar reads a value that is no message.
func (d *decoder) scalar(n *yamlfile.Node, fd protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	name := string(fd.Name())
	switch fd.Kind() {
	case protoreflect.StringKind:
		text, ok := d.text(n, name)
		return protoreflect.ValueOfString(text), ok
	case protoreflect.BoolKind:
		if n.Kind == yamlfile.Bool {
			return protoreflect.ValueOfBool(n.Text == "true"), true
		}
		d.problemf(n.Pos, "%s: want true or false, got %s", name, n.Shown())
	case protoreflect.Uint32Kind:
		if v, err := strconv.ParseUint(n.Text, 10, 32); n.Kind == yamlfile.Number && err == nil {
			return protoreflect.ValueOfUint32(uint32(v)), true
		}
		d.problemf(n.Pos, "%s: want a whole number from 0 to %d, got %s", name, uint32(math.MaxUint32), n.Shown())
	case protoreflect.Int32Kind:
		if v, err := strconv.ParseInt(n.Text, 10, 32); n.Kind == yamlfile.Number && err == nil {
			return protoreflect.ValueOfInt32(int32(v)), true
		}
		d.problemf(n.Pos, "%s: want a whole number, got %s", name, n.Shown())
	case protoreflect.Int64Kind:
		if v, err := strconv.ParseInt(n.Text, 10, 64); n.Kind == yamlfile.Number && err == nil {
			return protoreflect.ValueOfInt64(v), true
		}
		d.problemf(n.Pos, "%s: want a whole number, got %s", name, n.Shown())
	case protoreflect.EnumKind:
		return d.enum(n, fd)
	case protoreflect.DoubleKind:
		if v, err := strconv.ParseFloat(n.Text, 64); n.Kind == yamlfile.Number && err == nil {
			return protoreflect.ValueOfFloat64(v), true
		}
		d.problemf(n.Pos, "%s: want a number, got %s", name, n.Shown())
	default:
		d.problemf(n.Pos, "%s is not understood in a file", name)
	}
	return protoreflect.Value{}, false
}

// enum reads a value by its name, as it is in the protocol or without the prefix
// that all of them have, in lower case.
func (d *decoder) enum(n *yamlfile.Node, fd protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	values := fd.Enum().Values()
	var names []string
	for i := range values.Len() {
		v := values.Get(i)
		prefix, zero := strings.CutSuffix(string(values.Get(0).Name()), "UNSPECIFIED")
		if !zero || i == 0 {
			continue
		}
		short := strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix))
		if n.Kind == yamlfile.Text && (n.Text == string(v.Name()) || n.Text == short) {
			return protoreflect.ValueOfEnum(v.Number()), true
		}
		names = append(names, short)
	}
	d.problemf(n.Pos, "%s: want one of %s, got %s", fd.Name(), strings.Join(names, ", "), n.Shown())
	return protoreflect.Value{}, false
}

func (d *decoder) text(n *yamlfile.Node, name string) (string, bool) {
	switch n.Kind {
	case yamlfile.Text:
		return n.Text, true
	case yamlfile.Number, yamlfile.Bool:
		d.problemf(n.Pos, `%s: want text, got %s; write it as "%s"`, name, n.Shown(), n.Text)
	default:
		d.problemf(n.Pos, "%s: want text, got %s", name, n.Kind)
	}
	return "", false
}

func (d *decoder) duration(n *yamlfile.Node, name string) *durationpb.Duration {
	if n.Kind == yamlfile.Text {
		if v, err := time.ParseDuration(n.Text); err == nil {
			if v > 0 {
				return durationpb.New(v)
			}
			d.problemf(n.Pos, "%s: %s is not above 0", name, n.Text)
			return nil
		}
	}
	d.problemf(n.Pos, "%s: want a duration such as 30s or 1m30s, got %s", name, n.Shown())
	return nil
}

func isDuration(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == proto.MessageName(&durationpb.Duration{})
}
