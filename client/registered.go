package client

import (
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// AgentRef names an agent tree that the server keeps; see [Client.ApplyAgent].
type AgentRef struct {
	// Name is what the agent is called, or that with @ and the first 8 or more digits of a
	// [RegisteredAgent.ContentHash]: desk@1f2e3d4c.
	Name string
	// Version is which version; 0 is the newest one.
	Version int64
}

// Proto returns the message; nil for the zero AgentRef.
func (r AgentRef) Proto() *agentdv1.AgentRef {
	if r == (AgentRef{}) {
		return nil
	}
	return &agentdv1.AgentRef{Name: r.Name, Version: r.Version}
}

func agentRefOf(m *agentdv1.AgentRef) AgentRef { return AgentRef{m.GetName(), m.GetVersion()} }

// WithAgentRef runs a tree that the server keeps in place of one that is sent. Its tools are those that the server
// keeps with it: this client runs the ones that it has, by their names, and no tool of this client is sent. The server
// says NOT_FOUND if there is no such agent, and FAILED_PRECONDITION if it is archived.
func WithAgentRef(ref AgentRef) PromptOption {
	return option{useRun, func(c *runConfig) {
		if c.agent, c.agentRef = nil, ref.Proto(); c.agentRef == nil {
			c.failf(errorf(ErrInvalidRequest, "client.WithAgentRef needs the name of an agent"))
		}
	}}
}

// AgentDefinition is what an agent is to be.
type AgentDefinition struct {
	// Name is what it is called in its tenant: 1 to 128 of A-Z, a-z, 0-9 and . _ : -, a letter or a digit first.
	Name string
	// Agent is the tree.
	Agent *Agent
	// Tools have tools of the tree besides the client's own; of two of the same name the later counts. Only what they
	// declare is sent: who runs the agent runs its tools.
	Tools []*ToolSet
	// Metadata is an object of the caller's own, which the server keeps and does not read: at most 16,384 bytes as
	// JSON. It is a part of the content.
	Metadata map[string]any
	// Read, if set, is the version that the caller has read, 0 if there must be none; another one is CONFLICT.
	Read *int64
	// DryRun only says what would become of it: nothing is kept.
	DryRun bool
}

// RegisteredAgent is a version of an agent tree that the server keeps.
type RegisteredAgent struct {
	// AgentRef has its name and its version.
	AgentRef
	// ContentHash is the SHA-256 of what it says, as 64 hexadecimal digits.
	ContentHash string
	// Agent is the tree, and Tools are the tools that it may call. They are the caller's.
	Agent *Agent
	Tools []*agentdv1.Tool
	// Metadata is the caller's own object, with numbers as float64; nil for none.
	Metadata map[string]any
	// CreatedBy is who made this version, and CreateTime when; FirstCreateTime is when the first one was made.
	CreatedBy                   string
	CreateTime, FirstCreateTime time.Time
	// ArchiveTime is when it was archived; zero if it is not.
	ArchiveTime time.Time

	message *agentdv1.RegisteredAgent
}

// Proto returns the message that it was made from.
func (a *RegisteredAgent) Proto() *agentdv1.RegisteredAgent { return proto.CloneOf(a.message) }

func registeredOf(m *agentdv1.RegisteredAgent) *RegisteredAgent {
	if m == nil {
		return nil
	}
	own := proto.CloneOf(m)
	return &RegisteredAgent{
		AgentRef: AgentRef{m.GetName(), m.GetVersion()}, ContentHash: m.GetContentHash(),
		Agent: own.GetAgent(), Tools: own.GetTools(), Metadata: metadataOf(m.GetMetadata()), CreatedBy: m.GetCreatedBy(),
		CreateTime: timeOf(m.GetCreateTime()), FirstCreateTime: timeOf(m.GetFirstCreateTime()),
		ArchiveTime: timeOf(m.GetArchiveTime()), message: m,
	}
}

// ApplyAgent has the server keep an agent tree under a name, for [WithAgentRef] and [NewSessionInfo]. What the name has
// already is not made again; another tree is a new version of it. It returns the newest version, and whether it is new.
// The server checks the tree as that of a run.
func (c *Client) ApplyAgent(
	ctx context.Context, def AgentDefinition, opts ...RequestOption,
) (_ *RegisteredAgent, created bool, err error) {
	req := &agentdv1.ApplyAgentRequest{Name: def.Name, Agent: proto.CloneOf(def.Agent), Version: def.Read,
		DryRun: def.DryRun}
	if req.Metadata, err = metadataMessage("client.AgentDefinition.Metadata", def.Metadata); err != nil {
		return nil, false, err
	}
	if err := checkDepth(def.Agent, 1); err != nil {
		return nil, false, err
	}
	available, err := toolsOf(slices.Concat([]*ToolSet{c.tools}, def.Tools))
	if err != nil {
		return nil, false, err
	}
	w := &treeWalk{available: available, attachments: c.cfg.attachments, used: make(map[string]*tool)}
	if err := w.visit(req.GetAgent(), nil); err != nil {
		return nil, false, err
	}
	if t := available[loopContinue]; t != nil && w.hasLoop {
		w.used[loopContinue] = t
	}
	req.Tools = protosOf(w.used)
	resp, err := unary(ctx, c, opts, c.sessions.ApplyAgent, req)
	return registeredOf(resp.GetAgent()), resp.GetCreated(), err
}

// RegisteredAgent returns an agent that the server keeps. An unknown one is NOT_FOUND.
func (c *Client) RegisteredAgent(ctx context.Context, ref AgentRef, opts ...RequestOption) (*RegisteredAgent, error) {
	resp, err := unary(ctx, c, opts, c.sessions.GetAgent, &agentdv1.GetAgentRequest{AgentRef: ref.Proto()})
	return registeredOf(resp.GetAgent()), err
}

// AgentFilter says which agents to list; a zero field does not matter.
type AgentFilter struct {
	// Name lists the versions of this agent, newest first. Without it the newest version of each agent is listed.
	Name string
	// Archived lists those that are archived too.
	Archived bool
	// PageSize is how many are asked for at a time, at most 1,000; 0 is 50.
	PageSize int
}

// RegisteredAgents lists agents that the server keeps, newest first, and asks for the next page when it needs one.
func (c *Client) RegisteredAgents(
	ctx context.Context, filter AgentFilter, opts ...RequestOption,
) iter.Seq2[*RegisteredAgent, error] {
	return sizedPages(filter.PageSize, func(size int32, token string) ([]*RegisteredAgent, string, error) {
		resp, err := unary(ctx, c, opts, c.sessions.ListAgents, &agentdv1.ListAgentsRequest{
			PageSize: size, PageToken: token, Name: filter.Name, Archived: filter.Archived,
		})
		return mapped(resp.GetAgents(), registeredOf), resp.GetNextPageToken(), err
	})
}

// ArchiveAgent keeps an agent from being used by new sessions and turns, and from being changed. Sessions that were made
// with it go on. It cannot be taken back.
func (c *Client) ArchiveAgent(ctx context.Context, name string, opts ...RequestOption) (*RegisteredAgent, error) {
	resp, err := unary(ctx, c, opts, c.sessions.ArchiveAgent, &agentdv1.ArchiveAgentRequest{Name: name})
	return registeredOf(resp.GetAgent()), err
}

// DeleteAgent removes an agent with all its versions. Sessions that have run it keep their trees.
func (c *Client) DeleteAgent(ctx context.Context, name string, opts ...RequestOption) error {
	_, err := unary(ctx, c, opts, c.sessions.DeleteAgent, &agentdv1.DeleteAgentRequest{Name: name})
	return err
}
