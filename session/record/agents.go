package record

// AgentsChanged says which agents of the tree have started and ended, in order.
type AgentsChanged struct {
	// Changes are at least 1 and at most 256.
	Changes []AgentChange `json:"changes"`
}

// AgentChange is the start or the end of an agent.
type AgentChange struct {
	// Path runs from the root to the agent.
	Path []string `json:"path"`
	// Ended says how the agent ended; "" for a start.
	Ended AgentEnd `json:"ended,omitempty"`
	// Kind is what the agent is, and Model the model of an LLM agent, as the agent names it; of a start
	// alone.
	Kind  AgentKind `json:"kind,omitempty"`
	Model string    `json:"model,omitempty"`
	// Room is that of the agent's branch; "" for one outside of all calls of agents.
	Room string `json:"room,omitempty"`
}

// AgentKind is what an agent of a tree is.
type AgentKind string

// The kinds of agents.
const (
	LLMAgent        AgentKind = "llm"
	SequentialAgent AgentKind = "sequential"
	ParallelAgent   AgentKind = "parallel"
	LoopAgent       AgentKind = "loop"
	RemoteAgent     AgentKind = "remote"
)

// AgentEnd is how an agent ended while its turn went on. Agents that have not ended by then end with the
// turn, which no record says again.
type AgentEnd string

// The ends of agents.
const (
	AgentCompleted   AgentEnd = "completed"
	AgentTransferred AgentEnd = "transferred" // it has handed the conversation over
)
