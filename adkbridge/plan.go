package adkbridge

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// kind is what an agent is.
type kind int

const (
	llmKind kind = iota
	sequentialKind
	parallelKind
	loopKind
	remoteKind
)

// maxName bounds the names of agents and tools, in bytes.
const maxName = 64

// Names with a meaning for ADK or for the bridge.
const (
	transferTool    = "transfer_to_agent"
	exitLoopTool    = "exit_loop"
	askLoopTool     = "loop_continue"
	askUserTool     = "ask_user"
	taskDoneTool    = "mark_task_done"
	toolSearchTool  = "tool_search"
	modelResultTool = "set_model_response"
	stopStreamTool  = "stop_streaming"
)

// reservedTools cannot be offered by a client: ADK or the bridge would take
// calls of that name for its own.
var reservedTools = []string{transferTool, exitLoopTool, askUserTool, modelResultTool, stopStreamTool}

// node is an agent of a checked tree. It is immutable.
type node struct {
	name, description string
	path              []string
	kind              kind
	parent            *node
	kids              []*node
	loop              *node // the innermost loop around this agent, or nil
	caller            *node // the agent that calls this one as a tool, or nil
	inTool            bool  // it, or one above it, is called as a tool

	// Of an LLM agent:
	spec        *agentdv1.LlmAgent // as the client wrote it
	modelName   string
	model       Model
	fallbacks   []*node // the same agent with other models, in order; without agents below
	instruction template
	outputKey   string         // "" for none
	output      *outputSchema  // nil for any text
	tools       []*declaration // of the client
	exitLoop    bool           // may end the loop above
	askUser     bool           // may ask a person
	taskDone    bool           // may say that a task is done
	agentTools  []*agentTool   // agents that it calls as tools
	background  *background    // what it may spawn; nil for nothing
	turnOnly    bool           // its model sees only the current turn
	generation  generation
	builtins    []*genai.Tool // run by the model's provider
	toolSearch  bool          // the provider looks for deferred tools
	compaction  *compaction   // nil for never

	// Of an agent that a backend runs, which has a modelName, an outputKey, tools and the price of a model, too:
	remote *remoteAgent

	// Of a loop:
	maxIterations int // at least 1
}

// at renders the node's path for messages.
func (n *node) at() string { return pathString(n.path) }

// reaches yields the agents a model may transfer to, as ADK offers them.
func (n *node) reaches() iter.Seq[*node] {
	return func(yield func(*node) bool) {
		if n.kind == remoteKind {
			return
		}
		for _, kid := range n.kids {
			if n.kind != llmKind || !yield(kid) {
				return
			}
		}
		p := n.parent
		if p == nil || p.kind != llmKind || !yield(p) {
			return
		}
		for _, peer := range p.kids {
			if peer != n && !yield(peer) {
				return
			}
		}
	}
}

// targets are the names of the agents a model may transfer to.
func (n *node) targets() []string {
	var out []string
	for target := range n.reaches() {
		out = append(out, target.name)
	}
	return out
}

// speaksOnce reports whether a final response of this agent is its last in the turn:
// nothing leads back to it.
func (n *node) speaksOnce() bool {
	return !n.inTool && n.loop == nil && len(n.kids) == 0 && (n.parent == nil || n.parent.kind != llmKind)
}

// mayStart reports whether a turn may begin at this agent: it and all agents above it
// are LLM agents, and none is called as a tool.
func (n *node) mayStart() bool {
	if n != nil && n.inTool {
		return false
	}
	for ; n != nil; n = n.parent {
		if n.kind != llmKind {
			return false
		}
	}
	return true
}

// declaration is a tool of the client as models see it.
type declaration struct {
	name    string
	decl    *genai.FunctionDeclaration
	approve bool // each call waits for a person
	bytes   int  // of its declaration
	// deferred has the model look for it.
	deferred bool
	// effect is what a call does, as its client says.
	effect agentdv1.Tool_Effect
}

// tree is a spec that has passed all checks.
type tree struct {
	root     *node
	byName   map[string]*node
	askLoop  bool // the client wants to be asked after each iteration
	askLeave bool // and a person before that
}

// planner checks one spec. It is used by one goroutine.
type planner struct {
	limits  Limits
	resolve func(name string, keys map[string]string) (Model, error)
	keys    map[string]string       // the caller's own, by provider
	tools   map[string]*declaration // what the client offers
	opened  map[string]Model        // models by name
	schemas *schemas                // of the runner
	priced  bool                    // the price of each must be known
	price   func(model string) func(model.Usage) record.NanoUSD
	backend func(name string) (remote.Driver, error)
	share   float64           // see Config.CompactAt
	goal    *record.GoalTools // of the turn; nil for none
	tree    *tree             // being built
}

// plan checks a spec and returns the tree it describes. Its errors are
// *fault.Error.
func (r *Runner) plan(spec *record.Spec, keys session.Keys) (*tree, error) {
	set := r.settings.Load()
	p := &planner{
		limits:  set.limits,
		resolve: r.resolve,
		share:   set.compactAt,
		priced:  spec.Budget.Cost > 0 || spec.SessionBudget.Cost > 0,
		keys:    make(map[string]string, len(keys)),
		tools:   make(map[string]*declaration, len(spec.Tools)),
		opened:  map[string]Model{},
		schemas: &r.schemas,
		backend: r.backend,
		tree:    &tree{byName: map[string]*node{}},
	}
	if r.tenants != nil {
		p.resolve = r.tenants(spec.Tenant)
	}
	if r.price != nil {
		p.price = func(model string) func(model.Usage) record.NanoUSD { return r.price(spec.Tenant, model) }
	}
	for name, key := range keys {
		p.keys[name] = string(key)
	}
	if err := p.clientTools(spec.Tools); err != nil {
		return nil, err
	}
	if p.goal = spec.Goal; p.goal != nil {
		if err := p.checkGoal(spec.Goal); err != nil {
			return nil, err
		}
	}
	if spec.Agent == nil {
		return nil, fault.Errorf(codeTree, "the agent tree is missing").Breaking("agent", fault.RuleRequired)
	}
	root, err := p.agent(spec.Agent, &node{})
	if err != nil {
		return nil, err
	}
	p.tree.root = root
	return p.tree, nil
}

// clientTools checks what the client offers.
func (p *planner) clientTools(tools []*agentdv1.Tool) error {
	for i, t := range tools {
		name := t.GetName()
		switch {
		case !toolNameOK(name):
			return fault.Errorf(codeTree,
				"tools[%d]: name %q: must be a letter or _, then letters, digits and _.:-, at most %d in all", i,
				cut(name, maxName), maxName).
				Breaking(fmt.Sprintf("tools[%d].name", i), fault.RuleFormat)
		case slices.Contains(reservedTools, name):
			return fault.Errorf(codeTree, "tools[%d]: name %q is reserved", i, name).
				Breaking(fmt.Sprintf("tools[%d].name", i), fault.RuleRange)
		case t.GetDescription() == "":
			return fault.Errorf(codeTree, "tool %q: the description is empty; models choose tools by it", name).
				Breaking(fmt.Sprintf("tools[%d].description", i), fault.RuleRequired)
		case p.tools[name] != nil:
			return fault.Errorf(codeTree, "tool %q is offered twice", name).
				Breaking(fmt.Sprintf("tools[%d].name", i), fault.RuleConflict)
		}
		schema, err := p.schemas.check(t.InputSchema)
		if err != nil {
			return fault.Errorf(codeTree, "tool %q: input_schema: %w", name, err).
				Breaking(fmt.Sprintf("tools[%d].input_schema", i), fault.RuleFormat)
		}
		p.tools[name] = &declaration{
			name: name, approve: t.GetNeedsApproval(), deferred: t.GetDeferred(), effect: t.GetEffect(),
			bytes: len(name) + len(t.GetDescription()) + len(t.GetInputSchema()),
			decl: &genai.FunctionDeclaration{
				Name:                 name,
				Description:          t.GetDescription(),
				ParametersJsonSchema: schema,
			},
		}
		if name == askLoopTool {
			p.tree.askLoop, p.tree.askLeave = true, t.GetNeedsApproval()
		}
	}
	return nil
}

// agent checks a subtree. An agent is checked before those below it, so the
// recursion goes no deeper than the depth limit and visits no more agents than
// the limit of nodes, whatever was sent.
// place has the agents that n is below.
func (p *planner) agent(a *agentdv1.Agent, place *node) (*node, error) {
	n := place
	n.name, n.description = a.GetName(), a.GetDescription()
	n.path = []string{n.name}
	if above := cmp.Or(n.parent, n.caller); above != nil {
		n.path = append(slices.Clip(above.path), n.name)
		n.inTool = n.caller != nil || above.inTool
	}
	loop := n.loop
	if err := p.identity(n); err != nil {
		return nil, err
	}
	kids, err := p.shape(n, a)
	if err != nil {
		return nil, err
	}
	if n.kind == loopKind {
		loop = n
	}
	if len(kids) > p.limits.Width {
		return nil, n.errorf("%d agents below it, at most %d are allowed", len(kids), p.limits.Width)
	}
	for i, kid := range kids {
		if kid == nil {
			return nil, n.errorf("agent %d below it is null", i)
		}
		k, err := p.agent(kid, &node{parent: n, loop: loop})
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, k)
	}
	if err := p.agentTools(n, a.GetLlm().GetAgentTools()); err != nil {
		return nil, err
	}
	return n, p.checkBackground(n, a.GetLlm().GetBackgroundAgents())
}

// identity checks what all agents have. Names are unique in the tree: ADK finds
// agents by them, and authorship in the history rests on them.
func (p *planner) identity(n *node) error {
	switch {
	case len(n.path) > p.limits.Depth:
		return fault.Errorf(codeTree, "%s…: the tree has more than %d levels",
			pathString(n.path[:min(3, len(n.path))]), p.limits.Depth)
	case n.name == "":
		return n.errorf("the agent has no name")
	case !nameOK(n.name):
		return n.errorf("name %q: only letters, digits, _ and - are allowed, at most %d", cut(n.name, maxName), maxName)
	case n.name == "user":
		return n.errorf(`the name "user" is reserved for the user`)
	}
	if other := p.tree.byName[n.name]; other != nil {
		return n.errorf("the name is taken by %s; names must be unique in the tree", other.at())
	}
	p.tree.byName[n.name] = n
	if len(p.tree.byName) > p.limits.Nodes {
		return n.errorf("the tree has more than %d agents", p.limits.Nodes)
	}
	if got := len(n.description); got > p.limits.DescriptionBytes {
		return n.errorf("the description has %d bytes, at most %d are allowed", got, p.limits.DescriptionBytes)
	}
	return nil
}

// shape reads what kind of agent it is, and returns the agents below it.
func (p *planner) shape(n *node, a *agentdv1.Agent) ([]*agentdv1.Agent, error) {
	var kids []*agentdv1.Agent
	var what string
	switch t := a.GetAgentType().(type) {
	case *agentdv1.Agent_Llm:
		n.kind = llmKind
		return t.Llm.GetSubAgents(), p.llm(n, t.Llm)
	case *agentdv1.Agent_Remote:
		if n.kind = remoteKind; n.inTool {
			return nil, n.errorf("an agent of a backend cannot be called as a tool, or be below one that is")
		}
		return nil, p.remote(n, t.Remote)
	case *agentdv1.Agent_Sequential:
		n.kind, what, kids = sequentialKind, "sequential", t.Sequential.GetAgents()
	case *agentdv1.Agent_Parallel:
		n.kind, what, kids = parallelKind, "parallel", t.Parallel.GetAgents()
	case *agentdv1.Agent_Loop:
		n.kind, what, kids = loopKind, "loop", t.Loop.GetAgents()
		n.maxIterations = int(t.Loop.GetMaxIterations())
		if n.maxIterations == 0 {
			n.maxIterations = p.limits.LoopDefault
		}
		if n.maxIterations > p.limits.LoopMax {
			return nil, n.errorf("max_iterations is %d, at most %d are allowed", n.maxIterations, p.limits.LoopMax)
		}
	default:
		return nil, n.errorf("agent_type is missing: set one of llm, sequential, parallel, loop and remote")
	}
	if len(kids) == 0 {
		return nil, n.errorf("the %s agent has no agents; it needs at least one", what)
	}
	return kids, nil
}

// errorf is an error about this agent.
func (n *node) errorf(format string, args ...any) error {
	return fault.Errorf(codeTree, "%s: "+format, append([]any{n.at()}, args...)...)
}

// nameOK is the rule for names of agents. A dot would break ADK's branches,
// which are names joined with dots.
func nameOK(s string) bool {
	return s != "" && len(s) <= maxName && strings.IndexFunc(s, func(r rune) bool {
		return !isAlnum(r) && r != '_' && r != '-'
	}) < 0
}

// toolNameOK is the protocol's rule for names of tools.
func toolNameOK(s string) bool {
	return s != "" && len(s) <= maxName && !(s[0] >= '0' && s[0] <= '9') && !strings.ContainsRune(".:-", rune(s[0])) &&
		strings.IndexFunc(s, func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune("_.:-", r) }) < 0
}

func isAlnum(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// maxListed bounds how many names a message lists.
const maxListed = 50

// quoteAll lists names for a message, not all if there are many.
func quoteAll(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	quoted := make([]string, 0, min(len(names), maxListed))
	for _, n := range names[:min(len(names), maxListed)] {
		quoted = append(quoted, strconv.Quote(n))
	}
	list := strings.Join(quoted, ", ")
	if more := len(names) - maxListed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
