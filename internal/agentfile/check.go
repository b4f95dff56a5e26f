package agentfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// Rules refuses a tree that cannot run, with the first reason there is. It must
// not keep or change what it is given.
type Rules func(*agentdv1.Agent, []*agentdv1.Tool) error

// blank is a model that any tree may have while other things of it are checked.
const blank = "echo"

// Check returns everything that rules has against the file.
//
// A tree that is right is built up from nothing: tools, then agents, then their
// fields, one after the other. Each is kept if rules takes it and reported, at its
// place in the file, if not; so no problem hides another one.
func (f *File) Check(rules Rules) Problems {
	c := &checker{file: f, rules: rules}
	c.tools()
	if c.root = c.shell(f.Agent, nil, nil); c.root != nil {
		c.fields(c.root)
	}
	if len(c.problems) == 0 { // what nobody has thought of above
		if err := rules(f.Agent, f.Declarations()); err != nil {
			c.report(f.at(f.Agent, "", -1), "", err.Error())
		}
	}
	return c.problems.sorted()
}

// checker is one check of a file.
type checker struct {
	file     *File
	rules    Rules
	problems Problems
	offered  []*agentdv1.Tool // that are right, without their schemas
	bad      []string         // names of those that are not
	root     *draft
	count    int // of agents
}

func (c *checker) report(pos yamlfile.Position, where, message string) {
	c.problems = append(c.problems, Problem{File: c.file.Name, Position: pos, Where: where, Message: message})
}

// tools checks each tool by what it says, one field after the other.
func (c *checker) tools() {
	root := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: blank}}}
	for i, t := range c.file.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		if t.GetName() != "" {
			where = "tool " + t.GetName()
		}
		draft := &agentdv1.Tool{Description: "a tool"}
		failed := false
		try := func(field string, set func()) {
			before := proto.CloneOf(draft)
			set()
			if err := c.rules(root, append(slices.Clip(c.offered), draft)); err != nil {
				text := strings.TrimPrefix(err.Error(), fmt.Sprintf("tool %q: ", t.GetName()))
				text = strings.TrimPrefix(text, fmt.Sprintf("tools[%d]: ", len(c.offered)))
				c.report(c.file.at(t.Tool, field, -1), where, text)
				draft, failed = before, true
			}
		}
		try("name", func() { draft.Name = t.GetName() })
		if failed {
			c.bad = append(c.bad, t.GetName())
			continue
		}
		try("description", func() { draft.Description = t.GetDescription() })
		try("input_schema", func() { draft.InputSchema = t.InputSchema })
		try("timeout", func() { draft.Timeout = t.GetTimeout() })
		try("deferred", func() { draft.Deferred = t.GetDeferred() })
		try("effect", func() { draft.Effect = t.GetEffect() })
		draft.InputSchema = nil
		c.offered = append(c.offered, draft)
	}
}

// draft is an agent of the tree that is built up.
type draft struct {
	agent  *agentdv1.Agent // of the file
	name   string          // the file's, or another one where that is refused
	path   []string        // of the file
	parent *draft
	kids   []*draft
	whole  bool            // has its own kind, also without agents below it
	fields *agentdv1.Agent // the fields that are kept so far

	// Of an agent that the one above calls as a tool: how, as the file says, and what of that is kept so far.
	called, call *agentdv1.AgentTool
}

// build returns the tree below a draft as a message.
func (d *draft) build() *agentdv1.Agent {
	out := &agentdv1.Agent{Name: d.name, Description: d.fields.GetDescription()}
	var kids []*agentdv1.Agent
	var called []*agentdv1.AgentTool
	for _, k := range d.kids {
		if k.call == nil {
			kids = append(kids, k.build())
			continue
		}
		call := proto.CloneOf(k.call)
		call.Agent = k.build()
		called = append(called, call)
	}
	switch d.agent.GetAgentType().(type) {
	case *agentdv1.Agent_Sequential:
		out.AgentType = &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: kids}}
	case *agentdv1.Agent_Parallel:
		out.AgentType = &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: kids}}
	case *agentdv1.Agent_Loop:
		out.AgentType = &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{
			Agents:        kids,
			MaxIterations: d.fields.GetLoop().GetMaxIterations(),
		}}
	case *agentdv1.Agent_Llm:
		llm := proto.CloneOf(d.fields.GetLlm())
		llm.SubAgents, llm.AgentTools = kids, called
		out.AgentType = &agentdv1.Agent_Llm{Llm: llm}
	case *agentdv1.Agent_Remote:
		out.AgentType = &agentdv1.Agent_Remote{Remote: proto.CloneOf(d.fields.GetRemote())}
	}
	if !d.whole && len(kids) == 0 && d.agent.GetLlm() == nil && d.agent.GetRemote() == nil {
		out.AgentType = &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: blank}}
	}
	return out
}

// try reports why the tree as it is now is refused, with the place.
func (c *checker) try(d *draft, pos yamlfile.Position) bool {
	if len(c.problems) > maxProblems {
		return false // enough has been found
	}
	err := c.rules(c.root.build(), c.offered)
	if err == nil {
		return true
	}
	c.report(pos, strings.Join(d.path, "/"), d.shorten(err.Error()))
	return false
}

// shorten takes away the agent's path, of which rules begin their messages: it
// is told apart.
func (d *draft) shorten(text string) string {
	var names, quoted []string
	for a := d; a != nil; a = a.parent {
		names = append(names, a.name)
		quoted = append(quoted, a.name)
	}
	quoted[0] = strconv.Quote(quoted[0])
	for _, path := range [][]string{names, quoted} {
		slices.Reverse(path)
		if rest, ok := strings.CutPrefix(text, strings.Join(path, "/")+": "); ok {
			return rest
		}
	}
	if d.call != nil { // about how the one above calls it
		if rest, ok := strings.CutPrefix(d.parent.shorten(text), "agent_tools["); ok {
			_, rest, _ = strings.Cut(rest, "]: ")
			return rest
		}
	}
	return text
}

// shell adds an agent and those below it by name and kind alone; called is how the one above calls it, nil for an agent
// that is no tool.
func (c *checker) shell(a *agentdv1.Agent, parent *draft, called *agentdv1.AgentTool) *draft {
	c.count++
	d := &draft{agent: a, name: a.GetName(), parent: parent, fields: &agentdv1.Agent{}, called: called}
	if called != nil {
		d.call = &agentdv1.AgentTool{ToolName: fmt.Sprintf("agent_%d", c.count), Description: "an agent"}
	}
	if parent != nil {
		d.path = slices.Clip(parent.path)
		parent.kids = append(parent.kids, d)
	} else {
		c.root = d
	}
	d.path = append(d.path, a.GetName())
	switch a.GetAgentType().(type) {
	case *agentdv1.Agent_Llm:
		d.fields.AgentType = &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: blank}}
	case *agentdv1.Agent_Loop:
		d.fields.AgentType = &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{}}
	case *agentdv1.Agent_Remote:
		d.fields.AgentType = &agentdv1.Agent_Remote{Remote: &agentdv1.RemoteAgent{Backend: blank}}
	}
	if !c.try(d, c.file.at(a, "name", -1)) {
		// Under another name it may stay; else there is no room for it.
		d.name = fmt.Sprintf("agent-%d", c.count)
		if c.rules(c.root.build(), c.offered) != nil {
			if parent != nil {
				parent.kids = parent.kids[:len(parent.kids)-1]
			}
			return nil
		}
	}
	for _, kid := range below(a) {
		c.shell(kid, d, nil)
	}
	for _, t := range a.GetLlm().GetAgentTools() {
		if t.GetAgent() == nil {
			c.report(c.file.at(t, "", -1), strings.Join(d.path, "/"),
				"agent is missing: an agent tool is one with how it is called")
			continue
		}
		c.shell(t.GetAgent(), d, t)
	}
	return d
}

// fields adds what an agent says besides, and continues below it.
func (c *checker) fields(d *draft) {
	a := d.agent
	d.whole = true
	if !c.try(d, c.file.at(a, "", -1)) {
		d.whole = false
	}
	c.set(d, a, "description", func() { d.fields.Description = a.GetDescription() })
	if loop := a.GetLoop(); loop.GetMaxIterations() > 0 {
		c.set(d, loop, "max_iterations", func() { d.fields.GetLoop().MaxIterations = loop.GetMaxIterations() })
	}
	if llm := a.GetLlm(); llm != nil {
		c.set(d, llm, "model", func() { d.fields.GetLlm().Model = llm.GetModel() })
		c.own(d, llm.ProtoReflect(), func() protoreflect.Message { return d.fields.GetLlm().ProtoReflect() })
	}
	if remote := a.GetRemote(); remote != nil {
		c.set(d, remote, "backend", func() { d.fields.GetRemote().Backend = remote.GetBackend() })
		c.own(d, remote.ProtoReflect(), func() protoreflect.Message { return d.fields.GetRemote().ProtoReflect() })
	}
	c.calls(d)
	for _, kid := range d.kids {
		c.fields(kid)
	}
}

// calls adds how an agent is called as a tool.
func (c *checker) calls(d *draft) {
	t := d.called
	if t == nil {
		return
	}
	try := func(field string, apply func()) {
		before := proto.CloneOf(d.call)
		if apply(); !c.try(d, c.file.at(t, field, -1)) {
			d.call = before
		}
	}
	if d.name == d.agent.GetName() || t.GetToolName() != "" { // else the name is wrong already
		try("tool_name", func() { d.call.ToolName = t.GetToolName() })
	}
	try("branch", func() { d.call.Branch = t.GetBranch() })
	try("max_depth", func() { d.call.MaxDepth = t.GetMaxDepth() })
	try("history", func() { d.call.History = t.GetHistory() })
	try("description", func() { d.call.Description = t.GetDescription() })
}

// set keeps a field if the tree with it is taken.
func (c *checker) set(d *draft, message any, field string, apply func()) {
	before := proto.CloneOf(d.fields)
	apply()
	if !c.try(d, c.file.at(message, field, -1)) {
		d.fields = before
	}
}

// own adds the fields of an agent with a model or a backend, but these, lists element by element. to is the draft's
// message, which each refusal replaces.
func (c *checker) own(d *draft, from protoreflect.Message, to func() protoreflect.Message) {
	desc := from.Descriptor().Fields()
	var search []element
	for i := range desc.Len() {
		fd := desc.Get(i)
		if !from.Has(fd) || fd.Message() != nil && fd.IsList() ||
			fd.Name() == "model" && d.agent.GetLlm() != nil || fd.Name() == "backend" {
			continue
		}
		if !fd.IsList() {
			c.set(d, from.Interface(), string(fd.Name()), func() {
				to().Set(fd, from.Get(fd))
			})
			continue
		}
		list := from.Get(fd).List()
		for j := range list.Len() {
			if fd.Name() == "tool_names" && c.refused(list.Get(j).String()) {
				continue // reported at the tool
			}
			if c.searches(fd, list.Get(j).String()) {
				search = append(search, element{fd, j})
				continue
			}
			before := proto.CloneOf(d.fields)
			to().Mutable(fd).List().Append(list.Get(j))
			if !c.try(d, c.file.at(from.Interface(), string(fd.Name()), j)) {
				d.fields = before
			}
		}
	}
	if len(search) == 0 {
		return
	}
	before, at := proto.CloneOf(d.fields), search[0]
	for _, e := range search {
		to().Mutable(e.field).List().Append(from.Get(e.field).List().Get(e.index))
		if e.field.Name() == "builtin_tools" {
			at = e
		}
	}
	if !c.try(d, c.file.at(from.Interface(), string(at.field.Name()), at.index)) {
		d.fields = before
	}
}

// element is an element of a list of an agent.
type element struct {
	field protoreflect.FieldDescriptor
	index int
}

// searches reports whether an element is a tool that the model has to look for, or
// that with which it does: one needs the other, so they are added together.
func (c *checker) searches(fd protoreflect.FieldDescriptor, name string) bool {
	if fd.Name() == "tool_names" {
		return slices.ContainsFunc(c.offered, func(t *agentdv1.Tool) bool {
			return t.GetName() == name && t.GetDeferred()
		})
	}
	return fd.Name() == "builtin_tools" && name == "tool_search"
}

// refused reports whether a tool is in the file and cannot be offered.
func (c *checker) refused(name string) bool {
	return slices.Contains(c.bad, name) &&
		!slices.ContainsFunc(c.offered, func(t *agentdv1.Tool) bool { return t.GetName() == name })
}

// Children returns the agents right below another one, also those that it calls as tools.
func Children(a *agentdv1.Agent) []*agentdv1.Agent {
	out := below(a)
	for _, t := range a.GetLlm().GetAgentTools() {
		out = append(out, t.GetAgent())
	}
	return out
}

// below returns the agents right below another one that it calls not as tools.
func below(a *agentdv1.Agent) []*agentdv1.Agent {
	return slices.Concat(
		a.GetLlm().GetSubAgents(), a.GetSequential().GetAgents(),
		a.GetParallel().GetAgents(), a.GetLoop().GetAgents())
}
