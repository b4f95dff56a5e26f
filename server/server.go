package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/protorules"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// Server serves the protocol. Its methods may be called from any goroutine.
type Server struct {
	cfg     atomic.Pointer[Config] // immutable; see Reload
	log     *slog.Logger
	rules   *protorules.Rules
	handler http.Handler
	drain   context.Context    //nolint:containedctx // ends when Drain is called
	ended   context.Context    //nolint:containedctx // ends when End is called, or Drain if there are no other servers
	stop    context.CancelFunc // of drain
	end     context.CancelFunc // of ended
	inbox   *inbox
	outbox  *outbox
	tenants *tenants
	// own and ownGoals call the server itself, see StartTurn.
	own      agentdv1connect.SessionServiceClient
	ownGoals agentdv1connect.GoalServiceClient

	replays chan struct{} // holds a token for each turn that is run again

	mu      sync.Mutex
	open    int           // Run streams; protected by mu
	drained chan struct{} // closed when draining and open is 0; protected by mu
}

// New returns a server that accepts streams.
func New(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	rules, err := protorules.Protocol()
	if err != nil {
		return nil, err
	}
	s := &Server{log: cfg.Logger, rules: rules, drained: make(chan struct{}), replays: make(chan struct{}, 1),
		inbox: newInbox(cfg.MaxReplyBytes), outbox: newOutbox(cfg.MaxReplyBytes), tenants: newTenants()}
	s.cfg.Store(&cfg)
	s.drain, s.stop = context.WithCancel(context.Background())
	s.ended, s.end = context.WithCancel(context.Background())
	if s.handler, err = s.routes(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// now returns the configuration as it is now.
func (s *Server) now() *Config { return s.cfg.Load() }

// Reload takes over from cfg what may change while the server serves: CreateSessions, OnDisconnect,
// MaxStreams, MessagesPerSecond, the limits of tenants, and the timeouts. Streams that are open keep what they have
// begun with. An invalid cfg changes nothing.
func (s *Server) Reload(cfg Config) error {
	next := *s.now()
	next.CreateSessions, next.OnDisconnect = cfg.CreateSessions, cfg.OnDisconnect
	next.MaxStreams, next.MessagesPerSecond = cfg.MaxStreams, cfg.MessagesPerSecond
	next.MaxTenantStreams, next.TenantRequestsPerSecond = cfg.MaxTenantStreams, cfg.TenantRequestsPerSecond
	next.FirstMessageTimeout, next.IdleTimeout = cfg.FirstMessageTimeout, cfg.IdleTimeout
	next.StreamTimeout, next.WriteTimeout = cfg.StreamTimeout, cfg.WriteTimeout
	next.LingerTimeout = cfg.LingerTimeout
	next = next.WithDefaults()
	if err := next.Validate(); err != nil {
		return err
	}
	s.cfg.Store(&next)
	return nil
}

// Handler serves every route of the server. It needs HTTP/2 for Run.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	opts := handlerOptions(s.now().MaxMessageBytes)
	path, run := agentdv1connect.NewAgentdHandler(s, opts...)
	mux.Handle(path, s.observed(s.authenticated(withExplanations(withTransport(s.now().MaxMessageBytes, run)))))
	opts = append(sessionOptions(s.now().MaxMessageBytes), connect.WithInterceptors(s.checked()))
	path, sessions := agentdv1connect.NewSessionServiceHandler(&sessionService{s}, opts...)
	sessions = s.exchange(withExplanations(sessions))
	mux.Handle(path, s.crossOrigin(s.observed(s.authenticated(sessions))))
	s.own = newOwn(s, sessions)
	path, kept := agentdv1connect.NewScheduleServiceHandler(&scheduleService{s}, opts...)
	mux.Handle(path, s.crossOrigin(s.observed(s.authenticated(s.exchange(withExplanations(kept))))))
	path, logged := agentdv1connect.NewEventServiceHandler(&eventService{s}, opts...)
	mux.Handle(path, s.crossOrigin(s.observed(s.authenticated(s.exchange(withExplanations(logged))))))
	path, goals := agentdv1connect.NewGoalServiceHandler(&goalService{s}, opts...)
	goals = s.exchange(withExplanations(goals))
	mux.Handle(path, s.crossOrigin(s.observed(s.authenticated(goals))))
	s.ownGoals = newOwnGoals(s, goals)

	opts = othersOptions()
	path, health := grpchealth.NewHandler(healthChecker{s}, opts...)
	mux.Handle(path, s.short(health))
	if !s.now().NoReflection {
		reflector := grpcreflect.NewStaticReflector(agentdv1connect.AgentdName, agentdv1connect.SessionServiceName,
			agentdv1connect.GoalServiceName, agentdv1connect.EventServiceName, agentdv1connect.ScheduleServiceName,
			grpchealth.HealthV1ServiceName)
		path, reflection := grpcreflect.NewHandlerV1(reflector, opts...)
		mux.Handle(path, s.authenticated(s.short(reflection)))
		path, reflection = grpcreflect.NewHandlerV1Alpha(reflector, opts...)
		mux.Handle(path, s.authenticated(s.short(reflection)))
	}
	mux.Handle("GET /healthz", s.short(http.HandlerFunc(s.healthz)))
	mux.Handle("GET /readyz", s.short(http.HandlerFunc(s.readyz)))
	if len(s.now().Faces) > 0 {
		faces, err := s.faces(sessions)
		if err != nil {
			return nil, err
		}
		mux.Handle("/", faces)
	}
	return mux, nil
}

// Drain makes the server not ready, and refuses new streams from now on. Open streams continue until their turns end or
// are suspended.
//
// A server that is one of several tells clients that know how to attach when another server has their session, and
// refuses none that know nothing of other servers: their streams go to another server, through this one, until End. It
// may be called again.
func (s *Server) Drain() {
	s.stop()
	if s.now().ReplicaClient == nil {
		s.End()
	}
}

// End ends what goes on after Drain at other servers, through this one. Clients read that they may attach again. It may
// be called again.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	if s.ended.Err() != nil {
		return
	}
	s.end()
	if s.open == 0 {
		close(s.drained)
	}
}

// Drained is closed when Drain and, for a server that is one of several, End have been called and no stream is left.
func (s *Server) Drained() <-chan struct{} { return s.drained }

// Streams returns how many Run streams are open. A stream that has ended does not
// count, even if its client has not closed its side yet.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// enter counts a stream, including one that it refuses. The caller calls leave, once.
func (s *Server) enter(ctx context.Context) (leave func(), refused *fault.Error) {
	leaveTenant := func() {}
	if tenant := principal.Of(ctx).Tenant; tenant != "" && !isForwarded(ctx) { // the client's server counts it
		leaveTenant, refused = s.enterTenant(ctx, tenant)
	}
	if full := s.count(); full != nil {
		refused = full
	}
	s.now().Counted(ctx)
	return func() {
		leaveTenant()
		s.uncount()
	}, refused
}

// count counts a stream, including one that it refuses.
func (s *Server) count() *fault.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	switch {
	case s.ended.Err() != nil:
		return errDraining
	case s.open > s.now().MaxStreams:
		return fault.Errorf(codeUnavailable, "the server has %d open streams, its limit; try again later",
			s.now().MaxStreams).
			After(retryLater).Over("streams", s.now().MaxStreams, s.open)
	}
	return nil
}

func (s *Server) uncount() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.open == 0 && s.ended.Err() != nil {
		select {
		case <-s.drained:
		default:
			close(s.drained)
		}
	}
}

// retryLater is how long a client is asked to wait for something to become free.
const retryLater = time.Second

var errDraining = fault.Errorf(codeUnavailable, "the server is stopping; try again later")

// Run implements agentd.v1.Agentd.
func (s *Server) Run(ctx context.Context, bidi *bidiStream) (err error) {
	t, ok := ctx.Value(transportKey{}).(*transport)
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("server: Run is served without Handler"))
	}
	st := newStream(s, t, bidi)
	defer func() {
		if p := recover(); p != nil {
			s.panicked("handler", p)
			err = connect.NewError(connect.CodeInternal, errors.New("internal error"))
		}
	}()
	leave, refused := s.enter(ctx)
	leave = sync.OnceFunc(leave)
	defer leave()
	st.serve(ctx, refused, leave)
	return nil
}

// internal turns an error into one that a client may see, and logs the rest.
func (s *Server) internal(where string, err error) *fault.Error {
	e := fault.As(err)
	level := slog.LevelDebug
	if e.Code == codeInternal {
		level = slog.LevelError
	}
	if e.Err != nil {
		s.log.Log(context.Background(), level, "request failed", slog.String("where", where),
			slog.String("error", e.Err.Error()))
	}
	return e
}
