package adkbridge

import (
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// FromRegistry returns a Config.Resolve: the models of a registry, each behind a
// modelcall.Guard with these limits, with the prices of the registry's table.
func FromRegistry(
	reg *models.Registry, limits modelcall.Limits,
) func(name string, keys map[string]string) (Model, error) {
	return func(name string, keys map[string]string) (Model, error) {
		ref, err := reg.Resolve(name, keys)
		if err != nil {
			return Model{}, err
		}
		return modelOf(ref, limits), nil
	}
}

// modelOf returns a model of a registry.
func modelOf(ref models.Ref, limits modelcall.Limits) Model {
	m := Model{
		LLM:      ref.Guarded(limits),
		Provider: ref.Provider,
		Name:     ref.Model,
		Builtins: ref.Builtins,
		Takes:    ref.Takes,
	}
	if _, known := ref.Known.Cost(model.Usage{}); known {
		m.Cost = func(u model.Usage) record.NanoUSD {
			nanos, _ := ref.Known.Cost(u)
			return record.NanoUSD(nanos)
		}
	}
	if c := ref.Known.Capabilities; c != nil {
		m.Window, m.Longest = c.ContextTokens, c.OutputTokens
	}
	return m
}

// BuiltinTools returns the names of builtin tools that the bridge itself knows,
// sorted; those of the models' providers come on top.
func (*Runner) BuiltinTools() []string { return []string{askUserTool, exitLoopTool, taskDoneTool} }
