package client

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// AgentKind is what an agent of a tree is: one of the constants, or of a newer server
// another word.
type AgentKind string

// The kinds of agents.
const (
	// AgentLLM asks a model.
	AgentLLM AgentKind = "llm"
	// AgentSequential runs others, one after the other.
	AgentSequential AgentKind = "sequential"
	// AgentParallel runs others at the same time.
	AgentParallel AgentKind = "parallel"
	// AgentLoop runs others again and again.
	AgentLoop AgentKind = "loop"
	// AgentRemote runs on another server.
	AgentRemote AgentKind = "remote"
)

// AgentOutcome is how an agent ended: one of the constants, or of a newer server another
// word.
type AgentOutcome string

// The outcomes of agents.
const (
	// AgentCompleted was done.
	AgentCompleted AgentOutcome = "completed"
	// AgentTransferred has handed the conversation over; [Transferred], which comes first,
	// says to which agent.
	AgentTransferred AgentOutcome = "transferred"
	// AgentFailed ended with a turn that has failed.
	AgentFailed AgentOutcome = "failed"
	// AgentCanceled ended with a turn that was canceled.
	AgentCanceled AgentOutcome = "canceled"
)

// AgentStarted says that an agent of the tree has started. The agents of a loop start
// again with each iteration, and one that has handed the conversation over when it gets
// it back.
type AgentStarted struct {
	// AgentPath runs from the root of the tree to the agent.
	AgentPath []string
	// Kind is what it is.
	Kind AgentKind
	// Model is the model of an LLM agent, as the agent names it; empty for others.
	Model string
}

// AgentEnded says that an agent has ended; each AgentStarted has one. Agents that have not
// ended by themselves end with the turn.
type AgentEnded struct {
	// AgentPath runs from the root of the tree to the agent.
	AgentPath []string
	// Outcome is how it ended.
	Outcome AgentOutcome
}

func (*AgentStarted) eventData() {}
func (*AgentEnded) eventData()   {}

func agentStartedOf(m *agentdv1.AgentStarted) *AgentStarted {
	return &AgentStarted{
		AgentPath: m.GetAgentPath(),
		Kind:      AgentKind(wordOf(m.GetKind(), "AGENT_KIND_")),
		Model:     m.GetModel(),
	}
}

func agentEndedOf(m *agentdv1.AgentEnded) *AgentEnded {
	return &AgentEnded{AgentPath: m.GetAgentPath(), Outcome: AgentOutcome(wordOf(m.GetOutcome(), "OUTCOME_"))}
}
