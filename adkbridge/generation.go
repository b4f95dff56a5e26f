package adkbridge

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
)

// generation holds the settings of an agent's model; the zero value leaves all to the
// provider.
type generation struct {
	temperature, topP *float32
	maxTokens         int32
	stop              []string
	seed              *int32
	thinking          *genai.ThinkingConfig
	choice            *genai.ToolConfig
	cache             *model.Cache // without its key; nil asks for none
}

// efforts are the common form of the protocol's.
var efforts = map[agentdv1.Thinking_Effort]genai.ThinkingLevel{
	agentdv1.Thinking_EFFORT_MINIMAL: genai.ThinkingLevelMinimal,
	agentdv1.Thinking_EFFORT_LOW:     genai.ThinkingLevelLow,
	agentdv1.Thinking_EFFORT_MEDIUM:  genai.ThinkingLevelMedium,
	agentdv1.Thinking_EFFORT_HIGH:    genai.ThinkingLevelHigh,
}

// maxStops bounds the number of stop sequences.
const maxStops = 16

// generation reads an agent's settings after its tools. Whether the model has a setting
// is for its adapter to check.
func (p *planner) generation(n *node, s *agentdv1.GenerationSettings) error {
	g := &n.generation
	if s == nil {
		return nil
	}
	if t := s.Temperature; t != nil {
		if !(*t >= 0 && *t <= 2) {
			return n.errorf("generation.temperature is %v, it goes from 0 to 2", *t)
		}
		g.temperature = new(float32(*t))
	}
	if t := s.TopP; t != nil {
		if !(*t > 0 && *t <= 1) {
			return n.errorf("generation.top_p is %v, it goes from above 0 to 1", *t)
		}
		g.topP = new(float32(*t))
	}
	if g.maxTokens = s.GetMaxOutputTokens(); g.maxTokens < 0 {
		return n.errorf("generation.max_output_tokens is %d, it cannot be negative", g.maxTokens)
	}
	g.stop, g.seed = s.GetStopSequences(), s.Seed
	if len(g.stop) > maxStops || slices.Contains(g.stop, "") {
		return n.errorf("generation.stop_sequences: at most %d texts, none of them empty", maxStops)
	}
	if t := s.GetThinking(); t != nil {
		g.thinking = &genai.ThinkingConfig{IncludeThoughts: t.GetIncludeThoughts(),
			ThinkingLevel: efforts[t.GetEffort()]}
		if budget, ok := t.GetAmount().(*agentdv1.Thinking_BudgetTokens); ok {
			if budget.BudgetTokens < 0 {
				return n.errorf("generation.thinking.budget_tokens is %d, it cannot be negative", budget.BudgetTokens)
			}
			g.thinking.ThinkingBudget = &budget.BudgetTokens
		}
	}
	if err := g.readCache(n, s.GetCache()); err != nil {
		return err
	}
	return p.toolChoice(n, s.GetToolChoice())
}

// readCache reads whether the provider caches prompts.
func (g *generation) readCache(n *node, c *agentdv1.PromptCache) error {
	if c.GetMode() == agentdv1.PromptCache_MODE_ON {
		g.cache = &model.Cache{TTL: c.GetTtl().AsDuration()}
		return nil
	}
	if c.GetTtl() != nil {
		return n.errorf("generation.cache.ttl is for MODE_ON, received %v", c.GetMode())
	}
	return nil
}

// cacheOf returns what a call asks of its provider's cache. Its prompts begin like
// those of the agent's other calls in the session.
func (n *node) cacheOf(sessionID string) *model.Cache {
	if n.generation.cache == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(sessionID + "\x00" + strings.Join(n.path, "/")))
	return &model.Cache{TTL: n.generation.cache.TTL, Key: hex.EncodeToString(sum[:16])}
}

// toolChoice reads whether the model has to call a tool.
func (*planner) toolChoice(n *node, c *agentdv1.ToolChoice) error {
	names := c.GetToolNames()
	if len(names) > 0 && c.GetMode() != agentdv1.ToolChoice_MODE_REQUIRED {
		return n.errorf("generation.tool_choice.tool_names is for MODE_REQUIRED, received %v", c.GetMode())
	}
	has := func(name string) bool {
		return name == exitLoopTool && n.exitLoop || name == askUserTool && n.askUser ||
			name == taskDoneTool && n.taskDone ||
			slices.ContainsFunc(n.tools, func(d *declaration) bool { return d.name == name }) ||
			slices.ContainsFunc(n.spec.GetAgentTools(), func(t *agentdv1.AgentTool) bool { return toolName(t) == name })
	}
	for _, name := range names {
		if !has(name) {
			return n.errorf("generation.tool_choice names %q, which is none of the agent's tools", cut(name, maxName))
		}
	}
	var mode genai.FunctionCallingConfigMode
	switch c.GetMode() {
	case agentdv1.ToolChoice_MODE_NONE:
		mode = genai.FunctionCallingConfigModeNone
	case agentdv1.ToolChoice_MODE_REQUIRED:
		if len(n.tools)+len(n.spec.GetAgentTools()) == 0 && !n.exitLoop && !n.askUser && !n.taskDone {
			return n.errorf("generation.tool_choice is MODE_REQUIRED, and the agent has no tools")
		}
		mode = genai.FunctionCallingConfigModeAny
	default:
		return nil
	}
	n.generation.choice = &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: mode,
		AllowedFunctionNames: names}}
	return nil
}

// apply puts the settings into a request's configuration.
func (g *generation) apply(cfg *genai.GenerateContentConfig) {
	cfg.Temperature, cfg.TopP, cfg.MaxOutputTokens = g.temperature, g.topP, g.maxTokens
	cfg.StopSequences, cfg.Seed = g.stop, g.seed
	cfg.ThinkingConfig, cfg.ToolConfig = g.thinking, g.choice
}
