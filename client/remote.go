package client

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// RemoteOptions is an agent that a backend of the server runs; see [Remote].
type RemoteOptions struct {
	// Backend is a name in the server's file (agentd serve --backends). Required.
	Backend string
	// Description says what the agent is for; a parent reads it to decide a transfer.
	Description string
	// Instruction is what the agent is to do. It is text: no key is replaced in it.
	Instruction string
	// Model is the model, as the backend names it; empty where the backend has one of its own.
	Model string
	// OutputKey is the key of the state that receives what the agent ends with.
	OutputKey string
	// Tools are tools that the agent may call, by the names under which [AddTool] has added them.
	Tools []string
	// TerminalTool is a tool that ends the agent when it is called: its arguments are what the agent ends with. No
	// handler of it is called, but it has to be added.
	TerminalTool string
	// MaxTurns is how many answers the backend may give to one message; 0 is 50.
	MaxTurns uint32
	// Timeout is how long the backend may take for one message, without its tools; 0 is ten minutes.
	Timeout time.Duration
}

// Remote is an agent that a backend of the server runs, such as another agentd. Its tools run at this client, as those
// of any agent do.
func Remote(name string, opts RemoteOptions) *Agent {
	remote := &agentdv1.RemoteAgent{
		Backend: opts.Backend, Instruction: opts.Instruction, Model: opts.Model, OutputKey: opts.OutputKey,
		ToolNames: slices.Clone(opts.Tools), MaxTurns: opts.MaxTurns, TerminalTool: opts.TerminalTool,
	}
	if opts.Timeout > 0 {
		remote.Timeout = durationpb.New(opts.Timeout)
	}
	return &Agent{Name: name, Description: opts.Description, AgentType: &agentdv1.Agent_Remote{Remote: remote}}
}

// RemoteSession says how a remote agent runs on its backend: when something was made there, and when the backend has
// stopped.
type RemoteSession struct {
	// AgentPath runs from the root of the tree to the agent.
	AgentPath []string
	// Backend is the backend's name.
	Backend string
	// RemoteAgentID and RemoteSessionID are the backend's ids; empty before it has them.
	RemoteAgentID, RemoteSessionID string
	// SpecHash is the SHA-256, in hex, of what the backend's agent was made of.
	SpecHash string
	// Cursor is where in the backend's session the agent has come to.
	Cursor string
	// Terminal is why the backend has stopped.
	Terminal RemoteTerminal
	// Reason is the same for people.
	Reason string
}

// RemoteTerminal is why a backend has stopped: one of the constants, empty where it has not, or of a newer server the
// number of one that this client does not know.
type RemoteTerminal string

// Why a backend stops.
const (
	// RemoteEndTurn is done.
	RemoteEndTurn RemoteTerminal = "end_turn"
	// RemoteRequiresAction waits for the results of tool calls.
	RemoteRequiresAction RemoteTerminal = "requires_action"
	// RemoteTerminated goes no further: the agent has failed.
	RemoteTerminated RemoteTerminal = "terminated"
)

func (*RemoteSession) eventData() {}

func remoteSessionOf(m *agentdv1.RemoteSession) *RemoteSession {
	return &RemoteSession{
		AgentPath:       m.GetAgentPath(),
		Backend:         m.GetBackend(),
		RemoteAgentID:   m.GetRemoteAgentId(),
		RemoteSessionID: m.GetRemoteSessionId(),
		SpecHash:        m.GetSpecHash(),
		Cursor:          m.GetCursor(),
		Terminal:        RemoteTerminal(wordOf(m.GetTerminal(), "TERMINAL_")),
		Reason:          m.GetReason(),
	}
}
