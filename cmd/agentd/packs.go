package main

import (
	"path/filepath"
	"runtime"
	"slices"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/skills"
	"github.com/apzuk3/agentd/client/tools"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
)

// packFlags are about what a project adds to a turn: tools that need no declaration, and instructions.
type packFlags struct {
	NoBuiltinTools bool     `noenv:"" help:"${pack_none}"`
	DisableTools   []string `noenv:"" placeholder:"NAME,NAME" help:"${pack_disable}"`
	Permissions    string   `noenv:"" enum:"${pack_modes}" default:"" placeholder:"MODE" help:"${pack_permissions}"`
	NoMemory       bool     `noenv:"" help:"${pack_no_memory}"`

	bare bool            // a model alone, which has no tools
	all  bool            // the tree is made here and has all tools
	read bool            // nothing is to run: no server is started
	asks permit.Prompter // is asked what tools may do; nil: the person of the turn, see pack.serve
}

var toolsGroup = kong.Group{Key: "tools", Title: "Flags of the tools and instructions of a project:"}

// project is what the current folder adds to a turn.
type project struct {
	pack   *pack
	skills *skills.Set    // nil where nothing of the project counts
	cfg    *conf.Config   // nil where nothing of the project counts
	layers []memory.Layer // of the instruction; none if the project and the user have nothing to say
}

// pack is the tools that agents of a turn may name without anybody declaring them, and those of the MCP servers of the
// project. A nil pack has none.
type pack struct {
	reg     *tools.Registry
	gate    *cli.Gate
	servers []*mcp.Server
	options []client.Option
	plans   bool // the mode is plan
	permits *permit.Gate
	skills  bool // there are some
	// answered: there is a person, to whom the turns' questions come.
	answered bool
}

// planFirst is what models are told with plan_mode advisory and required; the latter the gate holds them to.
const planFirst = "Before you change anything, write down what you are going to do with record_plan."

// project reads what the current folder adds for a tree; file is nil if that is not known.
func (f *packFlags) project(p *process, file *agentfile.File) (*project, error) {
	enabled := tools.Default()
	for _, name := range f.DisableTools {
		if err := enabled.Disable(name); err != nil {
			return nil, usage("--disable-tools: %w", err)
		}
	}
	attaches := !f.bare && (file == nil || attachesServers(file.Agent))
	if f.NoBuiltinTools && f.NoMemory && !attaches {
		return &project{}, nil
	}
	cfg, err := conf.Load(".")
	if err != nil {
		return nil, &codedError{code: exitUsage, err: err}
	}
	if f.Permissions != "" {
		cfg.Permissions.Mode = f.Permissions
	}
	var named []string
	if file != nil {
		named = packed(file.Agent, file.Declarations())
	}
	out := &project{cfg: cfg}
	known := skills.Load(cfg.Root)
	out.skills = known
	if f.NoBuiltinTools {
		enabled, known, named = tools.Builtins{}, &skills.Set{}, nil
	}
	if attaches || len(named) > 0 || f.all {
		if out.pack, err = f.newPack(p, cfg, enabled, known); err == nil && attaches && !f.read {
			err = out.pack.connect(p, cfg)
		}
		if err != nil {
			return nil, &codedError{code: exitUsage, err: err}
		}
	}
	if f.NoMemory {
		return out, nil
	}
	listing := ""
	if out.pack != nil && (file == nil || slices.Contains(named, skills.LoadSkill)) {
		listing = known.Listing()
		warn(p, known.Warnings)
	}
	layers, warnings := memory.Layers(cfg.Root, listing)
	warn(p, warnings)
	if out.pack != nil && cfg.PlanMode != "off" && (file == nil || slices.Contains(named, "record_plan")) {
		layers = append(layers, memory.Layer{Source: "plan_mode", Text: planFirst, Size: int64(len(planFirst))})
	}
	if len(layers) > 1 || out.pack != nil {
		out.layers = layers
	}
	return out, nil
}

// root is the folder of the project.
func (j *project) root() string {
	if j.cfg == nil {
		return "."
	}
	return j.cfg.Root
}

// model is the model of the settings, "" for none.
func (j *project) model() string {
	if j.cfg == nil {
		return ""
	}
	return j.cfg.Model
}

// steps is how many model calls a turn may make that has tools of the project; 0 is no bound.
func (j *project) steps() int64 {
	if j.pack == nil {
		return 0
	}
	return int64(j.cfg.Agent.MaxSteps)
}

func warn(p *process, warnings []string) {
	for _, w := range warnings {
		p.notef("%s", w)
	}
}

func (f *packFlags) newPack(
	p *process, cfg *conf.Config, enabled tools.Builtins, known *skills.Set,
) (*pack, error) {
	out := &pack{
		gate: &cli.Gate{}, plans: cfg.Permissions.Mode == "plan",
		answered: p.tty.stdin && p.tty.stderr || f.asks != nil,
	}
	asks := f.asks
	if asks == nil && out.answered {
		asks = out.gate
	}
	gate, err := permit.New(cfg, permit.Serialize(asks))
	if err != nil {
		return nil, err
	}
	out.permits, out.skills = gate, len(known.All()) > 0
	if out.reg, err = tools.Build(cfg, gate, enabled); err != nil {
		return nil, err
	}
	if err := known.AddTo(out.reg.Set, gate); err != nil {
		return nil, err
	}
	if dir, err := dataDir(runtime.GOOS, p.env); err == nil {
		out.options = append(out.options, client.WithToolJournal(filepath.Join(dir, "tool-results")))
	}
	return out, nil
}

// connect starts the MCP servers of the project.
func (k *pack) connect(p *process, cfg *conf.Config) (err error) {
	ctx, stop := p.context()
	defer stop()
	var ask mcp.Elicitor
	if k.answered {
		ask = mcp.InTurn
	}
	notice := mcp.OnNotice(func(text string) { p.notef("%s", text) })
	k.servers, err = mcp.Build(ctx, filepath.Join(cfg.Root, conf.Folder), k.permits, ask, notice)
	for _, s := range k.servers {
		if s.Err != nil {
			p.notef("the MCP server %s has failed: %v", s.Name, s.Err)
		}
		k.options = append(k.options, client.WithAttachment(s.Name, s.ToolSet()))
	}
	return err
}

// serve gives a turn the tools, and has its person asked what they may do.
func (k *pack) serve(t *cli.Turn) {
	k.equip(t)
	k.ask(t)
}

// equip gives a turn the tools.
func (k *pack) equip(t *cli.Turn) {
	if k == nil {
		return
	}
	t.Builtins = append(t.Builtins, k.sets()...)
}

// ask has the person of a turn asked what tools may do.
func (k *pack) ask(t *cli.Turn) {
	if k != nil {
		k.gate.For(t)
	}
}

// sets are the tools; of two of the same name the later counts.
func (k *pack) sets() (sets []*client.ToolSet) {
	if k == nil {
		return nil
	}
	for _, s := range k.servers {
		sets = append(sets, s.ToolSet())
	}
	return append(sets, k.reg.Set)
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
	if k == nil {
		return
	}
	_ = k.reg.Close()
	for _, s := range k.servers {
		_ = s.Close()
	}
}

// attachesServers reports whether a tree attaches MCP servers.
func attachesServers(a *agentdv1.Agent) bool {
	return len(a.GetLlm().GetMcpAttachments()) > 0 || slices.ContainsFunc(agentfile.Children(a), attachesServers)
}

// detached is a tree without its MCP servers, whose tools only they know.
func detached(a *agentdv1.Agent) *agentdv1.Agent {
	if !attachesServers(a) {
		return a
	}
	a = proto.CloneOf(a)
	var strip func(*agentdv1.Agent)
	strip = func(a *agentdv1.Agent) {
		if a.GetLlm() != nil {
			a.GetLlm().McpAttachments = nil
		}
		for _, b := range agentfile.Children(a) {
			strip(b)
		}
	}
	strip(a)
	return a
}

// packed returns the tools of the pack that a tree names and that are not declared.
func packed(a *agentdv1.Agent, declared []*agentdv1.Tool) (names []string) {
	for _, name := range a.GetLlm().GetToolNames() {
		own := slices.ContainsFunc(declared, func(t *agentdv1.Tool) bool { return t.GetName() == name })
		if !own && (slices.Contains(tools.Names(), name) || slices.Contains(skills.ToolNames(), name)) {
			names = append(names, name)
		}
	}
	for _, b := range agentfile.Children(a) {
		names = append(names, packed(b, declared)...)
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
		return rules(detached(a), all)
	}
}
