package client

import (
	"maps"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// conversation is what options say of a turn besides its prompt: where it belongs, and what comes before it.
type conversation struct {
	seed             []SeedMessage
	fork             bool
	mode             InstructionMode
	labels, metadata map[string]string
	author           string
}

func (c *conversation) addTo(execute *agentdv1.RunRequest_ExecuteRequest) {
	for _, m := range c.seed {
		execute.SeedMessages = append(execute.SeedMessages, &agentdv1.SeedMessage{Role: m.Role, Content: m.Content})
	}
	execute.Fork, execute.InstructionMode = c.fork, agentdv1.InstructionMode(c.mode)
	execute.Labels, execute.Metadata, execute.Author = c.labels, c.metadata, c.author
}

// SeedMessage is a message of a conversation that was held elsewhere.
type SeedMessage struct {
	// Role is whose it is: "user" or "assistant".
	Role string
	// Content is what it says; not empty.
	Content string
}

// WithSeedMessages gives a new session its history, oldest first: models read it before the prompt. A session that
// there is refuses it. At most 512, together not longer than a prompt may be.
func WithSeedMessages(history ...SeedMessage) RunOption {
	history = slices.Clone(history)
	return option{useRun, func(c *runConfig) { c.seed = history }}
}

// WithFork runs the turn on a fork of the session that [WithSessionID] names, which stays as it is, also if it runs a
// turn. [TurnStarted] and [Result] have the fork's id.
func WithFork() RunOption {
	return option{useRun, func(c *runConfig) { c.fork = true }}
}

// InstructionMode says where the text of [WithInstruction] goes.
type InstructionMode agentdv1.InstructionMode

// The places of an instruction. That of the server always comes first.
const (
	// InstructionAppend puts it behind the agent's own; so do servers by default.
	InstructionAppend = InstructionMode(agentdv1.InstructionMode_INSTRUCTION_MODE_APPEND)
	// InstructionPrepend puts it before the agent's own.
	InstructionPrepend = InstructionMode(agentdv1.InstructionMode_INSTRUCTION_MODE_PREPEND)
	// InstructionReplace puts it in place of the agent's own, for this turn.
	InstructionReplace = InstructionMode(agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE)
)

// WithInstructionMode says where the text of [WithInstruction] goes.
func WithInstructionMode(mode InstructionMode) TurnOption {
	return option{useRun, func(c *runConfig) {
		if c.mode = mode; mode < InstructionAppend || mode > InstructionReplace {
			c.failf(errorf(ErrInvalidRequest, "client.WithInstructionMode: want client.InstructionAppend, "+
				"client.InstructionPrepend or client.InstructionReplace, got %d", mode))
		}
	}}
}

// WithLabels sets labels of the turn's session, as [NewSessionInfo] has them. A session that there is keeps its others.
func WithLabels(labels map[string]string) PromptOption {
	labels = maps.Clone(labels)
	return option{useRun, func(c *runConfig) { c.labels = labels }}
}

// WithAuthor says who the turn is for, such as the writer of a message of a chat; nobody checks it. [Turn] has it. At
// most 256 bytes.
func WithAuthor(author string) TurnOption {
	return option{useRun, func(c *runConfig) { c.author = author }}
}

// WithMetadata tells the tools of the turn something that models do not see, such as a directory: [Call.Metadata]
// returns it. It is bounded as labels are.
func WithMetadata(metadata map[string]string) TurnOption {
	metadata = maps.Clone(metadata)
	return option{useRun, func(c *runConfig) { c.metadata = metadata }}
}
