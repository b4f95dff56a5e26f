package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// The oldest clients define tools within the agents that have them: field 2 of LlmAgent
// was `repeated Tool tools`; today it is the names of tools. Before the message is
// decoded, such a definition moves to the tools of the request and its name takes its
// place. In the binary form a definition begins with the tag of Tool.name, which is a
// newline, and a name does not; in JSON a definition is an object.

const (
	toolNamesField = 2
	// inlineTag begins a Tool: field 1, length-delimited. No name begins with it.
	inlineTag = 1<<3 | byte(protowire.BytesType)
	// maxTools is how many tools a request may hold: the rule of its field.
	maxTools = 512
)

var (
	toolDescriptor = (&agentdv1.Tool{}).ProtoReflect().Descriptor()
	llmDescriptor  = (&agentdv1.LlmAgent{}).ProtoReflect().Descriptor()
)

// holdsAgents are the messages that lead to an LlmAgent.
var holdsAgents = func() map[protoreflect.FullName]bool {
	names := map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{
		&agentdv1.RunRequest{}, &agentdv1.CreateTurnRequest{}, &agentdv1.RunRequest_ExecuteRequest{}, &agentdv1.Agent{},
		&agentdv1.LlmAgent{}, &agentdv1.AgentTool{},
		&agentdv1.SequentialAgent{}, &agentdv1.ParallelAgent{}, &agentdv1.LoopAgent{},
	} {
		names[m.ProtoReflect().Descriptor().FullName()] = true
	}
	return names
}()

// inlineTools are the tools that one message defines within its agents.
type inlineTools struct {
	left  int          // how many values they may hold
	found []inlineTool // of different names
	named map[string]int
}

type inlineTool struct {
	*agentdv1.Tool
	at string
}

// place is the position of a field in its message. The uppermost is nil.
type place struct {
	up    *place
	field protoreflect.FieldDescriptor
	index int // of a list
	depth int
}

func (p *place) below(field protoreflect.FieldDescriptor, index int) place {
	depth := 1
	if p != nil {
		depth = p.depth + 1
	}
	return place{up: p, field: field, index: index, depth: depth}
}

func (p *place) tooDeep() bool { return p != nil && p.depth > maxDepth }

func (p *place) String() string {
	var steps []string
	for ; p != nil; p = p.up {
		step := string(p.field.Name())
		if p.field.IsList() {
			step = fmt.Sprintf("%s[%d]", step, p.index)
		}
		steps = append([]string{step}, steps...)
	}
	return strings.Join(steps, ".")
}

// binary returns a message with names in place of definitions, nil if it has none.
// What is malformed is left to the decoder.
func (in *inlineTools) binary(data []byte, m protoreflect.MessageDescriptor, at *place) (out []byte, err error) {
	if at.tooDeep() || !holdsAgents[m.FullName()] {
		return nil, nil
	}
	var counts [firstNewField]int
	done := 0 // what is before is in out, if that is not nil
	for pos := 0; pos < len(data); {
		num, typ, n := protowire.ConsumeTag(data[pos:])
		if n < 0 {
			break
		}
		size := protowire.ConsumeFieldValue(num, typ, data[pos+n:])
		if size < 0 {
			break
		}
		begin, end := pos, pos+n+size
		pos = end
		field := m.Fields().ByNumber(num)
		if typ != protowire.BytesType || field == nil || num >= firstNewField {
			continue
		}
		names := m == llmDescriptor && num == toolNamesField
		if !names && (field.Message() == nil || !holdsAgents[field.Message().FullName()]) {
			continue
		}
		// A tag's number is at least 1, and it is below firstNewField here.
		here := at.below(field, counts[num]) //nolint:gosec // see above
		counts[num]++                        //nolint:gosec // see above
		value, _ := protowire.ConsumeBytes(data[begin+n : end])
		var replacement []byte
		switch {
		case !names:
			replacement, err = in.binary(value, field.Message(), &here)
		case len(value) > 0 && value[0] == inlineTag:
			replacement, err = in.binaryTool(value, &here)
		}
		if err != nil {
			return nil, err
		}
		if replacement == nil {
			continue
		}
		out = append(out, data[done:begin]...)
		out = protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), replacement)
		done = end
	}
	if out == nil {
		return nil, nil
	}
	return append(out, data[done:]...), nil
}

func (in *inlineTools) binaryTool(data []byte, at *place) (name []byte, err error) {
	tool := &agentdv1.Tool{}
	if err := countFields(data, toolDescriptor, &in.left, maxDepth, false); err != nil {
		if u, ok := errors.AsType[*unknownFieldError](err); ok {
			_ = u.within(at.String())
		}
		return nil, err
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(data, tool); err != nil {
		return nil, noTool(at, err)
	}
	return []byte(tool.GetName()), in.add(tool, at)
}

func noTool(at *place, err error) error {
	return fault.Errorf(codeInvalid, "%s holds a tool that cannot be read: %v", at, err).
		Breaking(at.String(), fault.RuleFormat)
}

// add takes a definition. One that comes again is one.
func (in *inlineTools) add(tool *agentdv1.Tool, at *place) error {
	if i, there := in.named[tool.GetName()]; there {
		if other := in.found[i]; !proto.Equal(tool, other.Tool) {
			return otherTool(tool, at.String(), other.at)
		}
		return nil
	}
	if len(in.found) == maxTools {
		return fault.Errorf(codeInvalid, "%s defines a tool too many: at most %d are allowed", at, maxTools).
			Breaking(at.String(), fault.RuleRange).Over("tools", maxTools, maxTools+1)
	}
	if in.named == nil {
		in.named = map[string]int{}
	}
	in.named[tool.GetName()] = len(in.found)
	in.found = append(in.found, inlineTool{tool, at.String()})
	return nil
}

func otherTool(tool *agentdv1.Tool, at, before string) error {
	return fault.Errorf(codeInvalid,
		"%s defines the tool %s otherwise than %s: the tools of a request differ by their names", at,
		quote(tool.GetName()), before).
		Breaking(at, fault.RuleConflict)
}

// declare puts the definitions among the tools of a message that was decoded.
func (in *inlineTools) declare(m proto.Message) error {
	holder, ok := m.(interface {
		GetExecute() *agentdv1.RunRequest_ExecuteRequest
	})
	if len(in.found) == 0 || !ok || holder.GetExecute() == nil {
		return nil
	}
	ex := holder.GetExecute()
	declared := map[string]int{}
	for i, tool := range ex.GetTools() {
		declared[tool.GetName()] = i
	}
	for _, tool := range in.found {
		i, there := declared[tool.GetName()]
		switch {
		case !there:
			ex.Tools = append(ex.Tools, tool.Tool)
		case !proto.Equal(tool.Tool, ex.GetTools()[i]):
			return otherTool(tool.Tool, tool.at, fmt.Sprintf("execute.tools[%d]", i))
		}
	}
	return nil
}

// json is binary for the JSON form.
func (in *inlineTools) json(
	data []byte, m protoreflect.MessageDescriptor, opts protojson.UnmarshalOptions,
) ([]byte, error) {
	if !holdsAgents[m.FullName()] {
		return nil, nil
	}
	s := jsonScan{in: in, data: data, opts: opts}
	if s.value(m, nil); s.err != nil {
		return nil, s.err
	}
	if s.broken {
		in.found = nil // the decoder says what is wrong
		return nil, nil
	}
	return s.edited(), nil
}

// jsonScan finds definitions of tools in JSON, in one pass.
type jsonScan struct {
	in     *inlineTools
	data   []byte
	opts   protojson.UnmarshalOptions
	pos    int
	edits  []edit
	broken bool // what is read is no JSON
	err    error
}

// edit is a text in place of another one.
type edit struct {
	begin, end int
	text       string
}

func (s *jsonScan) edited() []byte {
	if len(s.edits) == 0 {
		return nil
	}
	var out []byte
	done := 0
	for _, e := range s.edits {
		out = append(append(out, s.data[done:e.begin]...), e.text...)
		done = e.end
	}
	return append(out, s.data[done:]...)
}

// next is the first byte of what comes next, 0 at the end.
func (s *jsonScan) next() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// items calls item for each member of a bracketed list whose first member is next.
func (s *jsonScan) items(closing byte, item func(i int)) {
	s.pos++
	for i := 0; !s.broken && s.err == nil; i++ {
		switch s.next() {
		case closing:
			s.pos++
			return
		case ',':
			s.pos++
			i--
		case 0:
			s.broken = true
		default:
			item(i)
		}
	}
}

// value reads a value, which is a message.
func (s *jsonScan) value(m protoreflect.MessageDescriptor, at *place) {
	if s.next() != '{' || at.tooDeep() || !holdsAgents[m.FullName()] {
		s.skip()
		return
	}
	s.items('}', func(int) {
		begin := s.pos
		s.text()
		if s.broken {
			return
		}
		end := s.pos
		if s.next() != ':' {
			s.broken = true
			return
		}
		s.pos++
		key := string(s.data[begin+1 : end-1])
		if m == llmDescriptor && (key == "tools" || key == "toolNames" || key == "tool_names") {
			switch s.next() {
			case '[':
				s.tools(begin, end, at)
				return
			case 'n': // null is no tools
				s.rename(begin, end)
			}
		}
		field := m.Fields().ByJSONName(key)
		if field == nil {
			field = m.Fields().ByTextName(key)
		}
		switch {
		case field == nil || field.Message() == nil:
			s.skip()
		case field.IsList() && s.next() == '[':
			s.items(']', func(i int) {
				here := at.below(field, i)
				s.value(field.Message(), &here)
			})
		default:
			here := at.below(field, 0)
			s.value(field.Message(), &here)
		}
	})
}

// rename replaces the name of a field by that of the names of tools.
func (s *jsonScan) rename(begin, end int) {
	field := llmDescriptor.Fields().ByNumber(toolNamesField)
	s.edits = append(s.edits, edit{begin, end, `"` + field.JSONName() + `"`})
}

// tools reads the tools of an agent; the name of their field is at begin.
func (s *jsonScan) tools(begin, end int, at *place) {
	field := llmDescriptor.Fields().ByNumber(toolNamesField)
	edits, empty := len(s.edits), true
	s.rename(begin, end)
	s.items(']', func(i int) {
		empty = false
		begin, object := s.pos, s.data[s.pos] == '{'
		s.skip()
		if !object || s.broken {
			return
		}
		here := at.below(field, i)
		tool := &agentdv1.Tool{}
		if err := s.opts.Unmarshal(s.data[begin:s.pos], tool); err != nil {
			s.err = noTool(&here, err)
			if u := unknownJSON(s.data[begin:s.pos], toolDescriptor); u != nil {
				s.err = u.within(here.String())
			}
			return
		}
		name, err := json.Marshal(tool.GetName())
		if err == nil {
			err = s.in.add(tool, &here)
		}
		s.err = err
		s.edits = append(s.edits, edit{begin, s.pos, string(name)})
	})
	if len(s.edits) == edits+1 && !empty {
		s.edits = s.edits[:edits] // names, or no field of ours
	}
}

// text reads a string.
func (s *jsonScan) text() {
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		s.broken = true
		return
	}
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return
		}
	}
	s.broken = true
}

// skip reads a value of any kind.
func (s *jsonScan) skip() {
	for depth := 0; ; {
		switch s.next() {
		case 0:
			s.broken = true
			return
		case '"':
			s.text()
			if s.broken {
				return
			}
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case ',', ':':
			if depth == 0 {
				s.broken = true
				return
			}
			s.pos++
		default:
			for s.pos < len(s.data) && !strings.ContainsRune(",:]}[{\" \t\r\n", rune(s.data[s.pos])) {
				s.pos++
			}
		}
		if depth <= 0 {
			s.broken = s.broken || depth < 0
			return
		}
	}
}
