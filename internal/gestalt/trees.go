package gestalt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
)

// Rules return what is wrong with a tree and its tools, or nil.
type Rules func(*agentdv1.Agent, []*agentdv1.Tool) error

// trees are the agents of the file, and what it says of tools. They are immutable.
type trees struct {
	all       []*agentdv1.Agent
	chosen    *agentdv1.Agent // the default
	tools     map[string]*agentdv1.Tool
	rules     Rules
	providers []*agentdv1.Provider // of the daemon
}

// loadTrees reads the file of the agents and checks each.
func loadTrees(s *settings, rules Rules) (*trees, error) {
	file, err := agentfile.ReadTrees(s.agents)
	if err != nil {
		return nil, invalidf("config.agents: %w", err)
	}
	t := &trees{all: file.Agents, chosen: file.Agents[0], tools: map[string]*agentdv1.Tool{}, rules: rules}
	for _, tool := range file.Tools {
		if t.tools[tool.GetName()] != nil {
			return nil, invalidf("config.agents: %s: tool %q is there twice", file.Name, tool.GetName())
		}
		t.tools[tool.GetName()] = tool
	}
	for _, a := range t.all {
		if err := rules(a, t.stubs(a)); err != nil {
			return nil, invalidf("config.agents: %s: %w", file.Name, err)
		}
	}
	if s.defaultAgent == "" {
		return t, nil
	}
	if t.chosen = t.named(s.defaultAgent); t.chosen == nil {
		return nil, invalidf("config.default_agent is %q, %s has %s", s.defaultAgent, file.Name, t.names())
	}
	return t, nil
}

// stubs declare all tools that a tree names, as the host will: only then it is known what they are.
func (t *trees) stubs(a *agentdv1.Agent) (out []*agentdv1.Tool) {
	seen := map[string]bool{}
	for _, llm := range llmsOf(a) {
		for _, name := range llm.GetToolNames() {
			if !seen[name] {
				out = append(out, &agentdv1.Tool{Name: name, Description: name})
			}
			seen[name] = true
		}
	}
	return out
}

func (t *trees) named(name string) *agentdv1.Agent {
	for _, a := range t.all {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// names lists the agents for messages.
func (t *trees) names() string {
	var names []string
	for _, a := range t.all {
		names = append(names, a.GetName())
	}
	return strings.Join(names, ", ")
}

// tree returns a copy of the tree that the host means: that of an agent of the file, or the default one with a model.
func (t *trees) tree(model string) (*agentdv1.Agent, error) {
	if model == "" {
		return proto.CloneOf(t.chosen), nil
	}
	if a := t.named(model); a != nil {
		return proto.CloneOf(a), nil
	}
	provider := providerOf(model, t.providers)
	i := slices.IndexFunc(t.providers, func(p *agentdv1.Provider) bool { return p.GetName() == provider })
	if i < 0 || !t.providers[i].GetHasKey() {
		var served []string
		for _, p := range t.providers {
			if p.GetHasKey() {
				served = append(served, p.GetName())
			}
		}
		return nil, invalidf("model %.200q is neither an agent of the file (%s) nor served here (by %s)",
			model, t.names(), strings.Join(served, ", "))
	}
	tree := proto.CloneOf(t.chosen)
	for _, llm := range llmsOf(tree) {
		llm.Model = model
	}
	if err := t.rules(tree, t.stubs(tree)); err != nil {
		return nil, invalidf("model %.200q: %w", model, err)
	}
	return tree, nil
}

// openAI matches the names of models that are OpenAI's.
var openAI = regexp.MustCompile(`^(gpt-|chatgpt-|o1|o3|o4)`)

// providerOf is who serves a model, by its name as LlmAgent.model has it.
func providerOf(model string, known []*agentdv1.Provider) string {
	name, _, outright := strings.Cut(model, "/")
	switch {
	case outright, slices.ContainsFunc(known, func(p *agentdv1.Provider) bool { return p.GetName() == model }):
		return name
	case strings.HasPrefix(model, "claude-"):
		return "anthropic"
	case openAI.MatchString(model):
		return "openai"
	default:
		return "gemini"
	}
}

// llmsOf returns the LLM agents of a tree.
func llmsOf(a *agentdv1.Agent) (out []*agentdv1.LlmAgent) {
	if llm := a.GetLlm(); llm != nil {
		out = append(out, llm)
	}
	for _, below := range agentfile.Children(a) {
		out = append(out, llmsOf(below)...)
	}
	return out
}

// speaker returns the agent whose text is the output of a tree; nil if several speak at once.
func speaker(a *agentdv1.Agent) *agentdv1.LlmAgent {
	switch {
	case a.GetLlm() != nil:
		return a.GetLlm()
	case a.GetParallel() != nil:
		return nil
	}
	below := agentfile.Children(a)
	if len(below) == 0 {
		return nil
	}
	return speaker(below[len(below)-1])
}

// setSchema makes a JSON Schema that of the output of a tree.
func setSchema(tree *agentdv1.Agent, schema *structpb.Struct) error {
	if schema == nil {
		return nil
	}
	last := speaker(tree)
	if last == nil {
		return invalidf("response_schema: several agents of %q speak at once, none of them has the last word",
			tree.GetName())
	}
	text, err := jsonText(ofObject(schema))
	if err != nil {
		return invalidf("response_schema: %w", err)
	}
	last.OutputSchema = &text
	return nil
}

// otherTypes are the types of values that are no objects.
var otherTypes = map[string]bool{
	"string": true, "number": true, "integer": true, "boolean": true, "array": true, "null": true,
}

// ofObject is a schema of objects, as the output of an agent has to be one: that of another value becomes that of the
// key value. References lead to where they did.
func ofObject(schema *structpb.Struct) *structpb.Struct {
	fields := schema.GetFields()
	kind, typed := fields["type"]
	if typed && !otherTypes[kind.GetStringValue()] || !typed && fields["properties"] != nil {
		return schema
	}
	inner := proto.CloneOf(schema)
	required := &structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("value")}}
	properties := &structpb.Struct{Fields: map[string]*structpb.Value{"value": structpb.NewStructValue(inner)}}
	out := &structpb.Struct{Fields: map[string]*structpb.Value{
		"type": structpb.NewStringValue("object"), "required": structpb.NewListValue(required),
		"properties": structpb.NewStructValue(properties), "additionalProperties": structpb.NewBoolValue(false),
	}}
	for _, key := range []string{"$defs", "definitions", "$schema"} {
		if v := inner.GetFields()[key]; v != nil {
			out.Fields[key] = v
			delete(inner.GetFields(), key)
		}
	}
	return out
}

// setOptions changes the settings of all models of a tree.
func setOptions(tree *agentdv1.Agent, options *structpb.Struct) error {
	if len(options.GetFields()) == 0 {
		return nil
	}
	text, err := protojson.MarshalOptions{}.Marshal(options)
	if err != nil {
		return invalidf("model_options: %w", err)
	}
	settings := &agentdv1.GenerationSettings{}
	if err := protojson.Unmarshal(text, settings); err != nil {
		return invalidf("model_options: %s; there are %s", reason(err), fieldsOf(settings))
	}
	for _, llm := range llmsOf(tree) {
		if llm.GetGeneration() == nil {
			llm.Generation = &agentdv1.GenerationSettings{}
		}
		into := llm.GetGeneration().ProtoReflect()
		settings.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			into.Set(fd, v) // settings are not changed any more
			return true
		})
	}
	return nil
}

// reason is an error of protojson without its name and its place in a text that nobody has seen.
func reason(err error) string {
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	if strings.HasPrefix(text, "(line") {
		_, text, _ = strings.Cut(text, "): ")
	}
	return text
}

// fieldsOf lists the fields of a message.
func fieldsOf(m proto.Message) string {
	var names []string
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// offer gives the tools of the host to the agents of a tree: to those that name tools these, as far as there are, to
// others all.
func offer(tree *agentdv1.Agent, tools []hostTool) {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	for _, llm := range llmsOf(tree) {
		if len(llm.GetToolNames()) == 0 {
			llm.ToolNames = slices.Clone(names)
			continue
		}
		llm.ToolNames = slices.DeleteFunc(llm.GetToolNames(), func(name string) bool {
			return !slices.Contains(names, name)
		})
	}
}

// declare is a tool of the host as the daemon has it; the file may say more of it.
func (t *trees) declare(h *hostTool) *agentdv1.Tool {
	tool := &agentdv1.Tool{Name: h.Name, Description: h.Description, Timeout: h.serverTimeout()}
	if h.Schema != "" {
		tool.InputSchema = new(h.Schema)
	}
	if said := t.tools[h.Name]; said != nil {
		tool.NeedsApproval, tool.Deferred, tool.Effect = said.GetNeedsApproval(), said.GetDeferred(), said.GetEffect()
	}
	return tool
}

// check is what is wrong with a tree and its tools, as an error of a turn.
func (t *trees) check(tree *agentdv1.Agent, tools []*agentdv1.Tool) error {
	if err := t.rules(tree, tools); err != nil {
		return fmt.Errorf("the agent %q cannot run: %w", tree.GetName(), err)
	}
	return nil
}
