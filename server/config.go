package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Sessions keeps sessions, starts turns, attaches clients to them and reports their
// state. *session.Manager implements it.
type sessions interface {
	CreateSession(
		ctx context.Context, names session.Names, budget record.Budget, once session.Once,
	) (index.Session, error)
	Session(ctx context.Context, id string) (index.Session, error)
	ListSessions(
		ctx context.Context, f index.SessionQuery, page string, limit int,
	) (sessions []index.Session, next string, err error)
	UpdateSession(ctx context.Context, id string, c store.Change) (index.Session, error)
	CompactSession(ctx context.Context, id, focus string) (pos int64, err error)
	DeleteSession(ctx context.Context, id string) error
	ForkSession(ctx context.Context, req session.ForkRequest) (index.Session, error)

	Start(ctx context.Context, req session.Request) (*session.Turn, error)
	Attach(ctx context.Context, req session.AttachRequest) (*session.Turn, *session.Watcher, error)
	Turn(ctx context.Context, sessionID, turnID string) (index.Turn, error)
	Said(ctx context.Context, t *index.Turn) (record.Parts, error)
	ListTurns(
		ctx context.Context, q index.TurnQuery, page string, limit int,
	) (turns []index.Turn, next string, err error)
	Events(
		ctx context.Context, req session.AttachRequest, limit int, keep func(*agentdv1.RunResponse) bool,
	) ([]*agentdv1.RunResponse, bool, error)
	SessionEvents(
		ctx context.Context, id, cursor string, limit int, keep func(*agentdv1.RunResponse) bool,
	) ([]session.Placed, bool, error)
	WatchSession(ctx context.Context, id, cursor string) (*session.SessionWatcher, error)
	CursorAt(ctx context.Context, id string, seq int64) (cursor string, err error)
	SubmitResults(ctx context.Context, req session.AttachRequest, results []session.ClientResult) ([]error, error)
	CancelTurn(ctx context.Context, sessionID, turnID, reason string) error
	CancelCall(ctx context.Context, req session.AttachRequest, callID string) error
	TurnLog(ctx context.Context, sessionID, turnID, page string) (session.TurnLog, error)
	SharedKeys(ctx context.Context, prefix, page string, limit int) (keys []session.SharedKey, next string, err error)
	RemoveShared(ctx context.Context, keys []string) (removed []string, err error)
	SetShared(ctx context.Context, state map[string]any) error

	StartGoal(ctx context.Context, req session.GoalRequest) (*index.Goal, error)
	ResumeGoal(ctx context.Context, req session.GoalRequest) (*index.Goal, error)
	Goal(ctx context.Context, sessionID string) (*index.Goal, error)
	ListGoals(
		ctx context.Context, q index.GoalQuery, page string, limit int,
	) (goals []*index.Goal, next string, err error)
	ControlGoal(ctx context.Context, sessionID string, action agentdv1.GoalAction) ([]*index.Goal, error)
	Inject(ctx context.Context, sessionID, text, key string) (waiting int, err error)
	Holder() string
	Since(at time.Time) time.Duration

	Interaction(ctx context.Context, sessionID, id string) (*index.Interaction, error)
	ListInteractions(
		ctx context.Context, q index.InteractionQuery, page string, limit int,
	) (list []*index.Interaction, next string, err error)
	Resolve(
		ctx context.Context, req session.AttachRequest, id string, r record.Resolution,
	) (*index.Interaction, error)
	Raise(
		ctx context.Context, sessionID, callID string, q record.Question,
	) (in *index.Interaction, again bool, err error)
}

// Config configures a Server. A zero field, other than Sessions, has its default.
type Config struct {
	// Sessions starts the turns. Required.
	Sessions sessions
	// Ready reports whether turns can be served; nil means they always can.
	Ready func(context.Context) error
	// Counted, unless it is nil, is called in a request's goroutine as soon as its stream is among Streams.
	Counted func(context.Context)
	// Capabilities returns what the server says of itself to the principal of a context each time that a client
	// asks, in a message that the server may change: it adds its features and its own bounds, and a
	// MaxPromptBytes of 0 becomes the protocol's. Several goroutines may call it at once. Web
	// pages may send the key headers of the providers that it returns when the server is made.
	// nil: nothing is known.
	Capabilities func(context.Context) *agentdv1.GetCapabilitiesResponse
	// Models returns the models that are known by name, in any order, as Capabilities does.
	Models func(context.Context) *agentdv1.ListModelsResponse
	// ModelCalls returns what the models of a turn received, from the session's log: at
	// most limit calls that ended after log.After, in order, and whether there are more.
	// nil: ListModelCalls is not served.
	ModelCalls func(ctx context.Context, log session.TurnLog, limit int) ([]session.ReportedCall, bool, error)
	// Authenticate returns who makes a request, by its headers or its connection. It must
	// not read the body. Several goroutines may call it at once. An error refuses the
	// request (UNAUTHENTICATED) before anything of it is read; it is logged and not sent. One that
	// has a method Temporary that returns true says that nobody can be judged now (UNAVAILABLE).
	// A stream calls it again with its request, see ReauthenticateEvery.
	// Health checks are not authenticated. nil: every caller is the operator, and has
	// no tenant.
	Authenticate func(*http.Request) (principal.Principal, error)
	// ReplicaClient calls other servers over the store, at the addresses of session.Elsewhere; it speaks HTTP/2.
	// ReplicaSecret is what all of them share: who shows it is believed about who the caller is, so it must travel
	// over TLS or a network of their own. Without a client, what another server owns is refused (UNAVAILABLE).
	ReplicaClient connect.HTTPClient
	ReplicaSecret string
	// ReplicaAddress is where the other servers call this one.
	ReplicaAddress string
	// Events reads the event log. nil: there is none, and EventService is refused.
	Events events
	// GoalsWaitFor returns why no goal may begin now, "" if one may. Several goroutines may call it at once. nil: one
	// always may.
	GoalsWaitFor func() string
	// CreateToken makes a token for a principal and returns what its holder sends; maker is the principal that asks for
	// it. Several goroutines may call it at once. nil: CreateSessionToken is refused.
	CreateToken func(ctx context.Context, maker, token principal.Principal) (string, error)
	// Observe is called when a call of Agentd or SessionService begins, with its method, such as
	// SessionService/CreateTurn; a method that there is not is "other". The call goes on in the context that it
	// returns, and ended is called when the call is over, with "ok" or the code of Connect. Several goroutines may
	// call it at once. Default: none.
	Observe func(ctx context.Context, method string) (_ context.Context, ended func(code string))
	// OnLimit receives the name of each limit because of which something of a client was refused. Several goroutines
	// may call it at once. Default: none.
	OnLimit func(name string)
	// Audit receives what callers do and what they are refused, reads and tool results aside. Several goroutines may
	// call it at once; a caller waits for it. nil: nothing is noted.
	Audit func(ledger.Entry)
	// From returns where a request comes from, for Audit and the log. Default: the address of the connection.
	From func(*http.Request) string
	// Logger receives one line per call; no prompts, payloads or keys. Default:
	// discard.
	Logger *slog.Logger
	// CORSOrigins are the origins from which web pages may call SessionService,
	// such as "https://app.example.com"; "*" is any. Default: none.
	CORSOrigins []string
	// Agents keeps agent trees of callers, and Objects what faces keep; nil: none are kept.
	Agents  agents
	Objects ledger.Objects
	// Schedules keeps what is started without a client, by StartTurn; nil: nothing is.
	Schedules schedules
	// Faces serve other protocols beside agentd's. Default: none.
	Faces []Face
	// NoReflection leaves out the gRPC reflection service.
	NoReflection bool

	// CreateSessions makes Run create the session that a request names if it does not
	// exist, as if the request had set create. Clients older than that field expect it.
	CreateSessions bool
	// OnDisconnect says what becomes of a turn when its last client is gone, if Run
	// started the turn and the request had no on_disconnect. "auto" cancels the turn of a
	// client that is too old to know on_disconnect and that has reset its stream; any
	// other turn continues. "continue" lets each turn continue, "cancel" cancels each at
	// once. Default "auto".
	OnDisconnect string

	// MaxStreams is how many Run streams may be open at once. Default 4096.
	MaxStreams int
	// MaxTenantStreams is how many of them may be of one tenant, TenantRequestsPerSecond how many requests a second a
	// tenant may make, twice as many at once. Callers without a tenant have no bound of their own. Defaults half of
	// MaxStreams, and 500.
	MaxTenantStreams, TenantRequestsPerSecond int
	// Streams and Requests count those of tenants for all servers over one store, whose bounds these are then. nil:
	// for this server.
	Streams  *share.Places
	Requests *share.Pace
	// MaxMessageBytes is the size of the largest request message. Default 4 MiB.
	MaxMessageBytes int
	// MaxReplyBytes is about how much memory large replies may take at the same time.
	// Above it streams wait for each other, other replies are refused (UNAVAILABLE), and
	// clients that read less than 64 KiB a second are cut off. Large requests may take as
	// much. Default 256 MiB.
	MaxReplyBytes int
	// MessagesPerSecond is how fast one stream's messages are taken; faster ones
	// wait in the connection's flow control. Default 200.
	MessagesPerSecond int
	// MaxRefused is how many messages in a row may be refused before the stream
	// is ended. Default 256.
	MaxRefused int

	// FirstMessageTimeout bounds the wait for the first message. Default 10 s.
	FirstMessageTimeout time.Duration
	// IdleTimeout ends a stream, not its turn, when no message travels either way for that
	// time. It should exceed the time of a tool call, since not every client sends
	// heartbeats. Default 15 min.
	IdleTimeout time.Duration
	// StreamTimeout ends a stream, not its turn, that is open for that time. Default 24 h.
	StreamTimeout time.Duration
	// HeartbeatEvery is how long a stream of WatchTurn is silent before a heartbeat
	// is sent. Default 15 s.
	HeartbeatEvery time.Duration
	// ReauthenticateEvery is how often the credential of an open stream is judged again; that also
	// happens when it expires. A stream whose credential is refused ends, its turn does not.
	// Default 30 s.
	ReauthenticateEvery time.Duration
	// WriteTimeout is how long the client may take to read 16 KiB of what it is sent,
	// or a message that is smaller. Default 10 s.
	WriteTimeout time.Duration
	// LingerTimeout is how long the end of a stream waits for the client to close
	// its side. Default 2 s.
	LingerTimeout time.Duration
}

// WithDefaults returns the config with its zero values replaced.
func (c Config) WithDefaults() Config {
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Counted == nil {
		c.Counted = func(context.Context) {}
	}
	if c.Capabilities == nil {
		c.Capabilities = func(context.Context) *agentdv1.GetCapabilitiesResponse {
			return &agentdv1.GetCapabilitiesResponse{Retention: durationpb.New(0)}
		}
	}
	if c.Models == nil {
		c.Models = func(context.Context) *agentdv1.ListModelsResponse { return &agentdv1.ListModelsResponse{} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(ctx context.Context, _ string) (context.Context, func(string)) { return ctx, func(string) {} }
	}
	if c.From == nil {
		c.From = func(r *http.Request) string { return r.RemoteAddr }
	}
	if c.OnLimit == nil {
		c.OnLimit = func(string) {}
	}
	c.OnDisconnect = cmp.Or(c.OnDisconnect, onDisconnectAuto)
	c.MaxStreams = cmp.Or(c.MaxStreams, 4096)
	c.MaxTenantStreams = cmp.Or(c.MaxTenantStreams, max(c.MaxStreams/2, 1))
	c.TenantRequestsPerSecond = cmp.Or(c.TenantRequestsPerSecond, 500)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 4<<20)
	c.MaxReplyBytes = cmp.Or(c.MaxReplyBytes, 256<<20)
	c.MessagesPerSecond = cmp.Or(c.MessagesPerSecond, 200)
	c.MaxRefused = cmp.Or(c.MaxRefused, 256)
	c.FirstMessageTimeout = cmp.Or(c.FirstMessageTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 15*time.Minute)
	c.StreamTimeout = cmp.Or(c.StreamTimeout, 24*time.Hour)
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, 15*time.Second)
	c.ReauthenticateEvery = cmp.Or(c.ReauthenticateEvery, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.LingerTimeout = cmp.Or(c.LingerTimeout, 2*time.Second)
	return c
}

// originPattern matches the origins that a browser may send.
var originPattern = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/\s]+$`)

// Validate returns all that is wrong with the config.
func (c Config) Validate() error {
	var errs []error
	if c.Sessions == nil {
		errs = append(errs, errors.New("server: Sessions is required"))
	}
	for _, o := range c.CORSOrigins {
		if o != "*" && !originPattern.MatchString(o) {
			errs = append(errs,
				fmt.Errorf("server: CORSOrigins has %q, want a scheme and a host, "+
					"such as https://app.example.com, and no path, or *", o))
		}
	}
	if c.ReplicaClient != nil && c.ReplicaSecret == "" {
		errs = append(errs, errors.New("server: ReplicaSecret is required with ReplicaClient"))
	}
	errs = append(errs, checkFaces(c.Faces))
	switch c.OnDisconnect {
	case onDisconnectAuto, onDisconnectContinue, onDisconnectCancel:
	default:
		errs = append(errs, fmt.Errorf("server: OnDisconnect is %q, want %s, %s or %s", c.OnDisconnect,
			onDisconnectAuto, onDisconnectContinue, onDisconnectCancel))
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxStreams", c.MaxStreams},
		{"MaxTenantStreams", c.MaxTenantStreams},
		{"TenantRequestsPerSecond", c.TenantRequestsPerSecond},
		{"MaxMessageBytes", c.MaxMessageBytes},
		{"MaxReplyBytes", c.MaxReplyBytes},
		{"MessagesPerSecond", c.MessagesPerSecond},
		{"MaxRefused", c.MaxRefused},
	} {
		if n.value < 1 {
			errs = append(errs, fmt.Errorf("server: %s is %d, must be at least 1", n.name, n.value))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"FirstMessageTimeout", c.FirstMessageTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"StreamTimeout", c.StreamTimeout},
		{"HeartbeatEvery", c.HeartbeatEvery},
		{"ReauthenticateEvery", c.ReauthenticateEvery},
		{"WriteTimeout", c.WriteTimeout},
		{"LingerTimeout", c.LingerTimeout},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("server: %s is %s, must be above 0", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}
