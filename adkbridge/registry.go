package adkbridge

import (
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// FromRegistry returns the models of a registry, each behind a modelcall.Guard with these
// limits, with the prices of the registry's table.
func FromRegistry(reg *models.Registry, limits modelcall.Limits) Models {
	return registry{reg: reg, limits: limits}
}

type registry struct {
	reg    *models.Registry
	limits modelcall.Limits
}

func (r registry) Resolve(name string, keys map[string]string) (Model, error) {
	ref, err := r.reg.Resolve(name, keys)
	if err != nil {
		return Model{}, err
	}
	m := Model{
		LLM:      ref.Guarded(r.limits),
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
	return m, nil
}

// BuiltinTools returns the names of builtin tools that the bridge itself knows,
// sorted; those of the models' providers come on top.
func BuiltinTools() []string { return []string{askUserTool, exitLoopTool} }
