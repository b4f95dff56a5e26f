package harness

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// LLMAgent returns an agent that calls a model.
func LLMAgent(name, modelName, instruction string, tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, Description: "the agent " + name, AgentType: &agentdv1.Agent_Llm{
		Llm: &agentdv1.LlmAgent{Model: modelName, Instruction: instruction, ToolNames: tools},
	}}
}

// SequentialAgent returns an agent that runs others one after the other.
func SequentialAgent(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{
		Name:      name,
		AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: agents}},
	}
}

// ParallelAgent returns an agent that runs others at the same time.
func ParallelAgent(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{
		Name:      name,
		AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: agents}},
	}
}

// LoopAgent returns an agent that runs others at most so many times.
func LoopAgent(name string, most uint32, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{
		Name:      name,
		AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: agents, MaxIterations: most}},
	}
}

// Tool returns a tool of a client.
func Tool(name string) *agentdv1.Tool {
	return &agentdv1.Tool{Name: name, Description: "the tool " + name}
}
