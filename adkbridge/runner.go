package adkbridge

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"google.golang.org/adk/v2/runner"

	lru "github.com/hashicorp/golang-lru/v2"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// Model is a model that an agent may use.
type Model struct {
	// LLM must not panic, must return promptly when its context ends and must bound its
	// responses: see modelcall.Guard.
	LLM model.LLM
	// Provider is the provider's name.
	Provider string
	// Name is the provider's name of the model. Two models of a provider with the same Name
	// are one model. Empty is the name that was resolved.
	Name string
	// Builtins are the tools that the provider itself runs.
	Builtins []string
	// Takes returns why the model does not accept a file, nil if it does. A nil function
	// means that this is unknown.
	Takes func(model.File) error
	// Cost estimates what a try costs; nil when the price is not known.
	Cost func(model.Usage) record.NanoUSD
	// Window is the model's context, in tokens; 0 when it is not known.
	Window int64
	// Longest is the longest response, in tokens; 0 when it is not known.
	Longest int64
}

// Limits bound a tree and a turn. A zero field has its default.
type Limits struct {
	// Depth is how many levels a tree may have. Default 16.
	Depth int
	// Nodes is how many agents a tree may have. Default 256.
	Nodes int
	// Width is how many agents may be directly below one. Default 64.
	Width int
	// AgentTools is how many tools of an agent its model sees without a search. Default
	// 128.
	AgentTools int
	// InstructionBytes bounds one agent's instruction. Default 64 KiB.
	InstructionBytes int
	// DescriptionBytes bounds one agent's description. Default 4 KiB.
	DescriptionBytes int
	// FilledBytes bounds one agent's filled-in instruction with the texts around it and the
	// list of the agents to transfer to. Default 2 MiB.
	FilledBytes int
	// RequestBytes bounds the requests that the agents of one turn make of models at
	// the same time: instructions, tools and history, before a provider's adapter
	// encodes them. A call that would exceed it waits for others to end; one that is
	// larger than all of it is made alone. Default 64 MiB.
	RequestBytes int
	// AllRequestBytes bounds the requests that all turns make at the same time. Those
	// above 1 MiB take at most a quarter of it and wait for each other alone; one that
	// is larger than that is made alone among them. Default 512 MiB.
	AllRequestBytes int
	// LoopDefault is the cap of a loop that sets none. Default 25.
	LoopDefault int
	// LoopMax is the highest cap a loop may set. Default 1000.
	LoopMax int
	// ModelCalls is how many model calls a turn may make. Default 500.
	ModelCalls int
	// Transfers is how often a turn may transfer; they nest. Default 50.
	Transfers int
	// ThoughtRounds is how many responses in a row of one agent may hold only thoughts,
	// after which the model is called again. Default 3.
	ThoughtRounds int
	// RefusedRounds is how many responses in a row of one agent may hold only calls that
	// cannot be run (of unknown tools, with malformed arguments). The model learns why each
	// time. Default 3.
	RefusedRounds int
	// ValueBytes bounds what one response may write into the state by an output_key, and
	// the arguments of one tool call: either travels in one message, and clients accept 4
	// MiB. Default 1 MiB.
	ValueBytes int
	// ResponseCalls is how many tool calls of one response are run. Default 128.
	ResponseCalls int
	// CacheSessions and CacheBytes bound the histories that are kept in memory
	// between turns: how many, and the sum of their stored size. Defaults 256
	// and 64 MiB.
	CacheSessions int
	CacheBytes    int
	// CloseTimeout bounds the appends that make the history valid after a turn
	// was stopped. Default 15 s.
	CloseTimeout time.Duration
}

// WithDefaults returns the limits with defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		field *int
		def   int
	}{
		{&l.Depth, 16},
		{&l.Nodes, 256},
		{&l.Width, 64},
		{&l.AgentTools, 128},
		{&l.InstructionBytes, 64 << 10},
		{&l.DescriptionBytes, 4 << 10},
		{&l.FilledBytes, 2 << 20},
		{&l.RequestBytes, 64 << 20},
		{&l.AllRequestBytes, 512 << 20},
		{&l.LoopDefault, 25},
		{&l.LoopMax, 1000},
		{&l.ModelCalls, 500},
		{&l.Transfers, 50},
		{&l.ThoughtRounds, 3},
		{&l.RefusedRounds, 3},
		{&l.ValueBytes, 1 << 20},
		{&l.ResponseCalls, 128},
		{&l.CacheSessions, 256},
		{&l.CacheBytes, 64 << 20},
	} {
		if *f.field == 0 {
			*f.field = f.def
		}
	}
	if l.CloseTimeout == 0 {
		l.CloseTimeout = 15 * time.Second
	}
	return l
}

// Config is what a Runner needs.
type Config struct {
	// Resolve returns the model of that name, ready to be called from many goroutines;
	// FromRegistry makes one. keys are the caller's own by provider name. It makes no
	// network call; its errors are of type *model.Error. Required to check and to run.
	Resolve func(name string, keys map[string]string) (Model, error)
	// ResolveFor, if not nil, returns the Resolve of a tenant, "" for none. It is called once for each
	// turn that is checked, starts or resumes.
	ResolveFor func(tenant string) (resolve func(name string, keys map[string]string) (Model, error))
	// Limits may be zero.
	Limits Limits
	// CompactAt is the share of the context window, from 0 to 1, above which an agent's
	// conversation is summarized unless the agent sets its own; 0 is never. It is not part
	// of a turn, since summaries are in the log.
	CompactAt float64
	// Backend returns the driver of the backend of that name; its error says which there are. It makes no network
	// call. With nil a Runner takes any name, and runs no agent of a backend.
	Backend func(name string) (remote.Driver, error)
	// Price returns what a call of a model of a backend costs a tenant, "" for none; nil where the price is not
	// known. A nil Price knows none.
	Price func(tenant, model string) func(model.Usage) record.NanoUSD
	// Logger defaults to none.
	Logger *slog.Logger
}

// Runner runs agent trees. Its methods may be called from any goroutine.
type Runner struct {
	resolve  func(name string, keys map[string]string) (Model, error)
	tenants  func(tenant string) (resolve func(name string, keys map[string]string) (Model, error))
	backend  func(name string) (remote.Driver, error)
	price    func(tenant, model string) func(model.Usage) record.NanoUSD
	settings atomic.Pointer[settings]
	log      *slog.Logger
	cache    *cache
	// provisioned caches the ids of agents on backends.
	provisioned *lru.Cache[provisioned, string]
	// schemas caches the schemas of tools.
	schemas schemas
	// requests bounds what its turns send to models.
	requests *requests
	// configHook, if set, changes the configuration of ADK; tests compare with ADK's own
	// prompts.
	configHook func(*turn, *runner.Config)
}

var _ session.Runner = (*Runner)(nil)

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	limits := cfg.Limits.WithDefaults()
	r := &Runner{
		resolve:  cfg.Resolve,
		tenants:  cfg.ResolveFor,
		backend:  cfg.Backend,
		price:    cfg.Price,
		log:      cfg.Logger,
		cache:    newCache(limits.CacheSessions, limits.CacheBytes),
		requests: newRequests(limits.AllRequestBytes),
	}
	r.provisioned, _ = lru.New[provisioned, string](maxProvisioned) // it fails for sizes below 1 alone
	r.Set(limits, cfg.CompactAt)
	return r
}

// settings may change while a Runner works.
type settings struct {
	limits    Limits
	compactAt float64
}

// Set changes the limits and Config.CompactAt for turns that start, or resume, from now on. The room for
// the requests of all turns and the cache stay as New has made them.
func (r *Runner) Set(limits Limits, compactAt float64) {
	r.settings.Store(&settings{limits: limits.WithDefaults(), compactAt: compactAt})
}

// limits returns the limits as they are now. They must not be changed.
func (r *Runner) limits() *Limits { return &r.settings.Load().limits }

// Check refuses a spec that cannot run. It makes no network call. All of its
// errors are *fault.Error and name the agent by its path.
func (r *Runner) Check(_ context.Context, spec *record.Spec, keys session.Keys) error {
	tree, err := r.plan(spec, keys)
	if err != nil {
		return err
	}
	if !spec.Pinned { // names may have come to mean the same model since
		if err := tree.root.checkDistinct(); err != nil {
			return err
		}
	}
	spec.Checked = &checkedTree{tree: tree, keys: keys}
	return tree.checkParts(spec.Parts)
}

// checkedTree is the tree of a spec that Check accepted, with the keys it was given.
type checkedTree struct {
	tree *tree
	keys session.Keys
}

// planFor returns the tree that Check made, or plans again. The tree serves one run:
// the spec outlives it and must not hold its keys.
func (r *Runner) planFor(spec *record.Spec, keys session.Keys) (*tree, error) {
	c, ok := spec.Checked.(*checkedTree)
	spec.Checked = nil
	if ok && maps.Equal(c.keys, keys) {
		return c.tree, nil
	}
	return r.plan(spec, keys)
}

// Decode returns a stored event in the session's terms.
func (r *Runner) Decode(data []byte) (*record.Event, error) {
	s, err := decode(data)
	if err != nil {
		return nil, err
	}
	return s.sessionEvent(), nil
}

// Run drives a turn to its end. See session.Runner for what it owes.
func (r *Runner) Run(ctx context.Context, run *session.Run) error {
	return r.runTurn(ctx, run)
}

// handle is the part of *session.Run that the bridge uses.
type handle interface {
	SessionID() string
	TurnID() string
	Spec() *record.Spec
	Keys() session.Keys
	State() map[string]any
	StartSeq() int64
	Records(ctx context.Context, after int64) iter.Seq2[record.Record, error]
	Append(ctx context.Context, data []byte, ev *record.Event) (record.Record, error)
	AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error)
	AppendAtEnd(ctx context.Context, data []byte, ev *record.Event) error
	AgentsChanged(ctx context.Context, f record.AgentsChanged) error
	AgentsChangedAtEnd(f record.AgentsChanged) error
	Delta(d record.Delta)
	Marks(messageID string) record.Marks
	BeginCall(ctx context.Context, call record.ModelCall, most func() record.Spent) (done func(owed bool), err error)
	Wait(ctx context.Context, inCall bool, wait func(context.Context) error) error
	Retrying(ctx context.Context, retry record.ModelRetry) error
	FellBack(ctx context.Context, f record.ModelFallback) error
	Raw(ctx context.Context, p record.RawPayload) error
	RemoteSession(ctx context.Context, f *agentdv1.RemoteSession) error
	Injected() []session.Injected
	Await(ctx context.Context, callID string) (record.ToolResult, error)
	Ask(ctx context.Context, call record.ToolCall) (record.ToolResult, error)
	ResultNow(callID string) (record.ToolResult, bool)
	Result(callID string) (record.ToolResult, bool)
	Resolved(callID string) (record.Resolution, bool)
	CompactionAsked() (seq int64, focus string)
	Spawn(ctx context.Context, ask session.Spawn) (child *session.Child, refused string, err error)
	Children(ctx context.Context) ([]*session.Child, error)
	AwaitChild(ctx context.Context, name string) error
	StopChild(ctx context.Context, c *session.Child) error
	TellChild(ctx context.Context, c *session.Child, text, key string) error
}
