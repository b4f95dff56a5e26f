package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apzuk3/agentd/adkbridge"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agents"
	"github.com/apzuk3/agentd/internal/audit"
	"github.com/apzuk3/agentd/internal/auth"
	"github.com/apzuk3/agentd/internal/cluster"
	"github.com/apzuk3/agentd/internal/eventlog"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/otlp"
	"github.com/apzuk3/agentd/internal/schedule"
	"github.com/apzuk3/agentd/internal/sealed"
	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/internal/telemetry"
	"github.com/apzuk3/agentd/internal/webhook"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const (
	// openTimeout bounds opening the store, migrations included.
	openTimeout = time.Minute
	// streamsGrace is how long streams may take to send the end
	// after their turns are over.
	streamsGrace = 5 * time.Second
	// storeGrace is how long the store may take to close.
	storeGrace = 10 * time.Second
	// streamWindow is how many bytes of one stream may wait to be read.
	streamWindow = 256 << 10
	// aloneWait is how long a daemon waits for a database of PostgreSQL that another one has: PostgreSQL may not have
	// noticed yet that it was killed.
	aloneWait = 5 * time.Second
	// databaseFile is the database within Config.DataDir.
	databaseFile = "agentd.db"
)

// Daemon is a running agentd. Its methods may be called from any goroutine.
type Daemon struct {
	cfg     Config // as New was called
	log     *slog.Logger
	store   store.Store
	manager *session.Manager
	runner  *adkbridge.Runner
	agents  *agents.Registry // nil without a ledger
	server  *server.Server
	http    *http.Server
	metrics *telemetry.Metrics
	// exporter and spans are nil without a collector.
	exporter *otlp.Exporter
	spans    *otlp.Spans
	// recorder is nil unless model calls are recorded.
	recorder  *record.Recorder
	tls       *tls.Config // nil without a certificate
	auth      *auth.Authenticator
	ledger    ledger.Ledger // nil if the store has no place for one
	trail     *audit.Trail  // nil without a ledger
	ring      *sealed.Ring  // nil unless the database is encrypted
	events    *eventlog.Log // nil without an event log
	replica   *replica      // nil for a daemon that is alone
	owner     atomic.Pointer[cluster.Member]
	streams   atomic.Pointer[share.Places]    // those of replica, for what the member says
	managed   atomic.Pointer[session.Manager] // manager, for what the member says
	sealer    atomic.Pointer[sealed.Ring]     // ring, for the same
	schedules *schedule.Registry              // nil without a ledger
	driver    atomic.Pointer[schedule.Driver] // nil before Start, and without a ledger
	kept      store.Store                     // store, or what seals what it writes
	sender    atomic.Pointer[webhook.Sender]  // nil before Start, and without a ledger

	reloading sync.Mutex // held while Reload works; taken before mu
	live      atomic.Pointer[live]

	counting counting    // of sessions and turns
	requests gate        // those that are being served, of any kind
	arrivals arrivals    // connections without a request yet, of a replica
	broken   atomic.Bool // the store has failed for good

	mu       sync.Mutex   // protects the fields below
	listener net.Listener // nil before Start
	admin    *admin       // nil before Start, and without an address for it
	started  bool
	stopped  bool
	served   sync.WaitGroup // the goroutines that serve, erase, and seal
	// stopErasing ends the goroutines that erase and seal; nil before Start.
	stopErasing context.CancelFunc
	failed      chan error // holds why the daemon is of no use any more
	once        sync.Once  // closes the store
	closeErr    error
}

// New opens the store and puts the parts together. It listens to nothing yet.
// The caller ends it with Shutdown, also when it is never started.
func New(cfg Config) (*Daemon, error) { return Open(context.Background(), cfg) }

// Open is New until ctx ends: a database that does not respond is waited for no longer.
func Open(ctx context.Context, cfg Config) (_ *Daemon, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	d := &Daemon{cfg: cfg, log: cfg.Logger, failed: make(chan error, 3)}
	d.metrics = telemetry.New(telemetry.Config{
		Replicas: d.seenReplicas, Webhooks: d.hookCounts,
		Version: cfg.Version, Counts: d.counts, Breakers: d.breakers, Bus: d.busState, Logger: cfg.Logger,
	})
	now, err := d.newLive(cfg, nil)
	if err != nil {
		return nil, err
	}
	d.live.Store(now)
	if cfg.TLSCertFile != "" {
		d.tls = &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return d.live.Load().cert, nil },
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
		}
		if err := cfg.Auth.verifyClients(d.tls); err != nil {
			return nil, err
		}
	}
	if d.store = cfg.Store; d.store == nil {
		if d.store, err = d.openStore(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			d.closeTrail()
			d.exporter.Close()
		}
		if err != nil && cfg.Store == nil {
			d.leave()
			err = errors.Join(err, d.closeStore())
		}
		if err != nil {
			err = errors.Join(err, d.closeRecorder())
		}
	}()
	if d.kept, err = d.sealedStore(ctx); err != nil {
		return nil, err
	}
	if err := d.openAuth(); err != nil {
		return nil, err
	}
	d.openTrail()
	if err := d.checkHooks(); err != nil {
		return nil, err
	}
	if err := d.openRecorder(); err != nil {
		return nil, err
	}
	d.runner = adkbridge.New(adkbridge.Config{
		ResolveFor: func(tenant string) func(string, map[string]string) (adkbridge.Model, error) {
			return d.live.Load().modelsOf(tenant).resolve
		},
		Backend: d.backend, Price: d.priceOf,
		Limits: cfg.Trees,
		Logger: cfg.Logger,

		CompactAt: cfg.CompactAt,
	})
	d.openAgents()
	d.openSchedules()
	if err := d.openExporter(); err != nil {
		return nil, err
	}
	logs, err := d.eventLogged(d.withoutPayloads(d.notifying(d.traced(d.metrics.Store(d.kept)))))
	if err != nil {
		return nil, err
	}
	turns := session.Config{
		Store: logs, Runner: d.tracedRunner(),
		Logger: cfg.Logger, Limits: now.turns,
		OnFatal: d.storeFailed, OnToolResult: d.metrics.ToolAnswered, Agent: d.agentTree(), Owners: d.owners(),
		Slices: d.slices(), Front: cfg.Beside.Front, NoBackgroundAgents: cfg.NoBackgroundAgents,
	}
	if d.replica != nil {
		turns.Bus, turns.Places, turns.Reach = d.replica.bus, d.replica.turns, d.replica.reach.reaches
		turns.Below, turns.ChildrenWaitFor = below{d}, d.childrenWaitFor
	}
	if d.manager, err = session.NewManager(turns); err != nil {
		return nil, err
	}
	d.managed.Store(d.manager)
	if d.server, err = server.New(d.serverConfig(&cfg)); err != nil {
		return nil, err
	}
	d.http = newHTTPServer(&cfg, d.requests.guard(d.arrivals.guard(d.guarded(d.server.Handler()))))
	if d.replica != nil {
		d.arrivals.watch(d.http)
	}
	logModels(d.log, now)
	return d, nil
}

// serverConfig is the configuration of the server of a daemon with this one.
func (d *Daemon) serverConfig(cfg *Config) server.Config {
	out := server.Config{
		Sessions:   d.manager,
		Ready:      d.ready,
		Counted:    d.arrivals.counted,
		ModelCalls: d.runner.ModelCalls,
		Capabilities: func(ctx context.Context) *agentdv1.GetCapabilitiesResponse {
			now := d.live.Load()
			reg := now.modelsOf(principal.Of(ctx).Tenant).registry
			return capabilities(&now.cfg, reg, d.runner.BuiltinTools())
		},
		Models: func(ctx context.Context) *agentdv1.ListModelsResponse {
			return listModels(d.live.Load().modelsOf(principal.Of(ctx).Tenant).registry)
		},
		Authenticate:   d.auth.Authenticate,
		CreateToken:    d.createTokens(),
		GoalsWaitFor:   d.goalsWaitFor,
		Audit:          d.audit(),
		From:           d.auth.From,
		Observe:        d.observe,
		OnLimit:        d.metrics.LimitHit,
		Logger:         cfg.Logger,
		NoReflection:   cfg.NoReflection,
		Faces:          cfg.Faces,
		CORSOrigins:    cfg.CORSOrigins,
		CreateSessions: cfg.CreateSessions,
		OnDisconnect:   cfg.OnDisconnect,
		MaxStreams:     cfg.MaxStreams,

		MaxTenantStreams: cfg.MaxTenantStreams, TenantRequestsPerSecond: cfg.TenantRequestsPerSecond,

		MaxMessageBytes:     cfg.MaxMessageBytes,
		MaxReplyBytes:       cfg.MaxReplyBytes,
		MessagesPerSecond:   cfg.MessagesPerSecond,
		FirstMessageTimeout: cfg.FirstMessageTimeout,
		IdleTimeout:         cfg.IdleTimeout,
		StreamTimeout:       cfg.StreamTimeout,
		WriteTimeout:        cfg.WriteTimeout,
		LingerTimeout:       cfg.LingerTimeout,
	}
	if d.replica != nil {
		out.ReplicaClient, out.ReplicaSecret = d.replica.client, string(cfg.Cluster.Secret)
		out.ReplicaAddress = d.replica.address
		out.Streams, out.Requests = d.replica.streams, d.replica.requests
	}
	if d.events != nil {
		out.Events = d.events
	}
	cfg.Beside.apply(&out)
	d.keepers(&out)
	return out
}

// ErrNetworkFiles is why New refuses a DataDir on a network file system.
var ErrNetworkFiles = sqlite.ErrNetwork

// ErrInUse is why New refuses a DataDir that another process has open.
var ErrInUse = sqlite.ErrLocked

// ErrStoreInUse is why New refuses a StoreURL that another daemon uses.
var ErrStoreInUse = postgres.ErrInUse

// openStore opens the database, and makes the daemon one of several if it is.
func (d *Daemon) openStore(ctx context.Context) (store.Store, error) {
	cfg := &d.cfg
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if url := string(cfg.StoreURL); url != "" {
		db, err := postgres.Open(ctx, url, postgres.Config{
			Logger: cfg.Logger, Alone: cfg.Cluster.IsZero(), Together: !cfg.Cluster.IsZero(), AloneWait: aloneWait,
			Owner: d.replicaID,
		})
		if err == nil && !cfg.Cluster.IsZero() {
			if err = d.join(ctx, db); err != nil {
				err = errors.Join(err, db.Close())
			}
		}
		if err != nil {
			return nil, err
		}
		return db, nil
	}
	path := sqlite.Memory
	if cfg.DataDir != Memory {
		path = filepath.Join(cfg.DataDir, databaseFile)
	}
	return sqlite.Open(ctx, path, sqlite.Config{Logger: cfg.Logger, NetworkFiles: cfg.AllowNetworkFiles})
}

// place says where the database is, without a password.
func (c *Config) place() string {
	if c.StoreURL == "" {
		return c.DataDir
	}
	u, err := url.Parse(string(c.StoreURL))
	if err != nil || u.Host == "" {
		return "PostgreSQL"
	}
	return "postgres://" + u.Host + u.Path
}

func newHTTPServer(cfg *Config, h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:   h,
		Protocols: protocols,
		// No ReadTimeout and WriteTimeout: they would end streams. The handlers
		// bound each read and write themselves.
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: cfg.MaxStreamsPerConn,
			// Go's clients hold a buffer of this size, at most 512 KiB, for each
			// stream that is open. It is the least that HTTP/2 allows.
			MaxReadFrameSize: 16 << 10,
			// A stream whose messages wait for their pace fills its own window. That
			// of the connection is above all of them together, so that it keeps no
			// other stream waiting.
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReceiveBufferPerConnection: max(32<<20, min(2*cfg.MaxStreamsPerConn*streamWindow, math.MaxInt32)),
			// A peer that vanished without a word is noticed by pings alone.
			SendPingTimeout:  15 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
	}
}

// Handler serves all requests, for a daemon that is HandlerOnly. It responds 503 once
// Shutdown is over. A server that is to serve Run needs HTTP/2, in cleartext too.
func (d *Daemon) Handler() http.Handler { return d.http.Handler }

// Start listens, unless the daemon is HandlerOnly, has the turns continue that were open when the last daemon of this
// store ended, and serves in the background. ctx bounds the listening and the
// reading of those turns only.
func (d *Daemon) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped:
		return errors.New("daemon: start after shutdown")
	case d.started:
		return errors.New("daemon: started twice")
	}
	l, err := d.listen(ctx)
	if err != nil {
		return err
	}
	if d.admin, err = d.startAdmin(ctx); err != nil {
		return errors.Join(err, closeListener(l))
	}
	if err := d.manager.Recover(ctx); err != nil {
		return errors.Join(fmt.Errorf("daemon: recover open turns: %w", err), closeListener(l))
	}
	d.started = true
	d.startSender()
	d.startDriver()
	if d.ledger != nil && d.cfg.Store == nil && d.cfg.DataDir != Memory { // others may write beside
		var ctx context.Context
		ctx, d.stopErasing = context.WithCancel(context.Background())
		d.served.Go(func() { d.erasing(ctx) })
		if db, ok := d.store.(sealed.Recoder); ok && d.ring != nil {
			d.served.Go(func() { d.sealing(ctx, db) })
		}
	}
	if l == nil {
		d.log.Info("ready", slog.String("data", d.cfg.place()), slog.String("version", d.cfg.Version))
		return nil
	}
	d.listener = l
	l = limit(l, d.cfg.MaxConns)
	if d.tls == nil {
		d.serve(l)
	} else {
		s := splitTLS(l, d.tls)
		d.serve(s.plain)
		d.serve(s.tls)
	}
	d.log.Info("serving", slog.String("addr", d.listener.Addr().String()), slog.Bool("tls", d.tls != nil),
		slog.String("data", d.cfg.place()), slog.String("version", d.cfg.Version))
	return nil
}

// closeListener closes a listener, which may be nil.
func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

func (d *Daemon) serve(l net.Listener) {
	d.served.Go(func() {
		err := d.http.Serve(l)
		d.mu.Lock()
		stopped := d.stopped
		d.mu.Unlock()
		if !stopped { // also when somebody else has closed the listener
			d.failed <- fmt.Errorf("daemon: serve: %w", err)
		}
	})
}

// storeFailed says, once, that the store has failed for good.
func (d *Daemon) storeFailed(err error) {
	d.log.Error("the store has failed: turns are suspended, this server stops; "+
		"the next one opens the store and recovers them",
		slog.String("error", err.Error()))
	d.broken.Store(true)
	d.failed <- fmt.Errorf("daemon: %w", err)
}

// Failed receives an error when serving has ended by itself, or when the store
// has failed for good. The daemon is then of no use and has to be shut down; the
// process should end with an error, so that whoever watches it starts another.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Addr returns where the daemon listens; nil before Start.
func (d *Daemon) Addr() net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener == nil {
		return nil
	}
	return d.listener.Addr()
}

// URL returns what a client on this machine dials, without TLS; "" before Start.
func (d *Daemon) URL() string {
	a := d.Addr()
	if a == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return "http://" + a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() || host == "" {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Shutdown ends the daemon: softly until ctx ends, then hard. A hard shutdown
// suspends the turns that still run; the next daemon recovers them. It may be called
// again, and from several goroutines; a hard call makes a soft one under way
// hard. It returns when nothing of the daemon runs any more, or names what
// still does.
func (d *Daemon) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	started, admin := d.started, d.admin
	if d.stopErasing != nil {
		d.stopErasing()
	}
	d.mu.Unlock()
	d.stopDriver()
	// The request that met the failure of the store may still wait for its reply.
	replying := d.requests.inside() > 0 || d.broken.Load()
	d.drainReplica()
	d.server.Drain()
	var errs []error
	if started && d.listener != nil {
		// Connections stay: their streams continue, and report that no new turn
		// starts. So that nobody connects any more, the listener closes now.
		_ = d.listener.Close()
	} else if !started && d.cfg.Listener != nil {
		_ = d.cfg.Listener.Close()
	}
	goneAway := d.goAway(ctx)
	errs = append(errs, d.manager.Shutdown(ctx))
	d.awaitForwarded(ctx)
	d.server.End()
	if d.awaitStreams() && replying {
		d.lastFrames()
	}
	if err := d.http.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		errs = append(errs, fmt.Errorf("daemon: close connections: %w", err))
	}
	d.requests.hurry()     // those of connections that are not the daemon's
	if !d.awaitStreams() { // without a connection a stream has no reason to stay
		errs = append(errs, fmt.Errorf("daemon: %d streams did not end within %v", d.server.Streams(), 2*streamsGrace))
	}
	goneAway()
	d.stopSender()
	d.served.Wait()
	if n := d.requests.close(streamsGrace); n > 0 {
		errs = append(errs, fmt.Errorf("daemon: %d requests did not end within %v", n, streamsGrace))
	}
	d.closeTrail()
	d.exporter.Close()
	d.counting.stop()
	d.leave()
	errs = append(errs, d.closeStore(), d.closeRecorder(), admin.close())
	err := errors.Join(errs...)
	if err == nil {
		d.log.Info("stopped")
	}
	return err
}

// awaitStreams waits, bounded, until no stream is left, and reports whether that
// is so.
func (d *Daemon) awaitStreams() bool {
	grace := time.NewTimer(streamsGrace)
	defer grace.Stop()
	select {
	case <-d.server.Drained():
		return true
	case <-grace.C:
		return false
	}
}

// lastFrames waits, bounded, for what HTTP/2 writes after a stream's handler has
// returned: without its end a stream looks broken to the client.
func (d *Daemon) lastFrames() {
	ctx, cancel := context.WithTimeout(context.Background(), streamsGrace)
	defer cancel()
	_ = d.http.Shutdown(ctx) // what is left then is cut off by Close
}

func (d *Daemon) closeStore() error {
	d.once.Do(func() {
		closed := make(chan error, 1)
		go func() { closed <- d.store.Close() }()
		grace := time.NewTimer(storeGrace)
		defer grace.Stop()
		select {
		case err := <-closed:
			if err != nil {
				d.closeErr = fmt.Errorf("daemon: close the store: %w", err)
			}
		case <-grace.C: // a disk that hangs must not keep the process
			d.closeErr = fmt.Errorf("daemon: the store did not close within %v", storeGrace)
		}
	})
	return d.closeErr
}
