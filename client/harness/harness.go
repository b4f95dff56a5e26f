// Package harness composes what a program with agents takes for granted: the settings of a project, the gate, tools for
// files and the shell, MCP servers, skills, and what is written down for agents.
//
//	h, err := harness.New(ctx, harness.Config{Prompter: prompter})
//	defer h.Close()
//	clnt := client.New(url, h.ClientOptions()...)
//	agent := client.LLM("helper", model, h.AgentOptions()...)
//	result, err := clnt.Do(ctx, agent, "Mend the tests", h.Tools())
//
// Each part can be left out, and each can be had alone: the packages below client know nothing of this one.
//
// It knows which parts there are, and nothing of how they work. It may import them, and package client.
package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/skills"
	"github.com/apzuk3/agentd/client/tools"
)

// Config says what to compose. The zero value is all that the current folder has, and asks nobody.
type Config struct {
	// Dir is where the settings are looked for, and upwards; "" is the current folder.
	Dir string
	// Settings are used in place of those of Dir.
	Settings *conf.Config
	// Prompter is asked what tools may do, one question at a time; nil: what would be asked is refused.
	Prompter permit.Prompter
	// Elicitor answers questions of MCP servers; nil: they are declined.
	Elicitor mcp.Elicitor
	// Journal is the folder of client.WithToolJournal; "" is none.
	Journal string
	// Notice is told what a user should know, such as a server that has failed; nil: nobody is.
	Notice func(text string)

	// NoTools, NoMCP, NoSkills and NoMemory leave parts out.
	NoTools, NoMCP, NoSkills, NoMemory bool
	// DisableTools are tools to do without, besides those of the settings.
	DisableTools []string
}

// Harness is what was composed. It may be used concurrently.
type Harness struct {
	// Settings, Gate and Registry are there always; of NoTools the registry has no tools.
	Settings *conf.Config
	Gate     *permit.Gate
	Registry *tools.Registry
	// Skills are those of the project and the user.
	Skills *skills.Set
	// Servers are the MCP servers, those that have failed too.
	Servers []*mcp.Server
	// Layers are what is added to each agent's instruction.
	Layers []memory.Layer

	journal string
	skilled bool
}

// New composes. Its error is about the settings or mcp.json; a server that fails hurts nothing else. ctx is for the
// time of New. The caller ends what it has started with Close.
func New(ctx context.Context, cfg Config) (_ *Harness, err error) {
	if cfg.Notice == nil {
		cfg.Notice = func(string) {}
	}
	h := &Harness{Settings: cfg.Settings, journal: cfg.Journal, Skills: &skills.Set{}}
	if h.Settings == nil {
		dir := cfg.Dir
		if dir == "" {
			dir = "."
		}
		if h.Settings, err = conf.Load(dir); err != nil {
			return nil, fmt.Errorf("harness.New: %w", err)
		}
	}
	if h.Gate, err = permit.New(h.Settings, permit.Serialize(cfg.Prompter)); err != nil {
		return nil, fmt.Errorf("harness.New: %w", err)
	}
	if err := h.tools(&cfg); err != nil {
		return nil, fmt.Errorf("harness.New: %w", err)
	}
	if !cfg.NoMemory {
		var warnings []string
		h.Layers, warnings = memory.Layers(h.Settings.Root, h.Skills.Listing())
		for _, w := range warnings {
			cfg.Notice(w)
		}
	}
	if cfg.NoMCP {
		return h, nil
	}
	dir := filepath.Join(h.Settings.Root, conf.Folder)
	h.Servers, err = mcp.Build(ctx, dir, h.Gate, cfg.Elicitor, mcp.OnNotice(cfg.Notice))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("harness.New: %w", err), h.Close())
	}
	for _, s := range h.Servers {
		if s.Err != nil {
			cfg.Notice(fmt.Sprintf("the MCP server %s has failed: %v", s.Name, s.Err))
		}
	}
	return h, nil
}

// tools makes the registry, with the tools of the skills.
func (h *Harness) tools(cfg *Config) (err error) {
	enabled := tools.Default()
	if cfg.NoTools {
		enabled = tools.Builtins{}
	}
	for _, name := range cfg.DisableTools {
		if err := enabled.Disable(name); err != nil {
			return err
		}
	}
	if h.Registry, err = tools.Build(h.Settings, h.Gate, enabled); err != nil || cfg.NoSkills {
		return err
	}
	h.Skills = skills.Load(h.Settings.Root)
	for _, w := range h.Skills.Warnings {
		cfg.Notice(w)
	}
	if h.skilled = len(h.Skills.All()) > 0; h.skilled {
		return h.Skills.AddTo(h.Registry.Set, h.Gate)
	}
	return nil
}

// ClientOptions are those of a client whose runs have what was composed, but for Tools.
func (h *Harness) ClientOptions() []client.Option {
	var out []client.Option
	for _, s := range h.Servers {
		out = append(out, client.WithAttachment(s.Name, s.ToolSet()))
	}
	if text := memory.Join(h.Layers); text != "" {
		out = append(out, client.WithInstruction(text))
	}
	if h.Settings.Permissions.Mode == "plan" {
		out = append(out, client.WithPlanMode())
	}
	if n := h.Settings.Agent.MaxSteps; n > 0 {
		out = append(out, client.WithBudget(client.Budget{ModelCalls: int64(n)}))
	}
	if h.journal != "" {
		out = append(out, client.WithToolJournal(h.journal))
	}
	return out
}

// Tools is the option of a run that has the tools.
func (h *Harness) Tools() client.FollowOption { return client.WithTools(h.Registry.Set) }

// AgentOptions give an agent all tools, and names besides: of tools that the program has itself.
func (h *Harness) AgentOptions(names ...string) []client.AgentOption {
	all := slices.Concat(h.Registry.Names(), names)
	if h.skilled {
		all = append(all, skills.ToolNames()...)
	}
	out := []client.AgentOption{client.Tools(all...)}
	for _, s := range h.Servers {
		if s.Err == nil {
			out = append(out, client.AttachedTools(s.Name))
		}
	}
	return out
}

// Close ends the MCP servers, and what tools have left running.
func (h *Harness) Close() error {
	err := h.Registry.Close()
	for _, s := range h.Servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
