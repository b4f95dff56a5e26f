package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Memory as Config.DataDir keeps everything in memory.
const Memory = ":memory:"

// Config is the configuration of a daemon. The zero value serves on port 8080
// of 127.0.0.1 with everything in memory and only the models that need no key.
type Config struct {
	// Addr is where to listen, as host:port; no host means all addresses.
	// Default "127.0.0.1:8080".
	Addr string
	// Listener is used in place of Addr. The daemon closes it.
	Listener net.Listener
	// HandlerOnly is for a daemon that does not listen: somebody else serves its Handler.
	HandlerOnly bool
	// AdminAddr is where the operator's listener is, as host:port: /metrics, /healthz, /readyz and
	// Debug. It has neither TLS nor authentication. Default: none.
	AdminAddr string
	// AdminMayFail lets the daemon start, with a warning, while somebody else listens on AdminAddr.
	AdminMayFail bool
	// Debug serves /debug/ on AdminAddr. nil: nothing is there.
	Debug http.Handler
	// TLSCertFile and TLSKeyFile are PEM files. With both, TLS is served on the
	// same port, besides cleartext; with one alone the daemon does not start.
	TLSCertFile, TLSKeyFile string

	// DataDir is the folder of the database; it is made if there is none.
	// Default Memory.
	DataDir string
	// StoreURL is a database of PostgreSQL that is used in place of one in DataDir: see postgres.Open. It may hold a
	// password, which is neither logged nor shown. One daemon at a time may use it, unless Cluster says
	// otherwise. Default none.
	StoreURL session.Secret
	// Cluster shares the database of StoreURL with other daemons.
	Cluster Cluster
	// AllowNetworkFiles takes a DataDir on a network file system, which is refused
	// otherwise. The operator ensures that one daemon of one machine uses it at a time.
	AllowNetworkFiles bool
	// Encryption seals what sessions say before it is written; see docs/security.md. A database that is
	// encrypted needs its keys. Default: none.
	Encryption Encryption
	// EventLog writes what is appended into a table that other programs read; see package eventlog. Default: nothing is
	// written, and the table is empty.
	EventLog bool
	// Store is used in place of a database in DataDir. Shutdown closes it.
	Store store.Store
	// Beside makes the daemon one of several that share Store within a process. It is for tests.
	Beside Beside

	// Getenv reads the environment, where the built-in providers find the server's own
	// keys and their addresses. Default: an empty environment.
	Getenv func(name string) string
	// Providers says the same of those that come with agentd, and wins.
	Providers Providers
	// ScriptsDir holds scripts for the models "scripted/…". Default none.
	ScriptsDir string
	// Scripts are scripts by name, as YAML or JSON; they win over files.
	Scripts map[string]string
	// Script is a file of recorded model calls that is played as all models, in place of all providers, one call after
	// the other; see scripted.Queue. Prices do not count then. Default none.
	Script string
	// ScriptStrict refuses a call whose contents are not those that Script has.
	ScriptStrict bool
	// script is Script, once it was read.
	script model.Provider
	// ExtraProviders are served besides the built-in ones, or in place of those
	// of the same name.
	ExtraProviders []model.Provider

	// Prices is a file with a table of what models cost and can do, in the form of
	// catalog.Parse, that is laid over the built-in one. Default none.
	Prices string

	// RecordTo is a file to which each model call is appended, one JSON line each;
	// see package record. It holds prompts and responses, and no keys. Default none.
	RecordTo string

	// Collector is where spans and metrics are exported to, if its Endpoint is set.
	Collector Collector

	// Logger receives what is worth knowing, and no keys, prompts or payloads.
	// Default: none.
	Logger *slog.Logger
	// Version is what the daemon calls itself in its log and to its clients. Default
	// "dev".
	Version string
	// CORSOrigins are the origins from which web pages may call SessionService;
	// "*" is any. Default: none.
	CORSOrigins []string
	// AllowedHosts are names, whatever their case, by which a daemon may be called
	// over a loopback address, besides localhost and addresses: a proxy may pass on the
	// name that it has itself. Default: none.
	AllowedHosts []string
	// Authenticate finds out who makes a request; see server.Config. API keys are taken
	// besides. nil: Auth says how.
	Authenticate func(*http.Request) (principal.Principal, error)
	// Auth says how callers prove who they are. With the zero value they have API keys, and
	// until the first one is made, whoever reaches the daemon is its operator.
	Auth Auth
	// Insecure allows an address that other machines reach while whoever reaches the daemon
	// is its operator.
	Insecure bool
	// Tenants is a file that says what tenants may spend, which models they may use, and with which keys, addresses
	// and prices, by their names; see docs/security.md. A budget in it overrides Turns.TenantDay or Turns.TenantMonth
	// for its tenant. Default none.
	Tenants string
	// Backends is a file that names the servers that may run agents of a tree; see docs/remote.md. Default none: no
	// tree has such an agent.
	Backends string
	// Webhooks is a file that names servers that are told what happens; see docs/webhooks.md. Default none. It needs a
	// database, not a Store without a place for what is beside sessions.
	Webhooks string
	// DropToolPayloads has no session keep what tools were given and returned after its turn; else each session says
	// so for itself.
	DropToolPayloads bool
	// AuditRetention is how long entries of the audit trail are kept. Default 365 days; a negative one is for ever.
	AuditRetention time.Duration
	// Faces serve other protocols beside agentd's; see server.Face. Default: none.
	Faces []server.Face
	// NoReflection leaves out the gRPC reflection service.
	NoReflection bool
	// NoBackgroundAgents takes background agents away from the trees of turns to come, and has no agent spawn any more.
	NoBackgroundAgents bool
	// CreateSessions has Run make the session that a request names when there is none,
	// as if the request said create: clients older than that field expect it.
	CreateSessions bool
	// OnDisconnect is what becomes of a turn that Run has started, and whose request
	// has no on_disconnect, when its last client is gone: auto (the turn of a client
	// that cannot know on_disconnect is canceled when that resets its stream, any other
	// continues), continue or cancel. Default auto.
	OnDisconnect string

	// MaxConns is how many connections may be open at once; more wait to be
	// accepted. Default 4096.
	MaxConns int
	// MaxStreamsPerConn is how many streams one connection may have open.
	// Default 100.
	MaxStreamsPerConn int
	// MaxStreams is how many Run streams may be open at once. Default 4096.
	MaxStreams int
	// MaxTenantStreams and TenantRequestsPerSecond bound what the callers of one tenant do, with Cluster at all
	// replicas together; see server.Config.
	MaxTenantStreams, TenantRequestsPerSecond int
	// MaxMessageBytes is the size of the largest request message. Default 4 MiB.
	MaxMessageBytes int
	// MaxReplyBytes is about how much memory large replies may take at the same time;
	// see server.Config. Default 256 MiB.
	MaxReplyBytes int
	// MessagesPerSecond is how fast one stream's messages are taken. Default 200.
	MessagesPerSecond int

	// FirstMessageTimeout bounds the wait for a stream's first message. Default
	// 10 s.
	FirstMessageTimeout time.Duration
	// IdleTimeout ends a stream, not its turn, when no message went either way
	// for so long. Default 15 min, or 5 min more than a tool call may take if that
	// is longer: a client without heartbeats is silent while its tool works.
	IdleTimeout time.Duration
	// StreamTimeout ends a stream, not its turn, that is open for so long. Default
	// 24 h.
	StreamTimeout time.Duration
	// WriteTimeout is how long the client may take to read 16 KiB of what it is sent,
	// or a message that is smaller. Default 10 s.
	WriteTimeout time.Duration
	// LingerTimeout is how long the end of a stream waits for the client to close
	// its side. Default 2 s.
	LingerTimeout time.Duration
	// ModelTimeout bounds one try of a model call, ModelIdleTimeout the silence
	// within it, see modelcall.Limits. Defaults 10 min and 5 min.
	ModelTimeout, ModelIdleTimeout time.Duration
	// ModelRetry says how often, and after which waits, a model call that has
	// failed before anything of it was shown is made again. Default 5 tries.
	ModelRetry modelcall.Retry
	// ModelBreaker says when the calls of a model that keeps failing are suspended.
	// Default after 10 failures in a row, for 10 s at first; negative Failures are
	// never.
	ModelBreaker modelcall.BreakerConfig

	// CompactAt is the share of a model's context window, from 0 to 1, above which
	// the beginning of a conversation is summarized for agents that do not say
	// themselves. Default 0, never.
	CompactAt float64

	// Turns bounds what runs and what waits: turns at once, their time, the time
	// of a tool call, how long a turn waits for its client, sizes.
	Turns limits.Limits
	// Trees bounds what an agent tree may be and what a turn of it may do.
	Trees adkbridge.Limits
}

// Secret is a text that is neither logged nor shown.
type Secret = session.Secret

// Budget is what a turn or a session may spend; see Config.Turns.
type Budget = record.Budget

// BudgetUSD is a Budget's Cost in dollars, rounded to the nearest billionth; at least one
// for any amount above 0.
func BudgetUSD(dollars float64) record.NanoUSD { return record.BudgetUSD(dollars) }

// Providers are model providers for those who have no environment for them; what
// is left out is as Config.Getenv says.
type Providers struct {
	// GeminiAPIKey, AnthropicAPIKey and OpenAIAPIKey are the server's own keys;
	// without one, callers have to bring theirs.
	GeminiAPIKey, AnthropicAPIKey, OpenAIAPIKey session.Secret
	// GeminiBaseURL, AnthropicBaseURL and OpenAIBaseURL replace the addresses of
	// the providers; the last may be any server that speaks OpenAI's API.
	GeminiBaseURL, AnthropicBaseURL, OpenAIBaseURL string
}

// WithDefaults returns the config with its zero values replaced. The limits of
// other packages keep theirs: those packages know their defaults.
func (c Config) WithDefaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:8080")
	if c.Store == nil && c.StoreURL == "" {
		c.DataDir = cmp.Or(c.DataDir, Memory)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Version = cmp.Or(c.Version, "dev")
	if c.IdleTimeout == 0 {
		c.IdleTimeout = max(15*time.Minute, c.Turns.WithDefaults().ToolTimeout+5*time.Minute)
	}
	if c.MaxMessageBytes > 0 && c.Turns.MaxPartsBytes == 0 {
		c.Turns.MaxPartsBytes = c.MaxMessageBytes - c.MaxMessageBytes/16
	}
	c.MaxConns = cmp.Or(c.MaxConns, 4096)
	c.MaxStreamsPerConn = cmp.Or(c.MaxStreamsPerConn, 100)
	return c
}

// Validate names what is wrong with the config, all of it at once. What only
// the parts can judge is judged by New.
func (c Config) Validate() error {
	var errs []error
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		errs = append(errs, errors.New("daemon: TLS needs both a certificate and a key, only one is set"))
	}
	if c.Listener == nil && c.Addr != "" {
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			errs = append(errs,
				fmt.Errorf("daemon: address %q: want host:port, such as :8080 or 127.0.0.1:8080: %w", c.Addr, err))
		}
	}
	if c.AdminAddr != "" {
		if _, _, err := net.SplitHostPort(c.AdminAddr); err != nil {
			errs = append(errs,
				fmt.Errorf("daemon: admin address %q: want host:port, such as 127.0.0.1:9090: %w", c.AdminAddr, err))
		}
	}
	if c.ScriptStrict && c.Script == "" {
		errs = append(errs, errors.New("daemon: ScriptStrict (--script-strict) says how a file is played, "+
			"and Script (--script) names none"))
	}
	if err := c.validateCluster(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Collector.check(); err != nil {
		errs = append(errs, fmt.Errorf("daemon: %w", err))
	}
	if c.CompactAt < 0 || c.CompactAt > 1 || math.IsNaN(c.CompactAt) {
		errs = append(errs, fmt.Errorf("daemon: CompactAt is %v, must be from 0 to 1", c.CompactAt))
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxConns", c.MaxConns},
		{"MaxStreamsPerConn", c.MaxStreamsPerConn},
		{"ModelRetry.Tries", c.ModelRetry.Tries},
		{"ModelBreaker.Circuits", c.ModelBreaker.Circuits},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("daemon: %s is %d, must be at least 1", n.name, n.value))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ModelTimeout", c.ModelTimeout},
		{"ModelIdleTimeout", c.ModelIdleTimeout},
		{"ModelRetry.Base", c.ModelRetry.Base},
		{"ModelRetry.MaxWait", c.ModelRetry.MaxWait},
		{"ModelRetry.MaxRetryAfter", c.ModelRetry.MaxRetryAfter},
		{"ModelBreaker.CoolDown", c.ModelBreaker.CoolDown},
		{"ModelBreaker.MaxCoolDown", c.ModelBreaker.MaxCoolDown},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("daemon: %s is %s, must be above 0", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}
