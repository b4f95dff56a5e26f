package main

import (
	"path/filepath"
	"runtime"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/tools"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
)

// packFlags are about the tools that run here without a command of their own.
type packFlags struct {
	NoBuiltinTools bool     `noenv:"" help:"${pack_none}"`
	DisableTools   []string `noenv:"" placeholder:"NAME,NAME" help:"${pack_disable}"`
	Permissions    string   `noenv:"" enum:"${permission_modes}" default:"" placeholder:"MODE" help:"${pack_permissions}"`
}

var toolsGroup = kong.Group{Key: "tools", Title: "Flags of the tools that need no declaration:"}

// pack is the tools that agents of a turn may name without anybody declaring them. A nil pack has none.
type pack struct {
	reg     *tools.Registry
	gate    *cli.Gate
	options []client.Option
}

// pack builds the tools, if the tree names some or is not known.
func (f *packFlags) pack(p *process, file *agentfile.File) (*pack, error) {
	enabled := tools.Default()
	for _, name := range f.DisableTools {
		if err := enabled.Disable(name); err != nil {
			return nil, usage("--disable-tools: %w", err)
		}
	}
	if f.NoBuiltinTools || file != nil && len(packed(file.Agent, file.Declarations())) == 0 {
		return nil, nil
	}
	cfg, err := conf.Load(".")
	if err != nil {
		return nil, &codedError{code: exitUsage, err: err}
	}
	if f.Permissions != "" {
		cfg.Permissions.Mode = f.Permissions
	}
	out := &pack{gate: &cli.Gate{}}
	gate, err := permit.New(cfg, permit.Serialize(out.gate))
	if err != nil {
		return nil, &codedError{code: exitUsage, err: err}
	}
	if out.reg, err = tools.Build(cfg, gate, enabled); err != nil {
		return nil, &codedError{code: exitUsage, err: err}
	}
	if dir, err := dataDir(runtime.GOOS, p.env); err == nil {
		out.options = append(out.options, client.WithToolJournal(filepath.Join(dir, "tool-results")))
	}
	return out, nil
}

// set returns the tools, nil for none.
func (k *pack) set() *client.ToolSet {
	if k == nil {
		return nil
	}
	return k.reg.Set
}

// serve has the person of a turn asked what its tools may do.
func (k *pack) serve(t *cli.Turn) {
	if k != nil {
		t.Builtins = k.reg.Set
		k.gate.For(t)
	}
}

// client are the options of the client that runs the tools.
func (k *pack) client() []client.Option {
	if k == nil {
		return nil
	}
	return k.options
}

// close ends what the tools have left running.
func (k *pack) close() {
	if k != nil {
		_ = k.reg.Close()
	}
}

// packed returns the tools of the pack that a tree names and that are not declared.
func packed(a *agentdv1.Agent, declared []*agentdv1.Tool) (names []string) {
	for _, name := range a.GetLlm().GetToolNames() {
		own := slices.ContainsFunc(declared, func(t *agentdv1.Tool) bool { return t.GetName() == name })
		if !own && slices.Contains(tools.Names(), name) {
			names = append(names, name)
		}
	}
	for _, below := range slices.Concat(
		a.GetLlm().GetSubAgents(), a.GetSequential().GetAgents(), a.GetParallel().GetAgents(), a.GetLoop().GetAgents(),
	) {
		names = append(names, packed(below, declared)...)
	}
	return names
}

// withPack has a daemon's rules take the tools of the pack as declared.
func withPack(rules agentfile.Rules) agentfile.Rules {
	return func(a *agentdv1.Agent, declared []*agentdv1.Tool) error {
		all := slices.Clip(declared)
		for _, name := range packed(a, declared) {
			if !slices.ContainsFunc(all, func(t *agentdv1.Tool) bool { return t.GetName() == name }) {
				all = append(all, &agentdv1.Tool{Name: name, Description: "a tool of agentd run"})
			}
		}
		return rules(a, all)
	}
}
