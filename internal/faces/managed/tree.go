package managed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A text that is to reach the model as it is must have no placeholders. Braces are said by keys that each turn sets.
const (
	openKey, closeKey = "temp:open_brace", "temp:close_brace"
	openMark          = "{" + openKey + "?}"
	closeMark         = "{" + closeKey + "?}"
)

// braces is the state of a turn in which texts are as they were.
var braces = string(marshal(map[string]string{openKey: "{", closeKey: "}"}))

var (
	literal   = strings.NewReplacer("{", openMark, "}", closeMark)
	unliteral = strings.NewReplacer(openMark, "{", closeMark, "}")
)

// instructionOf is a text as an instruction.
func instructionOf(text string) string {
	if !strings.Contains(text, "{") || !strings.Contains(text, "}") {
		return text
	}
	return literal.Replace(text)
}

func compact(data json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, data) != nil {
		return data // it was refused
	}
	return out.Bytes()
}

// built is a definition as agentd has it.
type built struct {
	tree  *agentdv1.Agent
	tools []*agentdv1.Tool
	note  *agentNote
}

func (b *built) request(name string, note *structpb.Struct) *agentdv1.ApplyAgentRequest {
	return &agentdv1.ApplyAgentRequest{Name: name, Agent: b.tree, Tools: b.tools, Metadata: note}
}

// is reports whether a registered agent says what b does.
func (b *built) is(a *agentdv1.RegisteredAgent) bool {
	note := noteOf[agentNote](a.GetMetadata())
	return note != nil && proto.Equal(a.GetAgent(), b.tree) && bytes.Equal(marshal(note), marshal(b.note)) &&
		slices.EqualFunc(a.GetTools(), b.tools, func(x, y *agentdv1.Tool) bool { return proto.Equal(x, y) })
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// maxNode is the longest name of a node of a tree.
const maxNode = 64

// nodeOf is a name as that of a node of a tree that has others.
func nodeOf(name string, taken map[string]bool) string {
	base := strings.Trim(notInNames.ReplaceAllString(name, "_"), "_-")
	if base == "" || base == "user" { // the engine calls its user so
		base = "agent"
	}
	base = base[:min(len(base), maxNode)]
	node := base
	for n := 2; taken[node]; n++ {
		end := "_" + strconv.Itoa(n)
		node = base[:min(len(base), maxNode-len(end))] + end
	}
	taken[node] = true
	return node
}

// build makes a tree of a definition. The agents of a roster are put into it as they are now.
func (f *face) build(ctx context.Context, d *definition) (*built, error) {
	if err := f.checkTools(ctx, d.tools); err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	b := &built{note: &agentNote{Name: d.name, Metadata: d.metadata}}
	if len(d.metadata) == 0 {
		b.note.Metadata = nil
	}
	llm := &agentdv1.LlmAgent{Model: d.model, Instruction: instructionOf(d.system)}
	b.tree = &agentdv1.Agent{
		Name: nodeOf(d.name, taken), Description: d.description, AgentType: &agentdv1.Agent_Llm{Llm: llm},
	}
	for _, t := range d.tools {
		schema := string(t.InputSchema)
		llm.ToolNames = append(llm.ToolNames, t.Name)
		b.tools = append(b.tools, &agentdv1.Tool{Name: t.Name, Description: t.Description, InputSchema: &schema})
	}
	for i, ref := range d.roster {
		at := fmt.Sprintf("multiagent.agents[%d]", i)
		sub, err := f.agent(ctx, ref.ID, ref.Version)
		switch {
		case f.isCode(err, notFound):
			return nil, badf("%s is %.80q: there is no such agent, or no such version of it", at, ref.ID)
		case err != nil:
			return nil, err
		case sub.GetArchiveTime() != nil:
			return nil, badf("%s is %.80q, which is archived", at, ref.ID)
		}
		if err := b.add(at, ref.ID, sub, taken); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// add puts an agent of the roster into the tree.
func (b *built) add(at, id string, sub *agentdv1.RegisteredAgent, taken map[string]bool) error {
	tree := proto.CloneOf(sub.GetAgent())
	rename(tree, taken)
	name := definitionOf(sub).name
	if tree.GetDescription() == "" { // the coordinator's model chooses by it
		tree.Description = name
	}
	llm := b.tree.GetLlm()
	llm.SubAgents = append(llm.SubAgents, tree)
	b.note.Roster = append(b.note.Roster, rosterNote{id, sub.GetVersion(), name, tree.GetName()})
	for _, t := range sub.GetTools() {
		i := slices.IndexFunc(b.tools, func(o *agentdv1.Tool) bool { return o.GetName() == t.GetName() })
		switch {
		case i < 0:
			b.tools = append(b.tools, t)
		case !proto.Equal(b.tools[i], t):
			return badf("%s is %.80q, whose tool %q is not the tool of that name that another agent has: "+
				"give one of them another name", at, id, t.GetName())
		}
	}
	return nil
}

// rename gives the nodes of a tree names that no other one has.
func rename(a *agentdv1.Agent, taken map[string]bool) {
	a.Name = nodeOf(a.GetName(), taken)
	for _, sub := range nodesBelow(a) {
		rename(sub, taken)
	}
}

// nodesBelow returns the nodes right below one.
func nodesBelow(a *agentdv1.Agent) []*agentdv1.Agent {
	switch t := a.GetAgentType().(type) {
	case *agentdv1.Agent_Llm:
		out := slices.Clone(t.Llm.GetSubAgents())
		for _, called := range t.Llm.GetAgentTools() {
			out = append(out, called.GetAgent())
		}
		return out
	case *agentdv1.Agent_Sequential:
		return t.Sequential.GetAgents()
	case *agentdv1.Agent_Parallel:
		return t.Parallel.GetAgents()
	case *agentdv1.Agent_Loop:
		return t.Loop.GetAgents()
	}
	return nil
}

// checkTools refuses tools that are called as one that a provider, or the server, runs: a client would run both.
func (f *face) checkTools(ctx context.Context, tools []toolObject) error {
	if len(tools) == 0 {
		return nil
	}
	resp, err := f.env.Sessions.GetCapabilities(ctx, connect.NewRequest(&agentdv1.GetCapabilitiesRequest{}))
	if err != nil {
		return err
	}
	reserved := resp.Msg.GetBuiltinTools()
	for _, p := range resp.Msg.GetProviders() {
		reserved = append(reserved, p.GetBuiltinTools()...)
	}
	for i, t := range tools {
		if slices.Contains(reserved, t.Name) {
			return badf("tools[%d].name is %q, which is a tool of the server or of a model's provider: "+
				"give it another name", i, t.Name)
		}
	}
	return nil
}

// definitionOf is a registered agent as it was defined.
func definitionOf(a *agentdv1.RegisteredAgent) definition {
	note := noteOf[agentNote](a.GetMetadata())
	d := nodeDefinition(a.GetAgent(), a.GetTools())
	if note == nil {
		return d
	}
	d.name, d.metadata = note.Name, note.Metadata
	for _, r := range note.Roster {
		d.roster = append(d.roster, agentRef{Type: "agent", ID: r.ID, Version: r.Version})
	}
	return d
}

// nodeDefinition is a node of a tree as an agent. One that has no model has all tools of its tree.
func nodeDefinition(a *agentdv1.Agent, tools []*agentdv1.Tool) definition {
	llm := a.GetLlm()
	d := definition{
		name: a.GetName(), model: llm.GetModel(), system: unliteral.Replace(llm.GetInstruction()),
		description: a.GetDescription(),
	}
	for _, t := range tools {
		if llm != nil && !slices.Contains(llm.GetToolNames(), t.GetName()) {
			continue
		}
		schema := json.RawMessage(t.GetInputSchema())
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		d.tools = append(d.tools, toolObject{
			Type: "custom", Name: t.GetName(), Description: t.GetDescription(), InputSchema: schema,
		})
	}
	return d
}

// body is a definition as an object, without a roster.
func (d *definition) body(id string, version int64) agentBody {
	b := agentBody{
		ID: id, Type: "agent", Version: version, Name: d.name, Model: modelObject{d.model}, System: d.system,
		Description: d.description, Tools: d.tools, MCPServers: []struct{}{}, Skills: []struct{}{},
	}
	if b.Tools == nil {
		b.Tools = []toolObject{}
	}
	return b
}

// agentObjectOf is a registered agent as an object.
func agentObjectOf(a *agentdv1.RegisteredAgent) agentObject {
	d := definitionOf(a)
	out := agentObject{
		agentBody: d.body(a.GetName(), a.GetVersion()), Metadata: d.metadata,
		CreatedAt: stampText(a.GetFirstCreateTime()), UpdatedAt: stampText(a.GetCreateTime()),
		ArchivedAt: stampText(a.GetArchiveTime()),
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	if len(d.roster) > 0 {
		out.Multiagent = &roster{Type: "coordinator"}
		for _, ref := range d.roster {
			out.Multiagent.Agents = append(out.Multiagent.Agents, ref)
		}
	}
	return out
}

// sessionAgent is the agent of a session as an object, with the agents of its roster whole.
func sessionAgent(a *agentdv1.RegisteredAgent) agentBody {
	d := definitionOf(a)
	note := noteOf[agentNote](a.GetMetadata())
	b := d.body(a.GetName(), a.GetVersion())
	if note == nil {
		return b
	}
	if note.Of != nil {
		b.ID, b.Version = note.Of.ID, note.Of.Version
	}
	if len(note.Roster) > 0 {
		b.Multiagent = &roster{Type: "coordinator"}
		for _, r := range note.Roster {
			b.Multiagent.Agents = append(b.Multiagent.Agents, threadAgent(a, []string{a.GetAgent().GetName(), r.Node}))
		}
	}
	return b
}

// threadAgent is the agent at a path of a tree as an object.
func threadAgent(a *agentdv1.RegisteredAgent, path []string) agentBody {
	if len(path) < 2 {
		return sessionAgent(a)
	}
	id, version, called := a.GetName(), a.GetVersion(), ""
	note := noteOf[agentNote](a.GetMetadata())
	if note != nil && note.Of != nil {
		id, version = note.Of.ID, note.Of.Version
	}
	node := a.GetAgent()
	for i, name := range path[1:] {
		for _, sub := range nodesBelow(node) {
			if sub.GetName() == name {
				node = sub
				break
			}
		}
		if note != nil && i == 0 {
			for _, r := range note.Roster {
				if r.Node == name {
					id, version = r.ID, r.Version
					if len(path) == 2 {
						called = r.Name
					}
				}
			}
		}
	}
	d := nodeDefinition(node, a.GetTools())
	d.name = cmp.Or(called, d.name)
	return d.body(id, version)
}
