package client

import (
	"crypto/tls"
	"log/slog"
	"time"

	"connectrpc.com/connect"
)

// Defaults of [New].
const (
	DefaultHeartbeatInterval = 15 * time.Second
	DefaultConcurrency       = 16
	DefaultMaxMessageBytes   = 4 << 20
	DefaultMaxResultBytes    = 1 << 20
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
	maxResult   int
	grace       time.Duration
	logger      *slog.Logger
	connect     []connect.ClientOption
	defaults    []RunOption
	attachments map[string]*ToolSet
	reconnect   ReconnectPolicy
	journalDir  string
	prompter    Prompter // nil: nobody is asked
}

func defaultConfig() config {
	return config{
		heartbeat:   DefaultHeartbeatInterval,
		concurrency: DefaultConcurrency,
		maxMessage:  DefaultMaxMessageBytes,
		maxResult:   DefaultMaxResultBytes,
		grace:       DefaultGrace,
		logger:      slog.New(slog.DiscardHandler),
		attachments: make(map[string]*ToolSet),
		reconnect:   ReconnectPolicy{}.withDefaults(),
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
// intervals after a heartbeat counts as gone: the connection is set up again,
// or the run fails with UNAVAILABLE. 0 or less detects nothing and sends no
// heartbeats, but for the first on a stream that attaches: its answer shows that
// the stream is up.
func WithHeartbeatInterval(d time.Duration) Option {
	return func(c *config) { c.heartbeat = d }
}

// WithConcurrency sets how many tool handlers of one run may run at a time;
// default [DefaultConcurrency], at least 1. Up to 1,024 more calls wait; calls
// beyond those are answered with a tool error.
func WithConcurrency(n int) Option {
	return func(c *config) { c.concurrency = max(n, 1) }
}

// WithToolTimeout bounds each tool call, at most to a day; by default this side
// sets no bound, and servers have one of their own. It counts from when the
// client is asked, the wait for a free handler included. When it passes, the
// handler's context is cancelled with [ErrToolTimeout] and the model is told at
// once. A server is told when a turn begins, and waits that long and two
// seconds more. [WithRunToolTimeout] sets it for one run, [ToolTimeout] for one
// tool.
func WithToolTimeout(d time.Duration) Option {
	return func(c *config) { c.toolTimeout = max(d, 0) }
}

// WithGrace sets how long the end of a run waits for tool handlers whose
// contexts were cancelled; default [DefaultGrace], at most a day.
func WithGrace(d time.Duration) Option {
	return func(c *config) { c.grace = min(max(d, 0), maxToolTimeout) }
}

// WithMaxMessageBytes bounds each message in both directions, uncompressed;
// default [DefaultMaxMessageBytes]. A tool result that does not fit becomes a
// tool error that says so.
func WithMaxMessageBytes(n int) Option {
	return func(c *config) { c.maxMessage = max(n, 1) }
}

// WithMaxResultBytes bounds the result of each tool call with the state that it
// writes, as JSON and without its parts; default [DefaultMaxResultBytes], which is
// that of servers too. A larger one becomes a tool error that says so.
func WithMaxResultBytes(n int) Option {
	return func(c *config) { c.maxResult = max(n, 1) }
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

// WithReconnect sets how a lost connection is tried again; see [Client.Run] and
// [Client.Attach].
func WithReconnect(policy ReconnectPolicy) Option {
	return func(c *config) { c.reconnect = policy.withDefaults() }
}

// WithPrompter has p asked what the turns ask people that this client starts by
// [Client.Run] and [Client.Do]: whether a tool may be called that needs approval,
// and what a model asks by the builtin tool ask_user. [Client.Attach] follows a
// turn of which somebody else may be in charge: it asks nobody, unless
// [WithRunPrompter] is among its own options.
//
// Up to 16 prompts of a run are open at a time, more wait. What p says is sent
// until the server has it, as [WithReconnect] says; that another client was first
// is silent. An interaction is prompted for once in a run, also when the
// connection is lost meanwhile. Without a Prompter a turn that asks waits until
// somebody else answers: see [Event].InteractionRequested and [Client.Resolve].
func WithPrompter(p Prompter) Option {
	return func(c *config) { c.prompter = p }
}

// WithToolJournal keeps the answers of tools in files in dir, which is created
// if need be, so that a tool runs once per call also when this program is
// started again: a call that was answered is answered from there. An answer is
// on disk before it is sent; one that cannot be written is logged at level warn
// and sent all the same. Each program writes a file of its own, which it holds
// locked; no other program removes it. Of files that no program holds answers are
// kept for a week, up to 64 MiB and 1,024 files, then the oldest files are removed.
// They hold what the tools returned, so dir should be private; files are created
// with mode 0600. Several programs may share dir: each knows what the others had
// stored when its first run began. Where the system has no file locks (not Linux,
// macOS, a BSD or Windows) dir is for one program at a time.
func WithToolJournal(dir string) Option {
	return func(c *config) { c.journalDir = dir }
}
