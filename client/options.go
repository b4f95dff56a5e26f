package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
)

// Defaults of [New].
const (
	DefaultHeartbeatInterval = 15 * time.Second
	DefaultConcurrency       = 16
	DefaultMaxMessageBytes   = 4 << 20
	DefaultGrace             = 5 * time.Second
)

// config is what the options of New set.
type config struct {
	httpClient  connect.HTTPClient
	tls         *tls.Config // of the default HTTP client; nil: Go's defaults
	heartbeat   time.Duration
	concurrency int
	toolTimeout time.Duration
	maxMessage  int
	grace       time.Duration
	logger      *slog.Logger
	connect     []connect.ClientOption
	defaults    []RunOption
	attachments map[string]*ToolSet
}

func defaultConfig() config {
	return config{
		heartbeat:   DefaultHeartbeatInterval,
		concurrency: DefaultConcurrency,
		maxMessage:  DefaultMaxMessageBytes,
		grace:       DefaultGrace,
		logger:      slog.New(slog.DiscardHandler),
		attachments: make(map[string]*ToolSet),
	}
}

func (c *config) connectOptions() []connect.ClientOption {
	return append([]connect.ClientOption{
		connect.WithReadMaxBytes(c.maxMessage),
		connect.WithSendMaxBytes(c.maxMessage),
	}, c.connect...)
}

// Option configures a [Client].
type Option func(*config)

// WithHTTPClient uses hc in place of the default client, which speaks HTTP/2
// with and without TLS and notices a dead connection by pings. hc must speak
// HTTP/2 and must have no overall timeout, because a run is one long request.
// It is not changed. A *http.Client without CheckRedirect is used without
// following redirects: they would hand provider keys to another host.
func WithHTTPClient(hc connect.HTTPClient) Option {
	return func(c *config) { c.httpClient = hc }
}

// WithTLSConfig sets how the default HTTP client speaks TLS: a private
// authority, a certificate of this client. It is copied.
func WithTLSConfig(cfg *tls.Config) Option {
	return func(c *config) { c.tls = cfg.Clone() }
}

// WithHeartbeatInterval sets how often a run shows that it lives; default
// [DefaultHeartbeatInterval]. A server that sends nothing at all for two
// intervals after a heartbeat counts as gone, and the run fails with
// UNAVAILABLE. 0 or less sends no heartbeats and detects nothing.
func WithHeartbeatInterval(d time.Duration) Option {
	return func(c *config) { c.heartbeat = d }
}

// WithConcurrency sets how many tool handlers of one run may run at a time;
// default [DefaultConcurrency], at least 1. Up to 1,024 more calls wait; calls
// beyond those are answered with a tool error.
func WithConcurrency(n int) Option {
	return func(c *config) { c.concurrency = max(n, 1) }
}

// WithToolTimeout bounds each tool call; by default nothing does. When it
// passes, the handler's context is cancelled with [ErrToolTimeout] and the
// model is told at once. [ToolTimeout] sets it for one tool.
func WithToolTimeout(d time.Duration) Option {
	return func(c *config) { c.toolTimeout = max(d, 0) }
}

// WithGrace sets how long the end of a run waits for tool handlers whose
// contexts were cancelled; default [DefaultGrace].
func WithGrace(d time.Duration) Option {
	return func(c *config) { c.grace = max(d, 0) }
}

// WithMaxMessageBytes bounds each message in both directions, uncompressed;
// default [DefaultMaxMessageBytes]. A tool result that does not fit becomes a
// tool error that says so.
func WithMaxMessageBytes(n int) Option {
	return func(c *config) { c.maxMessage = max(n, 1) }
}

// WithGRPC speaks the gRPC protocol in place of Connect's.
func WithGRPC() Option { return WithConnectOptions(connect.WithGRPC()) }

// WithGRPCWeb speaks the gRPC-Web protocol in place of Connect's.
func WithGRPCWeb() Option { return WithConnectOptions(connect.WithGRPCWeb()) }

// WithConnectOptions adds options of the underlying Connect client, such as
// interceptors or connect.WithProtoJSON.
func WithConnectOptions(opts ...connect.ClientOption) Option {
	return func(c *config) { c.connect = append(c.connect, opts...) }
}

// WithLogger sets where the client writes what nobody is told otherwise: the
// stacks of panics in tool handlers, at level debug. By default nowhere. Tool
// inputs, outputs and keys are never logged.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l != nil {
			c.logger = l
		}
	}
}

// WithRunDefaults applies opts to each run, before the run's own options.
func WithRunDefaults(opts ...RunOption) Option {
	return func(c *config) { c.defaults = append(c.defaults, opts...) }
}

// WithAttachment offers tools under a name to which the mcp_attachments of an
// agent refer. An agent that attaches the name gets its tools, or those of
// them that it includes, as if they stood in its tool_names.
func WithAttachment(name string, tools *ToolSet) Option {
	return func(c *config) { c.attachments[name] = tools }
}

// runConfig is what the options of Run set.
type runConfig struct {
	sessionID   string
	state       *structpb.Struct
	header      http.Header // holds provider keys: never print
	tools       []*ToolSet  // the last one wins
	timeout     time.Duration
	concurrency int
	control     *Control
	available   map[string]*tool // what calls may name; filled in by prepare
	err         error            // the first wrong option
}

// RunOption configures one run.
type RunOption func(*runConfig)

// WithSessionID continues a session. An unknown one is SESSION_NOT_FOUND.
func WithSessionID(id string) RunOption {
	return func(c *runConfig) { c.sessionID = id }
}

// WithInitialState sets session state before the turn: a map with string keys
// or a struct, encoded as encoding/json does. On a continued session these
// keys overwrite the stored ones. Integers that a float64 does not hold
// exactly, as some beyond ±2^53, are refused, because that is what state uses.
func WithInitialState(state any) RunOption {
	return func(c *runConfig) {
		value, err := stateValue(state)
		if err != nil {
			c.fail(errorf(ErrInvalidRequest, "client.WithInitialState: %w", err))
			return
		}
		object := value.GetStructValue()
		if object == nil {
			c.fail(errorf(ErrInvalidRequest, "client.WithInitialState: state must be a map with string keys or a struct, got %T", state))
			return
		}
		c.state = object
	}
}

// WithGeminiAPIKey uses the caller's own Gemini key for this run alone. The
// server neither stores nor logs it. An empty key is ignored.
func WithGeminiAPIKey(key string) RunOption { return withSecret("X-Agentd-Gemini-Api-Key", key) }

// WithAnthropicAPIKey is [WithGeminiAPIKey] for Anthropic.
func WithAnthropicAPIKey(key string) RunOption { return withSecret("X-Agentd-Anthropic-Api-Key", key) }

// WithOpenAIAPIKey is [WithGeminiAPIKey] for OpenAI.
func WithOpenAIAPIKey(key string) RunOption { return withSecret("X-Agentd-Openai-Api-Key", key) }

func withSecret(header, key string) RunOption {
	return func(c *runConfig) {
		if key != "" {
			c.header.Set(header, key)
		}
	}
}

// WithHeader sets a request header of the run, such as Authorization.
func WithHeader(key, value string) RunOption {
	return func(c *runConfig) { c.header.Set(key, value) }
}

// WithTools adds tools for this run. A tool of the same name that the client
// or an earlier set holds is hidden.
func WithTools(tools *ToolSet) RunOption {
	return func(c *runConfig) {
		if tools != nil {
			c.tools = append(c.tools, tools)
		}
	}
}

// WithTimeout bounds the whole run. When it passes, the turn is cancelled and
// the run fails with TIMEOUT.
func WithTimeout(d time.Duration) RunOption {
	return func(c *runConfig) { c.timeout = max(d, 0) }
}

// WithRunConcurrency is [WithConcurrency] for one run.
func WithRunConcurrency(n int) RunOption {
	return func(c *runConfig) { c.concurrency = max(n, 1) }
}

// WithControl lets the caller end or cancel the run through control while it
// ranges over the events.
func WithControl(control *Control) RunOption {
	return func(c *runConfig) { c.control = control }
}

// context returns the context of the run, with its timeout.
func (c *runConfig) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout > 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return context.WithCancel(ctx)
}

func (c *runConfig) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
