package client

import agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"

// MessageCompleted says that a message is complete: nothing of it is retracted any
// more. A model's response without text and thoughts is no message.
type MessageCompleted struct {
	// MessageID is the message, as in [OutputChunk].
	MessageID string
	// AgentPath runs from the root of the tree to the agent that spoke.
	AgentPath []string
	// TextBytes and ThoughtBytes are how long its text and its thoughts are.
	TextBytes, ThoughtBytes int64
}

// MessageRetracted says that unfinished messages are void. They start over, under the
// same id. [Client.Do] follows it by itself.
type MessageRetracted struct {
	// MessageID is the message; empty means all unfinished messages of the turn.
	MessageID string
	// AgentPath runs from the root of the tree to the agent that spoke.
	AgentPath []string
}

// Transferred says that an agent's model has handed the conversation over to another
// agent, which continues with it.
type Transferred struct {
	// AgentPath runs from the root of the tree to the agent that has handed it over,
	// and ToAgentPath to the one that continues.
	AgentPath, ToAgentPath []string
}

func (*MessageCompleted) eventData() {}
func (*MessageRetracted) eventData() {}
func (*Transferred) eventData()      {}

func completedOf(m *agentdv1.MessageCompleted) *MessageCompleted {
	return &MessageCompleted{
		MessageID:    m.GetMessageId(),
		AgentPath:    m.GetAgentPath(),
		TextBytes:    m.GetTextBytes(),
		ThoughtBytes: m.GetThoughtBytes(),
	}
}
