package client

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Agent is a node of a tree, made by [LLM], [Sequential], [Parallel] or [Loop]. It
// is the protocol's message under another name, so a tree that was read from a file
// or written by hand is one too. Name has to be unique in the tree: letters, digits,
// _ and -, at most 64. A parent reads Description to decide a transfer.
//
// The server checks a tree before a token is spent: INVALID_AGENT_TREE names the
// agent by its path and the rule that it breaks. Nothing here copies agents; a run
// copies the tree when it starts, so a tree may be used by several runs and must not
// be changed while one starts.
type Agent = agentdv1.Agent

// AgentOption configures an agent of [LLM]. A program may write options of its own:
// the agent that one is called with has GetLlm.
type AgentOption func(*Agent)

// LLM is one model with an instruction, tools, and agents that it may transfer the
// conversation to. The model is named as the server routes it: claude-… is
// Anthropic, gpt-…, o1…, o3…, o4… and chatgpt-… are OpenAI, provider/model names a
// provider, anything else is Gemini.
func LLM(name, model string, opts ...AgentOption) *Agent {
	agent := &Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model}}}
	for _, opt := range opts {
		opt(agent)
	}
	return agent
}

// Sequential runs its agents one after the other.
func Sequential(name string, agents ...*Agent) *Agent {
	return &Agent{Name: name, AgentType: &agentdv1.Agent_Sequential{
		Sequential: &agentdv1.SequentialAgent{Agents: slices.Clone(agents)},
	}}
}

// Parallel runs its agents at the same time, each on its own branch of the history.
func Parallel(name string, agents ...*Agent) *Agent {
	return &Agent{Name: name, AgentType: &agentdv1.Agent_Parallel{
		Parallel: &agentdv1.ParallelAgent{Agents: slices.Clone(agents)},
	}}
}

// Loop runs its agents in order, again and again: until a model calls the builtin
// tool exit_loop, the client's tool loop_continue returns {"continue": false}, or
// most iterations are over. 0 is the server's default, which is finite.
func Loop(name string, most uint32, agents ...*Agent) *Agent {
	return &Agent{Name: name, AgentType: &agentdv1.Agent_Loop{
		Loop: &agentdv1.LoopAgent{Agents: slices.Clone(agents), MaxIterations: most},
	}}
}

// ofLLM is an option that sets something of the model's agent.
func ofLLM(set func(*agentdv1.LlmAgent)) AgentOption {
	return func(a *Agent) { set(a.GetLlm()) }
}

// Description says what the agent is for; a parent reads it to decide a transfer.
func Description(text string) AgentOption { return func(a *Agent) { a.Description = text } }

// Instruction is the system instruction of the model. {key} is replaced from the session's state;
// an absent key fails the turn, unless it is written {key?}.
func Instruction(text string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.Instruction = text })
}

// Tools adds tools that the agent may call, by the names under which [AddTool] has
// added them.
func Tools(names ...string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.ToolNames = append(l.ToolNames, names...) })
}

// BuiltinTools adds tools that run elsewhere than in clients: exit_loop, ask_user and mark_task_done
// on the server, and those of the model's provider, such as google_search.
func BuiltinTools(names ...string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.BuiltinTools = append(l.BuiltinTools, names...) })
}

// AttachedTools adds the tools of [WithAttachment] under a name: those that are
// included, or all.
func AttachedTools(name string, include ...string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) {
		l.McpAttachments = append(l.McpAttachments,
			&agentdv1.McpAttachment{McpName: name, IncludeToolNames: slices.Clone(include)})
	})
}

// SubAgents adds agents to which this one may transfer the conversation. Each needs a
// Description.
func SubAgents(agents ...*Agent) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.SubAgents = append(l.SubAgents, agents...) })
}

// AgentCall is how an agent calls another one as a tool.
type AgentCall struct {
	// ToolName is what the caller's model calls it; empty is the agent's name.
	ToolName string
	// Description is what the caller's model chooses it by; empty is the agent's own.
	Description string
	// Branch is what the branches of its calls are named; empty is ToolName.
	Branch string
	// MaxDepth is how deep calls of agents may nest for this one to be called, the outermost being 1; 0 is 2. A call
	// that is too deep has a result that says so.
	MaxDepth uint32
	// Fork has the agent see what its caller had seen, and not its request alone.
	Fork bool
}

// AgentTool adds an agent that this one may call as it calls tools: with a request, and what it says last is the
// result. It runs within the turn, and spends its budget; its events have a [Lineage].
func AgentTool(agent *Agent, call AgentCall) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) {
		t := &agentdv1.AgentTool{
			Agent: agent, ToolName: call.ToolName, Description: call.Description, Branch: call.Branch,
			MaxDepth: call.MaxDepth,
		}
		if call.Fork {
			t.History = agentdv1.AgentTool_HISTORY_FORK
		}
		l.AgentTools = append(l.AgentTools, t)
	})
}

// Background is what an agent may spawn.
type Background struct {
	// MaxDepth is how many parents may be above a child, which may spawn others within that; 0 is 2.
	MaxDepth uint32
	// MaxAtOnce is how many children of a session may work at a time; 0 is 8.
	MaxAtOnce uint32
}

// BackgroundAgents has an agent spawn children that work in the background towards goals of their own, each in a
// session of its own: they outlive the turn. Their model and their tools are those of the agent, and what they may
// spend is cut out of what is left to it. What they report, and their ends, are events of the session, and its next
// turn reads them.
func BackgroundAgents(b Background) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) {
		l.BackgroundAgents = &agentdv1.BackgroundAgents{MaxDepth: b.MaxDepth, MaxAtOnce: b.MaxAtOnce}
	})
}

// OutputKey is the state key that receives the agent's final text.
func OutputKey(key string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.OutputKey = key })
}

// OutputSchema is a JSON Schema, an object, that the agent's final text satisfies as
// JSON, or the turn fails with OUTPUT_INVALID.
func OutputSchema(schema string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.OutputSchema = &schema })
}

// OutputSchemaOf is [OutputSchema] with the schema of a Go type, see [SchemaOf];
// [Structured] decodes the response, and so does [DoAs]. A type without a schema is a
// mistake in the program, upon which it panics.
func OutputSchemaOf[T any]() AgentOption { return OutputSchema(SchemaOf[T]()) }

// FallbackModels are called, in this order, when the model before has failed for good
// before any of its text was there; at most 8.
func FallbackModels(models ...string) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.FallbackModels = slices.Clone(models) })
}

// ThisTurnOnly gives the model the present turn alone, not the turns of the
// session before it.
func ThisTurnOnly() AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.IncludeHistory = agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN })
}

// Compaction is when and how the beginning of a conversation is summarized for a
// model. The session keeps all of it.
type Compaction struct {
	// AtShare compacts before a call whose prompt takes more than this share of the
	// model's context window, from 0 to 1; 0 is never.
	AtShare float64
	// ContextTokens is the context window; 0 is what the server knows.
	ContextTokens int64
	// Model writes the summaries; empty is the agent's own.
	Model string
	// Instruction is what to keep in mind when summarizing; at most 16 KiB.
	Instruction string
}

// Compact sets when the conversation is summarized for the agent's model. Without it
// the server's default holds, which is never unless its operator has set another one.
func Compact(c Compaction) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) {
		l.Compaction = &agentdv1.Compaction{
			AtShare: c.AtShare, ContextTokens: c.ContextTokens, Model: c.Model, Instruction: c.Instruction,
		}
	})
}

// Generation is how a model is to write. What is nil or zero is left to its provider.
// What the provider has no setting for is refused, INVALID_AGENT_TREE where the
// server knows.
type Generation struct {
	// Temperature is 0 for the likeliest words, up to 2 for less likely ones.
	Temperature *float64
	// TopP keeps the likeliest words that together have this probability.
	TopP *float64
	// MaxOutputTokens is the longest response; 0 is what the model allows.
	MaxOutputTokens int32
	// StopSequences are texts at which the response ends; at most 16.
	StopSequences []string
	// Seed is for responses that repeat, as far as the provider can.
	Seed *int32
	// Thinking is how much the model may think, in words.
	Thinking Effort
	// ThinkingTokens is the same in tokens, in place of Thinking; 0 is none, where the
	// model can do without.
	ThinkingTokens *int32
	// IncludeThoughts asks for the thoughts, or a summary of them.
	IncludeThoughts bool
	// ToolChoice is whether the model has to call a tool, and ToolChoiceNames which of
	// the agent's; empty is any.
	ToolChoice      ToolChoice
	ToolChoiceNames []string
	// Cache is whether the provider keeps the prompt for calls that begin in the same
	// way, and CacheTTL for how long; 0 is as long as the provider does, at most a day.
	Cache    Cache
	CacheTTL time.Duration
}

// Effort is how much to think.
type Effort int32

// Efforts; the zero Effort is the model's default.
const (
	EffortMinimal = Effort(agentdv1.Thinking_EFFORT_MINIMAL)
	EffortLow     = Effort(agentdv1.Thinking_EFFORT_LOW)
	EffortMedium  = Effort(agentdv1.Thinking_EFFORT_MEDIUM)
	EffortHigh    = Effort(agentdv1.Thinking_EFFORT_HIGH)
)

// ToolChoice is whether a model has to call a tool.
type ToolChoice int32

// Tool choices; the zero ToolChoice is ToolChoiceAuto.
const (
	// ToolChoiceAuto leaves it to the model.
	ToolChoiceAuto = ToolChoice(agentdv1.ToolChoice_MODE_AUTO)
	// ToolChoiceNone has no tool called.
	ToolChoiceNone = ToolChoice(agentdv1.ToolChoice_MODE_NONE)
	// ToolChoiceRequired has a tool called in each response: the agent needs another way
	// to come to an end, such as exit_loop, a transfer, or a limit.
	ToolChoiceRequired = ToolChoice(agentdv1.ToolChoice_MODE_REQUIRED)
)

// Cache is whether a provider is asked to keep a prompt.
type Cache int32

// Ways to cache; the zero Cache is as the provider does.
const (
	CacheOff = Cache(agentdv1.PromptCache_MODE_OFF)
	CacheOn  = Cache(agentdv1.PromptCache_MODE_ON)
)

// Generate sets how the agent's model is to write.
func Generate(g Generation) AgentOption {
	return ofLLM(func(l *agentdv1.LlmAgent) { l.Generation = g.Proto() })
}

// Proto returns the protocol's message, a new one.
func (g Generation) Proto() *agentdv1.GenerationSettings {
	out := &agentdv1.GenerationSettings{
		Temperature: g.Temperature, TopP: g.TopP, MaxOutputTokens: g.MaxOutputTokens,
		StopSequences: slices.Clone(g.StopSequences), Seed: g.Seed,
	}
	switch {
	case g.ThinkingTokens != nil:
		out.Thinking = &agentdv1.Thinking{Amount: &agentdv1.Thinking_BudgetTokens{BudgetTokens: *g.ThinkingTokens}}
	case g.Thinking != 0:
		out.Thinking = &agentdv1.Thinking{
			Amount: &agentdv1.Thinking_Effort_{Effort: agentdv1.Thinking_Effort(g.Thinking)},
		}
	case g.IncludeThoughts:
		out.Thinking = &agentdv1.Thinking{}
	}
	if out.GetThinking() != nil {
		out.Thinking.IncludeThoughts = g.IncludeThoughts
	}
	if g.ToolChoice != 0 || len(g.ToolChoiceNames) > 0 {
		out.ToolChoice = &agentdv1.ToolChoice{
			Mode: agentdv1.ToolChoice_Mode(g.ToolChoice), ToolNames: slices.Clone(g.ToolChoiceNames),
		}
	}
	if g.Cache != 0 || g.CacheTTL != 0 {
		out.Cache = &agentdv1.PromptCache{Mode: agentdv1.PromptCache_Mode(g.Cache)}
		if g.CacheTTL != 0 {
			out.Cache.Ttl = durationpb.New(g.CacheTTL)
		}
	}
	return out
}

// generationOf is what a message says.
func generationOf(m *agentdv1.GenerationSettings) Generation {
	g := Generation{
		Temperature: m.Temperature, TopP: m.TopP, MaxOutputTokens: m.GetMaxOutputTokens(),
		StopSequences: slices.Clone(m.GetStopSequences()), Seed: m.Seed,
		Thinking: Effort(m.GetThinking().GetEffort()), IncludeThoughts: m.GetThinking().GetIncludeThoughts(),
		ToolChoice:      ToolChoice(m.GetToolChoice().GetMode()),
		ToolChoiceNames: slices.Clone(m.GetToolChoice().GetToolNames()),
		Cache:           Cache(m.GetCache().GetMode()), CacheTTL: m.GetCache().GetTtl().AsDuration(),
	}
	if tokens, ok := m.GetThinking().GetAmount().(*agentdv1.Thinking_BudgetTokens); ok {
		g.ThinkingTokens = &tokens.BudgetTokens
	}
	return g
}
