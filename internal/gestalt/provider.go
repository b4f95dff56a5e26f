package gestalt

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
	"github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1/gestaltv1connect"
	"github.com/apzuk3/agentd/internal/protorules"
)

// Config is what a Provider needs. All fields are required, but for DataDir.
type Config struct {
	// Env is what the host has said in the environment.
	Env Environment
	// Version is agentd's.
	Version string
	// DataDir is where the database is if the host does not say.
	DataDir string
	// Logger receives no keys, grants, prompts or payloads.
	Logger *slog.Logger
	// Open starts the daemon on a folder, once. It is called while the host configures the Provider.
	Open func(ctx context.Context, dataDir string) (*Backend, error)
	// Rules are those of trees.
	Rules Rules
}

// Backend is the daemon, as far as a Provider has to do with it.
type Backend struct {
	// Dial connects to the daemon.
	Dial func(ctx context.Context) (net.Conn, error)
	// Store is in the daemon's database.
	Store Store
	// Failed receives an error when the daemon is of no use any more.
	Failed <-chan error
	// Shutdown ends the daemon: softly until ctx ends, then hard.
	Shutdown func(ctx context.Context) error
}

// Provider serves the host. It is made by New. Its methods may be called from any goroutine.
type Provider struct {
	cfg Config
	log *slog.Logger
	// broken are the rules of the protocol for requests.
	broken *protorules.Rules
	host   gestaltv1connect.AgentHostClient // nil without an address
	// hostLink and daemonLink are the connections to both.
	hostLink, daemonLink *http.Transport

	// What ConfigureProvider sets, once, before it sets current.
	backend  *Backend
	store    Store
	sessions agentdv1connect.SessionServiceClient
	client   *client.Client
	current  atomic.Pointer[configured]

	// driving ends when the turns are to be left.
	driving context.Context //nolint:containedctx // of goroutines that the Provider owns
	cease   context.CancelFunc
	drivers sync.WaitGroup
	// heard says that the host has called a method of AgentProvider, but for GetCapabilities.
	heard atomic.Bool

	configuring sync.Mutex // held while ConfigureProvider works; taken before mu
	mu          sync.Mutex // protects the fields below
	stopping    bool
	driven      int             // turns that are driven, or are about to be
	following   map[string]bool // turns whose tool calls are taken, by their ids
	moved       chan struct{}   // closed when a turn is followed, or driven no more
}

// configured is what the host has configured. It is immutable.
type configured struct {
	name     string
	config   *structpb.Struct
	settings settings
	trees    *trees
}

// New returns a Provider that does not serve yet.
func New(cfg Config) (*Provider, error) {
	p := &Provider{cfg: cfg, log: cfg.Logger, following: map[string]bool{}, moved: make(chan struct{})}
	var err error
	if p.broken, err = protorules.Protocol(); err != nil {
		return nil, err
	}
	if p.host, p.hostLink, err = newHost(&cfg.Env); err != nil {
		return nil, err
	}
	p.driving, p.cease = context.WithCancel(context.Background())
	return p, nil
}

// now is what is configured; only what is behind the check of ready calls it.
func (p *Provider) now() *configured { return p.current.Load() }

// name is how the host calls this provider.
func (p *Provider) name() string {
	if p.cfg.Env.Name != "" {
		return p.cfg.Env.Name
	}
	return p.now().name
}

// decode reads a message that this program has encoded. What cannot be read is logged, and is empty.
func (p *Provider) decode(data []byte, into proto.Message) {
	if err := proto.Unmarshal(data, into); err != nil {
		p.log.Error("a stored message cannot be read", slog.String("error", err.Error()))
	}
}

// subjectHeader names, on the connection within the process, for whom a request is.
const subjectHeader = "Agentd-Gestalt-Subject"

func encodeSubject(subject string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(subject))
}

// Subject returns for whom a request of a Provider to its daemon is.
func Subject(h http.Header) (string, error) {
	subject, err := base64.RawURLEncoding.DecodeString(h.Get(subjectHeader))
	if err != nil || len(subject) == 0 {
		return "", errors.New("gestalt: a request names no subject")
	}
	return string(subject), nil
}

// as is a request to the daemon for a subject.
func as[T any](subject string, msg *T) *connect.Request[T] {
	r := connect.NewRequest(msg)
	r.Header().Set(subjectHeader, encodeSubject(subject))
	return r
}

// ready refuses what is asked before the Provider is configured, and when it stops.
func (p *Provider) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return connect.NewError(connect.CodeUnavailable, errStopping)
	case p.current.Load() == nil:
		return connect.NewError(connect.CodeFailedPrecondition, errUnconfigured)
	}
	return nil
}

// whenReady is ready for each method of AgentProvider, and notes that the host calls.
func (p *Provider) whenReady() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if err := p.ready(); err != nil {
				return nil, err
			}
			if req.Spec().Procedure != gestaltv1connect.AgentProviderGetCapabilitiesProcedure {
				p.heard.Store(true)
			}
			return next(ctx, req)
		}
	})
}

// handler serves both services.
func (p *Provider) handler() http.Handler {
	mux := http.NewServeMux()
	bounds := connect.WithReadMaxBytes(maxReply)
	mux.Handle(gestaltv1connect.NewProviderLifecycleHandler(p, bounds))
	mux.Handle(gestaltv1connect.NewAgentProviderHandler(p, bounds, connect.WithInterceptors(p.whenReady())))
	return mux
}

// GetProviderIdentity says what this is.
func (p *Provider) GetProviderIdentity(
	context.Context, *connect.Request[emptypb.Empty],
) (*connect.Response[gestaltv1.ProviderIdentity], error) {
	return connect.NewResponse(&gestaltv1.ProviderIdentity{
		Kind: gestaltv1.ProviderKind_PROVIDER_KIND_AGENT, Name: "agentd", DisplayName: "agentd",
		Description: "Runs trees of agents; turns survive restarts.", Version: p.cfg.Version,
		MinProtocolVersion: Protocol, MaxProtocolVersion: Protocol,
	}), nil
}

// StartProvider says that the host is ready.
func (p *Provider) StartProvider(
	context.Context, *connect.Request[emptypb.Empty],
) (*connect.Response[gestaltv1.StartRuntimeProviderResponse], error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&gestaltv1.StartRuntimeProviderResponse{ProtocolVersion: Protocol}), nil
}

// HealthCheck says whether turns can be served.
func (p *Provider) HealthCheck(
	context.Context, *connect.Request[emptypb.Empty],
) (*connect.Response[gestaltv1.HealthCheckResponse], error) {
	if err := p.ready(); err != nil {
		return connect.NewResponse(&gestaltv1.HealthCheckResponse{Message: textOf(err)}), nil
	}
	return connect.NewResponse(&gestaltv1.HealthCheckResponse{Ready: true}), nil
}

// GetCapabilities says what is served.
func (p *Provider) GetCapabilities(
	context.Context, *connect.Request[gestaltv1.GetCapabilitiesRequest],
) (*connect.Response[gestaltv1.AgentProviderCapabilities], error) {
	return connect.NewResponse(&gestaltv1.AgentProviderCapabilities{
		StreamingText: true, ToolCalls: true, ParallelToolCalls: true, StructuredOutput: true, Interactions: true,
		ResumableTurns: true, ReasoningSummaries: true, BoundedListHydration: true,
		SupportedToolSources: []gestaltv1.AgentToolSourceMode{
			gestaltv1.AgentToolSourceMode_AGENT_TOOL_SOURCE_MODE_MCP_CATALOG,
		},
	}), nil
}

// ConfigureProvider opens the store, starts the daemon, and goes on with the turns that are not over. The same
// configuration again changes nothing.
func (p *Provider) ConfigureProvider(
	ctx context.Context, r *connect.Request[gestaltv1.ConfigureProviderRequest],
) (*connect.Response[gestaltv1.ConfigureProviderResponse], error) {
	p.configuring.Lock()
	defer p.configuring.Unlock()
	req := r.Msg
	if req.GetProtocolVersion() != Protocol {
		return nil, invalidf("protocol_version is %d, want %d", req.GetProtocolVersion(), Protocol)
	}
	if was := p.current.Load(); was != nil {
		if was.name != req.GetName() || !sameConfig(was.config, req.GetConfig()) {
			return nil, preconditionf("agentd is configured otherwise: start another one for another configuration")
		}
		return connect.NewResponse(&gestaltv1.ConfigureProviderResponse{ProtocolVersion: Protocol}), nil
	}
	next := &configured{name: req.GetName(), config: req.GetConfig()}
	var err error
	if next.settings, err = parseSettings(req.GetConfig(), p.cfg.DataDir); err != nil {
		return nil, err
	}
	if next.trees, err = loadTrees(&next.settings, p.cfg.Rules); err != nil {
		return nil, err
	}
	if err := p.open(ctx, next); err != nil {
		return nil, err
	}
	return connect.NewResponse(&gestaltv1.ConfigureProviderResponse{ProtocolVersion: Protocol}), nil
}

// open starts the daemon, and the turns that are not over. The caller holds configuring.
func (p *Provider) open(ctx context.Context, next *configured) error {
	p.mu.Lock()
	stopping := p.stopping
	p.mu.Unlock()
	if stopping {
		return connect.NewError(connect.CodeUnavailable, errStopping)
	}
	if p.backend == nil { // else an earlier try has come so far
		backend, err := p.cfg.Open(ctx, next.settings.data)
		if err != nil {
			return preconditionf("config.data %q cannot be used: %w", next.settings.data, err)
		}
		p.connect(backend)
	}
	reply, err := p.sessions.GetCapabilities(ctx, as("agentd", &agentdv1.GetCapabilitiesRequest{}))
	if err != nil {
		return p.passed(ctx, err)
	}
	next.trees.providers = reply.Msg.GetProviders()
	open, err := p.store.OpenTurns(ctx, "")
	if err != nil {
		return p.stored(ctx, err)
	}
	p.current.Store(next)
	for _, t := range open {
		begin, err := p.admit(t)
		if err != nil {
			p.log.Warn("a turn waits for the next start", slog.String("turn", t.ID), slog.String("error", err.Error()))
			continue
		}
		begin(true)
	}
	p.log.Info("configured", slog.String("data", next.settings.data), slog.Int("agents", len(next.trees.all)),
		slog.Int("open_turns", len(open)))
	return nil
}

// connect makes the clients of a daemon.
func (p *Provider) connect(b *Backend) {
	p.backend, p.store = b, b.Store
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	p.daemonLink = &http.Transport{
		Protocols:   protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.Dial(ctx) },
	}
	const base = "http://agentd"
	hc := &http.Client{Transport: p.daemonLink}
	p.sessions = agentdv1connect.NewSessionServiceClient(hc, base)
	p.client = client.New(base, client.WithHTTPClient(hc), client.WithGrace(100*time.Millisecond))
}

// stop leaves the turns and ends the daemon, within the time of ctx as far as it can. It is called once.
func (p *Provider) stop(ctx context.Context) (err error) {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.cease()
	p.configuring.Lock() // one that is under way starts no daemon later
	defer p.configuring.Unlock()
	p.drivers.Wait()
	if p.backend != nil {
		if err = p.backend.Shutdown(ctx); err != nil {
			err = fmt.Errorf("gestalt: stop the daemon: %w", err)
		}
		p.daemonLink.CloseIdleConnections()
	}
	if p.hostLink != nil {
		p.hostLink.CloseIdleConnections()
	}
	return err
}
