package mcpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

const (
	// DefaultCalls is how many calls run at once, see Config.
	DefaultCalls = 8
	// maxWaiting is how many more wait for them; others are refused.
	maxWaiting = 64
	// cancelTime bounds how long a cancel may take.
	cancelTime = 30 * time.Second
	// maxName is MCP's.
	maxName = 128
)

// protocols are those in which a server may ask the host's person in the middle of a call, the newest first. Later ones
// have the host call again with the answers, which a turn that goes on meanwhile does not fit.
var protocols = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Config says how a server works; the zero value does.
type Config struct {
	// Version is told to hosts.
	Version string
	// Calls is how many calls run at once; others wait. Default [DefaultCalls].
	Calls int
	// Grace is how long turns go on without their owner: how long a daemon that hears nothing of this program any more
	// waits before it cancels them, and how long a host over HTTP may have no request under way.
	// Default 2 minutes, as long as the client tries to reach the daemon.
	Grace time.Duration
	// Note tells a person what hosts are not told; several goroutines call it. Default: nobody.
	Note func(format string, args ...any)
}

// Tool is a tree of agents as a tool.
type Tool struct {
	// Name is 1 to 128 of A-Z, a-z, 0-9 and _ - . and unique within a server.
	Name string
	// Description is for the host's model; "" is one that names the agent.
	Description string
	// Client is that of the daemon that runs the tree.
	Client *client.Client
	// Agent is the tree.
	Agent *client.Agent
	// Options are those of each turn, such as its tools.
	Options []client.SendOption
}

// Server is an MCP server. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	sdk     *sdk.Server
	slots   chan struct{} // holds one for each call that runs
	waiting atomic.Int64  // calls that wait or run
	ended   chan struct{} // closed by Close: calls end
	end     sync.Once
	calls   sync.WaitGroup

	presence presence

	mu    sync.Mutex // protects the fields below
	names map[string]bool
}

// New makes a server without tools. It starts no goroutine: each call is one of the SDK's, with one more that cancels
// it and, if the host wants to hear of its progress, one that tells.
func New(cfg Config) *Server {
	if cfg.Calls < 1 {
		cfg.Calls = DefaultCalls
	}
	if cfg.Grace == 0 {
		cfg.Grace = client.DefaultReconnectMaxElapsed
	}
	if cfg.Note == nil {
		cfg.Note = func(string, ...any) {}
	}
	return &Server{
		cfg: cfg,
		sdk: sdk.NewServer(
			&sdk.Implementation{Name: "agentd", Title: "agentd", Version: cfg.Version},
			&sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{}, SupportedProtocolVersions: protocols},
		),
		slots: make(chan struct{}, cfg.Calls),
		ended: make(chan struct{}),

		presence: presence{grace: cfg.Grace, hosts: map[string]*guest{}},

		names: map[string]bool{},
	}
}

// validName is what MCP says of the names of tools.
var validName = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_.-]{1,%d}$`, maxName))

// Add adds a tool.
func (s *Server) Add(t Tool) error {
	if !validName.MatchString(t.Name) {
		return fmt.Errorf("the name of an MCP tool has 1 to %d of A-Z, a-z, 0-9, _, - and ., got %q", maxName, t.Name)
	}
	s.mu.Lock()
	taken := s.names[t.Name]
	s.names[t.Name] = true
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("two tools are called %q: give one of the agents another name", t.Name)
	}
	if t.Description == "" {
		t.Description = fmt.Sprintf("Has the agent %q of agentd answer a prompt.", t.Agent.GetName())
	}
	sdk.AddTool(s.sdk, &sdk.Tool{Name: t.Name, Description: t.Description},
		func(ctx context.Context, r *sdk.CallToolRequest, in input) (*sdk.CallToolResult, output, error) {
			return s.call(ctx, r, &t, in)
		})
	return nil
}

// Serve serves one host over two streams, one message a line, until in ends or ctx does. It returns when all turns are
// over.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	unwatch := context.AfterFunc(ctx, func() {
		s.Close() // before the SDK, which waits for the calls
		stop()
	})
	defer unwatch()
	err := s.sdk.Run(life, &sdk.IOTransport{Reader: in, Writer: out})
	s.Close()
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Close cancels all turns, returns when they are over, and leaves the hosts. Calls that come later are refused. It may
// be called more than once.
func (s *Server) Close() {
	s.end.Do(func() { close(s.ended) })
	s.mu.Lock() // no call begins any more
	s.calls.Wait()
	s.mu.Unlock()
	for host := range s.sdk.Sessions() {
		_ = host.Close() // of a host that is gone
	}
}

var (
	errEnding = errors.New("agentd mcp serve is ending")
	errCrowd  = errors.New("too many calls wait: try again later")
)

// enter waits until a call may run; leave ends it.
func (s *Server) enter(ctx context.Context) (leave func(), err error) {
	if s.waiting.Add(1) > int64(s.cfg.Calls+maxWaiting) {
		s.waiting.Add(-1)
		return nil, errCrowd
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.ended:
		err = errEnding
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil && !s.begin() {
		<-s.slots
		err = errEnding
	}
	if err != nil {
		s.waiting.Add(-1)
		return nil, err
	}
	return func() {
		s.calls.Done()
		<-s.slots
		s.waiting.Add(-1)
	}, nil
}

// begin counts a call, unless the server ends.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return false
	default:
		s.calls.Add(1)
		return true
	}
}
