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
	http1       bool
	heartbeat   time.Duration
	maxMessage  int
	maxResult   int
	grace       time.Duration
	logger      *slog.Logger
	connect     []connect.ClientOption
	defaults    []option // of the runs, in order
	attachments map[string]*ToolSet
	mcpServers  []MCPServer
	reconnect   ReconnectPolicy
	journalDir  string
	token       TokenSource // nil: no credential is sent
	err         error       // the first wrong option
}

func defaultConfig() config {
	return config{
		heartbeat:   DefaultHeartbeatInterval,
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

func (c *config) failf(format string, args ...any) {
	if c.err == nil {
		c.err = errorf(ErrInvalidRequest, format, args...)
	}
}

// WithHTTPClient uses hc in place of the default client, which speaks HTTP/2
// with and without TLS and notices a dead connection by pings. hc must speak
// HTTP/2, unless [WithHTTP1] is given, and must have no overall timeout, because a run is one long request.
// It is not changed. A *http.Client without CheckRedirect is used without
// following redirects: they would hand provider keys to another host.
func WithHTTPClient(hc connect.HTTPClient) Option {
	return clientOption(func(c *config) { c.httpClient = hc })
}

// WithTLSConfig sets how the default HTTP client speaks TLS: a private
// authority, a certificate of this client. It is copied.
func WithTLSConfig(cfg *tls.Config) Option {
	return clientOption(func(c *config) { c.tls = cfg.Clone() })
}

// WithHTTP1 has turns carried by requests that need no HTTP/2, for networks that it does not
// pass: SessionService starts a turn, watches it, takes results and cancels. The default
// HTTP client then speaks HTTP/1.1, and HTTP/2 where TLS agrees on it, and uses the proxy of
// the environment for http too. A run differs in this alone: each result costs a request,
// a run that is canceled may take up to a second longer to return, and the silence after
// which a server counts as gone is twice as long (see [WithHeartbeatInterval]).
func WithHTTP1() Option {
	return clientOption(func(c *config) { c.http1 = true })
}

// WithHeartbeatInterval sets how often a run shows that it lives; default
// [DefaultHeartbeatInterval]. A server that sends nothing at all for two
// intervals after a heartbeat counts as gone: the connection is set up again,
// or the run fails with UNAVAILABLE. 0 detects nothing and sends no heartbeats, but
// for the first on a stream that attaches: its reply shows that the stream is up.
func WithHeartbeatInterval(d time.Duration) Option {
	return clientOption(func(c *config) {
		if c.heartbeat = d; d < 0 {
			c.failf("client.WithHeartbeatInterval: want at least 0, got %s", d)
		}
	})
}

// WithGrace sets how long the end of a run waits for tool handlers whose
// contexts were canceled; default [DefaultGrace], at most a day.
func WithGrace(d time.Duration) Option {
	return clientOption(func(c *config) {
		if c.grace = d; d < 0 || d > maxToolTimeout {
			c.failf("client.WithGrace: want 0 to %s, got %s", maxToolTimeout, d)
		}
	})
}

// WithMaxMessageBytes bounds each message in both directions, uncompressed;
// default [DefaultMaxMessageBytes]. A tool result that does not fit becomes a
// tool error that says so.
func WithMaxMessageBytes(n int) Option {
	return clientOption(func(c *config) {
		if c.maxMessage = n; n < 1 {
			c.failf("client.WithMaxMessageBytes: want at least 1, got %d", n)
		}
	})
}

// WithMaxResultBytes bounds the result of each tool call with the state that it
// writes, as JSON and without its parts; default [DefaultMaxResultBytes], which is
// that of servers too. A larger one becomes a tool error that says so.
func WithMaxResultBytes(n int) Option {
	return clientOption(func(c *config) {
		if c.maxResult = n; n < 1 {
			c.failf("client.WithMaxResultBytes: want at least 1, got %d", n)
		}
	})
}

// WithGRPC speaks the gRPC protocol in place of Connect's.
func WithGRPC() Option { return WithConnectOptions(connect.WithGRPC()) }

// WithGRPCWeb speaks the gRPC-Web protocol in place of Connect's.
func WithGRPCWeb() Option { return WithConnectOptions(connect.WithGRPCWeb()) }

// WithConnectOptions adds options of the underlying Connect client, such as
// interceptors or connect.WithProtoJSON.
func WithConnectOptions(opts ...connect.ClientOption) Option {
	return clientOption(func(c *config) { c.connect = append(c.connect, opts...) })
}

// WithLogger sets where the client logs what it does not report otherwise: the
// stacks of panics in tool handlers, at level debug. By default nowhere. Tool
// inputs, outputs and keys are never logged.
func WithLogger(l *slog.Logger) Option {
	return clientOption(func(c *config) {
		if l != nil {
			c.logger = l
		}
	})
}

// WithAttachment offers tools under a name to which the mcp_attachments of an
// agent refer. An agent that attaches the name gets its tools, or those of
// them that it includes, as if they stood in its tool_names.
func WithAttachment(name string, tools *ToolSet) Option {
	return clientOption(func(c *config) { c.attachments[name] = tools })
}

// WithReconnect sets how a lost connection is tried again; see [Client.Run] and
// [Client.Attach].
func WithReconnect(policy ReconnectPolicy) Option {
	return clientOption(func(c *config) {
		if policy.MaxElapsed < 0 || policy.Base < 0 || policy.Cap < 0 {
			c.failf("client.WithReconnect: times must be at least 0, got %+v; Off never reconnects", policy)
		}
		c.reconnect = policy.withDefaults()
	})
}

// WithToolJournal keeps the results of tools in files in dir, which is created
// if need be, so that a tool runs once per call also when this program is
// started again: a call that has a result gets it from there. A result is
// on disk before it is sent; one that cannot be written is logged at level warn
// and sent all the same. Each program writes a file of its own, which it holds
// locked; no other program removes it. Of files that no program holds results are
// kept for a week, up to 64 MiB and 1,024 files, then the oldest files are removed.
// They hold what the tools returned, so dir should be private; files are created
// with mode 0600. Several programs may share dir: each knows what the others had
// stored when its first run began. Where the system has no file locks (not Linux,
// macOS, a BSD or Windows) dir is for one program at a time.
func WithToolJournal(dir string) Option {
	return clientOption(func(c *config) { c.journalDir = dir })
}
