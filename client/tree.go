package client

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// loopContinue is the tool that a server asks after each iteration of a loop,
// though no agent lists it.
const loopContinue = "loop_continue"

// maxTreeDepth protects this process from a tree that holds itself; servers
// allow far less.
const maxTreeDepth = 64

// prepare makes the first message of a run and finds out whether it can be
// sent at all. It changes nothing that the caller passed.
func (c *Client) prepare(
	agent *Agent, prompt string, apply func(*runConfig),
) (*agentdv1.RunRequest, *runConfig, error) {
	rc, err := c.configure(useRun, apply)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case rc.agent != nil:
		agent = rc.agent
	case rc.agentRef != nil && agent != nil:
		return nil, nil, errorf(ErrInvalidRequest, "a run has an agent and client.WithAgentRef: give one of them")
	}
	available, err := toolsOf(slices.Concat([]*ToolSet{c.tools}, rc.tools))
	if err != nil {
		return nil, nil, err
	}
	if agent == nil && rc.agentRef == nil && rc.sessionID == "" {
		return nil, nil, errorf(ErrInvalidRequest, "a run needs an agent, or one that the server keeps "+
			"(client.WithAgentRef), or the id of a session to continue (client.WithSessionID)")
	}
	if rc.fork && rc.sessionID == "" {
		return nil, nil, errorf(ErrInvalidRequest, "client.WithFork needs the session to fork (client.WithSessionID)")
	}
	execute := rc.request(prompt)
	if agent != nil {
		if err := checkDepth(agent, 1); err != nil {
			return nil, nil, err
		}
		execute.Agent = proto.CloneOf(agent)
	}
	w := &treeWalk{available: available, attachments: c.cfg.attachments, used: make(map[string]*tool)}
	if err := w.visit(execute.GetAgent(), nil); err != nil {
		return nil, nil, err
	}
	if agent == nil {
		// The server uses a tree that it has, and the tools of that: any of them
		// may be one of an attachment.
		if err := w.attachAll(); err != nil {
			return nil, nil, err
		}
	} else {
		execute.Tools = w.declared()
	}
	maps.Copy(available, w.used)
	offered := w.used
	if agent == nil {
		offered = available
	}
	rc.offered = slices.Sorted(maps.Keys(offered))
	rc.available = available
	req := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: execute}}
	if err := c.checkMessage(req); err != nil {
		return nil, nil, err
	}
	return req, rc, nil
}

// request returns the first message of a run, without tree and tools.
func (c *runConfig) request(prompt string) *agentdv1.RunRequest_ExecuteRequest {
	execute := &agentdv1.RunRequest_ExecuteRequest{
		UserPrompt:       prompt,
		InitialStateJson: c.state,
		OnDisconnect:     c.onDisconnect,
		OnBusy:           c.onBusy,
		Budget:           c.budget,
		SessionBudget:    c.sessionBudget,
		ToolTimeout:      serverTimeout(c.toolTimeout),

		UserParts:      c.parts,
		RawPayloads:    c.rawPayloads,
		PlanMode:       c.planMode,
		Create:         c.create,
		TurnId:         c.turnID,
		Instruction:    c.instruction,
		IdempotencyKey: cmp.Or(c.idempotencyKey, rand.Text()),
		AgentRef:       c.agentRef,
	}
	c.conversation.addTo(execute)
	if c.grace > 0 {
		execute.DisconnectGrace = durationpb.New(c.grace)
	}
	if c.sessionID != "" {
		execute.SessionId = &c.sessionID
	}
	return execute
}

// toolsOf returns the tools of all sets; of two of the same name the later.
func toolsOf(sets []*ToolSet) (map[string]*tool, error) {
	available := make(map[string]*tool)
	for _, set := range sets {
		if err := set.copyTo(available); err != nil {
			return nil, errorf(ErrInvalidRequest, "a tool could not be added: %w", err)
		}
	}
	return available, nil
}

// checkMessage refuses a first message that cannot be sent.
func (c *Client) checkMessage(req *agentdv1.RunRequest) error {
	encoded, err := proto.Marshal(req)
	if err != nil {
		return errorf(ErrInvalidRequest, "the request cannot be encoded (all text must be UTF-8): %w", err)
	}
	if len(encoded) > c.cfg.maxMessage {
		return errorf(ErrLimitExceeded,
			"the request has %d bytes, at most %d are allowed (client.WithMaxMessageBytes)",
			len(encoded), c.cfg.maxMessage)
	}
	return nil
}

// treeWalk collects the tools that a tree names.
type treeWalk struct {
	available   map[string]*tool
	attachments map[string]*ToolSet
	used        map[string]*tool
	hasLoop     bool
}

// visit walks a tree that belongs to the run: tools of attachments are added
// to the agents that attach them.
func (w *treeWalk) visit(agent *agentdv1.Agent, parents []string) error {
	if agent == nil {
		return nil
	}
	path := append(slices.Clip(parents), agent.GetName())
	if agent.GetLoop() != nil {
		w.hasLoop = true
	}
	if llm := agent.GetLlm(); llm != nil {
		if err := w.name(llm.GetToolNames(), path); err != nil {
			return err
		}
		for _, attachment := range llm.GetMcpAttachments() {
			if err := w.attach(llm, attachment); err != nil {
				return errorf(ErrInvalidAgentTree, "agent %s: %w", strings.Join(path, "/"), err)
			}
		}
		llm.McpAttachments = nil // tools stand for them now; without any, a server could not tell
	}
	if err := w.remote(agent.GetRemote(), path); err != nil {
		return err
	}
	for _, child := range children(agent) {
		if err := w.visit(child, path); err != nil {
			return err
		}
	}
	return nil
}

// declared returns what the tools declare that a server may ask the tree's clients for.
func (w *treeWalk) declared() []*agentdv1.Tool {
	if t := w.available[loopContinue]; t != nil && w.hasLoop {
		w.used[loopContinue] = t
	}
	return protosOf(w.used)
}

// name takes tools that the agent at a path names.
func (w *treeWalk) name(names, path []string) error {
	for _, name := range names {
		t := w.available[name]
		if t == nil {
			return errorf(ErrInvalidAgentTree,
				"agent %s names the tool %q, which is not registered with this client; registered are: %s",
				strings.Join(path, "/"), name, nameList(w.available))
		}
		w.used[name] = t
	}
	return nil
}

// remote takes the tools of a remote agent, nil for none.
func (w *treeWalk) remote(remote *agentdv1.RemoteAgent, path []string) error {
	if last := remote.GetTerminalTool(); last != "" {
		if err := w.name([]string{last}, path); err != nil {
			return err
		}
	}
	return w.name(remote.GetToolNames(), path)
}

// attach adds the tools of one attachment to an agent of the run.
func (w *treeWalk) attach(llm *agentdv1.LlmAgent, attachment *agentdv1.McpAttachment) error {
	set := w.attachments[attachment.GetMcpName()]
	if set == nil {
		return fmt.Errorf("nothing is attached under the name %q (client.WithAttachment)", attachment.GetMcpName())
	}
	tools := make(map[string]*tool)
	if err := set.copyTo(tools); err != nil {
		return fmt.Errorf("attachment %q: %w", attachment.GetMcpName(), err)
	}
	names := attachment.GetIncludeToolNames()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(tools))
	}
	for _, name := range names {
		t := tools[name]
		if t == nil {
			return fmt.Errorf("attachment %q has no tool %q; it has: %s",
				attachment.GetMcpName(), name, nameList(tools))
		}
		if err := w.use(name, t); err != nil {
			return fmt.Errorf("attachment %q: %w", attachment.GetMcpName(), err)
		}
		if !slices.Contains(llm.GetToolNames(), name) {
			llm.ToolNames = append(llm.ToolNames, name)
		}
	}
	return nil
}

// use adds a tool of an attachment; names are shared by the whole tree.
func (w *treeWalk) use(name string, t *tool) error {
	other := w.used[name]
	if other == nil {
		other = w.available[name]
	}
	if other != nil && other != t {
		return fmt.Errorf("another tool is also named %q", name)
	}
	w.used[name] = t
	return nil
}

// attachAll makes the tools of all attachments callable.
func (w *treeWalk) attachAll() error {
	for _, name := range slices.Sorted(maps.Keys(w.attachments)) {
		if err := w.attach(new(agentdv1.LlmAgent), &agentdv1.McpAttachment{McpName: name}); err != nil {
			return errorf(ErrInvalidRequest, "%w", err)
		}
	}
	return nil
}

func children(agent *agentdv1.Agent) []*agentdv1.Agent {
	var called []*agentdv1.Agent // as tools
	for _, t := range agent.GetLlm().GetAgentTools() {
		called = append(called, t.GetAgent())
	}
	return slices.Concat(
		called,
		agent.GetLlm().GetSubAgents(),
		agent.GetSequential().GetAgents(),
		agent.GetParallel().GetAgents(),
		agent.GetLoop().GetAgents(),
	)
}

func checkDepth(agent *agentdv1.Agent, depth int) error {
	if depth > maxTreeDepth {
		return errorf(ErrInvalidAgentTree, "the agent tree is deeper than %d; does an agent hold itself?", maxTreeDepth)
	}
	for _, child := range children(agent) {
		if err := checkDepth(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func nameList(tools map[string]*tool) string {
	if len(tools) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(tools)), ", ")
}
