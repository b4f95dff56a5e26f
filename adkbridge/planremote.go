package adkbridge

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/session/fault"
)

// What an agent of a backend may do where its spec does not say.
const (
	defaultAnswers       = 50
	maxAnswers           = 1000
	defaultRemoteTimeout = 10 * time.Minute
)

// remoteAgent is an agent that a backend runs. It is immutable.
type remoteAgent struct {
	backend string
	driver  remote.Driver // nil in a runner without backends
	spec    remote.Spec   // as the client wrote it
	// answers is how many answers a message may have, and timeout how long they may take together.
	answers int
	timeout time.Duration
}

// remote checks what only agents of backends have.
func (p *planner) remote(n *node, a *agentdv1.RemoteAgent) error {
	n.modelName = a.GetModel()
	out := &remoteAgent{
		backend: a.GetBackend(), answers: int(a.GetMaxTurns()), timeout: a.GetTimeout().AsDuration(),
		spec: remote.Spec{Instruction: a.GetInstruction(), Model: a.GetModel(), TerminalTool: a.GetTerminalTool()},
	}
	n.remote = out
	if out.answers > maxAnswers {
		return n.errorf("max_turns is %d, at most %d are allowed", out.answers, maxAnswers)
	}
	if out.answers == 0 {
		out.answers = defaultAnswers
	}
	if out.timeout <= 0 {
		out.timeout = defaultRemoteTimeout
	}
	if err := p.openBackend(n); err != nil {
		return err
	}
	if got := len(a.GetInstruction()); got > p.limits.InstructionBytes {
		return n.errorf("the instruction has %d bytes, at most %d are allowed", got, p.limits.InstructionBytes)
	}
	template, err := parseInstruction(a.GetInstruction())
	if err != nil {
		return n.errorf("instruction: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(template.uses)) {
		return n.errorf("instruction: {%s}: a backend's agent is made once for its instruction, so no key of the "+
			"state is filled in; what agents before it have said is part of its message", cut(key, maxName))
	}
	if err := n.setOutputKey(a.GetOutputKey()); err != nil {
		return err
	}
	if err := p.remoteTools(n, a); err != nil {
		return err
	}
	if out.driver != nil {
		if err := out.driver.Check(out.spec); err != nil {
			return n.errorf("backend %q: %w", out.backend, err)
		}
	}
	if p.price != nil && n.modelName != "" {
		n.model.Cost = p.price(n.modelName)
	}
	n.model.Provider = out.backend
	if n.model.Cost == nil && p.priced {
		return fault.Errorf(codeInvalid,
			"%s: a budget in money needs the price of every model, and that of %q of backend %q is not known",
			n.at(), cut(n.modelName, maxName), out.backend)
	}
	return nil
}

// openBackend finds the driver of the agent's backend.
func (p *planner) openBackend(n *node) error {
	switch {
	case n.remote.backend == "":
		return n.errorf("the backend is missing")
	case p.backend == nil:
		return nil
	}
	driver, err := p.backend(n.remote.backend)
	if err != nil {
		return n.errorf("backend %q: %w", cut(n.remote.backend, maxName), err)
	}
	n.remote.driver = driver
	return nil
}

// remoteTools resolves the names of the agent's tools. The terminal one is declared to the backend, and no client runs
// it.
func (p *planner) remoteTools(n *node, a *agentdv1.RemoteAgent) error {
	last := a.GetTerminalTool()
	names := slices.DeleteFunc(slices.Clone(a.GetToolNames()), func(name string) bool { return name == last })
	if err := p.clientToolsOf(n, names, names); err != nil {
		return err
	}
	declared := n.tools
	if last != "" {
		terminal := *n
		terminal.tools = nil
		if err := p.clientToolsOf(&terminal, []string{last}, nil); err != nil {
			return err
		}
		declared = slices.Concat(declared, terminal.tools)
	}
	for _, d := range declared {
		one := remote.Tool{Name: d.name, Description: d.decl.Description}
		if d.decl.ParametersJsonSchema != nil {
			schema, err := json.Marshal(d.decl.ParametersJsonSchema)
			if err != nil {
				return n.errorf("tool %q: input_schema: %w", d.name, err)
			}
			one.Schema = schema
		}
		n.remote.spec.Tools = append(n.remote.spec.Tools, one)
	}
	return nil
}
