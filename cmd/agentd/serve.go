package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces"
	"github.com/apzuk3/agentd/internal/heap"
)

type serveCmd struct {
	configFlag

	Addr string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen; no host means every address."`
	Data string `placeholder:"DIR" help:"${serve_data}"`

	storeFlag `embed:""`

	Advertise     string     `placeholder:"URL" help:"${serve_advertise}"`
	ReplicaName   string     `placeholder:"NAME" help:"${serve_replica_name}"`
	ReplicaSecret secretFlag `placeholder:"TEXT" help:"${serve_replica_secret}"`
	ReplicaCA     string     `name:"replica-ca" placeholder:"FILE" help:"${serve_replica_ca}"`
	Bus           secretFlag `placeholder:"URL" help:"${serve_bus}"`
	BusCreds      string     `placeholder:"FILE" help:"${serve_bus_creds}"`
	BusCA         string     `name:"bus-ca" placeholder:"FILE" help:"${serve_bus_ca}"`

	ReplicaTTL time.Duration `name:"replica-ttl" placeholder:"DURATION" help:"${serve_replica_ttl}"`

	AdminAddr string `default:"127.0.0.1:9090" placeholder:"HOST:PORT" help:"${serve_admin_addr}"`

	TLSCert string `live:"" name:"tls-cert" placeholder:"FILE" help:"Certificate, PEM; serves TLS on the same port."`
	TLSKey  string `live:"" name:"tls-key" placeholder:"FILE" help:"Key of the certificate, PEM."`

	authFlags `embed:""`

	TraceShare float64 `default:"1" placeholder:"SHARE" help:"${serve_trace_share}"`

	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`

	encryptionFlags `embed:""`
	eventLogFlags   `embed:""`

	LogLevel  slog.Level `live:"" default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat string     `default:"text" enum:"text,json" help:"Form of the log: text or json."`

	modelFlags `embed:""`

	CORSOrigins  []string `name:"cors-origins" placeholder:"ORIGIN" help:"${serve_cors_origins}"`
	AllowedHosts []string `name:"allowed-hosts" placeholder:"NAME" help:"${serve_allowed_hosts}"`
	NoReflection bool     `help:"Do not serve gRPC reflection."`

	NoBackgroundAgents bool `help:"${serve_no_background_agents}"`

	Face []string `placeholder:"NAME" help:"${serve_face}"`

	CreateSessions bool   `live:"" help:"${serve_create_sessions}"`
	OnDisconnect   string `live:"" default:"auto" enum:"auto,off,continue,cancel" help:"${serve_on_disconnect}"`

	ShutdownGrace time.Duration `live:"" default:"8s" help:"${serve_shutdown_grace}"`
	Retention     time.Duration `default:"24h" help:"How long a turn waits for a client before it is ended."`
	PurgeAfter    time.Duration `default:"0s" help:"${serve_purge_after}"`

	DropToolPayloads bool `live:"" help:"${serve_drop_tool_payloads}"`

	AuditRetention time.Duration `default:"8760h" help:"How long entries of the audit trail are kept; 0 is for ever."`

	IdleTurn       time.Duration `live:"" default:"1m" help:"How long a turn that waits for a client stays in memory."`
	HibernateAfter time.Duration `live:"" default:"1s" help:"${serve_hibernate_after}"`

	HandoverGrace time.Duration `live:"" default:"2s" help:"${serve_handover_grace}"`
	TurnTimeout   time.Duration `live:"" default:"1h" help:"Longest turn."`
	ToolTimeout   time.Duration `live:"" default:"10m" help:"Longest wait for the result of a tool call."`
	ModelCoolDown time.Duration `live:"" default:"10s" help:"${serve_model_cool_down}"`
	IdleTimeout   time.Duration `live:"" help:"${serve_idle_timeout}"`
	StreamTimeout time.Duration `live:"" default:"24h" help:"Longest stream."`
	WriteTimeout  time.Duration `live:"" default:"10s" help:"${serve_write_timeout}"`

	InstructionFile string `live:"" placeholder:"FILE" help:"${serve_instruction_file}"`

	TurnBudget    budgetFlag `live:"" placeholder:"BUDGET" help:"${serve_turn_budget}"`
	SessionBudget budgetFlag `live:"" placeholder:"BUDGET" help:"${serve_session_budget}"`

	TenantDayBudget   budgetFlag `live:"" placeholder:"BUDGET" help:"${serve_tenant_day_budget}"`
	TenantMonthBudget budgetFlag `live:"" placeholder:"BUDGET" help:"${serve_tenant_month_budget}"`
	Tenants           string     `live:"" placeholder:"FILE" help:"${serve_tenants}"`
	Backends          string     `live:"" placeholder:"FILE" help:"${serve_backends}"`
	Webhooks          string     `live:"" placeholder:"FILE" help:"${serve_webhooks}"`

	MaxConns                int `default:"4096" help:"Connections at once."`
	MaxStreams              int `live:"" default:"4096" help:"Run streams at once."`
	MaxTenantStreams        int `live:"" default:"2048" help:"${serve_max_tenant_streams}"`
	MaxTenantTurns          int `live:"" default:"500" help:"${serve_max_tenant_turns}"`
	MaxTenantSessions       int `live:"" default:"1000000" help:"${serve_max_tenant_sessions}"`
	TenantRequestsPerSecond int `live:"" default:"500" help:"${serve_tenant_requests_per_second}"`

	MaxTurns          int `live:"" default:"1000" help:"Turns at once."`
	MaxMessageBytes   int `default:"4194304" help:"Size of the largest request message."`
	MaxReplyBytes     int `default:"268435456" help:"${serve_max_reply_bytes}"`
	MessagesPerSecond int `live:"" default:"200" help:"Messages a second that are taken from one stream."`
	MaxModelCalls     int `live:"" default:"500" help:"Model calls of one turn."`
	MaxRequestBytes   int `default:"536870912" help:"${serve_max_request_bytes}"`
	MaxQueued         int `live:"" default:"16" help:"Turns of one session that may wait for their start."`
	MaxSharedBytes    int `default:"262144" help:"${serve_max_shared_bytes}"`
	MaxSharedKeys     int `default:"1000" help:"Keys that sessions share, of each of app: and user:."`
	MaxStateBytes     int `live:"" default:"4194304" help:"Size of the state of one session's own, as JSON."`
	MaxStateKeys      int `live:"" default:"10000" help:"Keys of one session's own."`
	QuarantineAfter   int `default:"3" help:"${serve_quarantine_after}"`
	ModelBreaker      int `live:"" default:"10" help:"${serve_model_breaker}"`
}

// instruction is the text of the instruction file.
func (c *serveCmd) instruction() (string, error) {
	if c.InstructionFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.InstructionFile)
	if err != nil {
		return "", fmt.Errorf("--instruction-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// config is the configuration of the daemon, without its logger.
func (c *serveCmd) config(p *process) (daemon.Config, error) {
	data, err := c.folder(c.Data, string(c.Store))
	if err != nil {
		return daemon.Config{}, err
	}
	if data == "" && c.Store == "" {
		if data, err = dataDir(runtime.GOOS, p.env); err != nil {
			return daemon.Config{}, err
		}
	}
	instruction, err := c.instruction()
	if err != nil {
		return daemon.Config{}, err
	}
	served, err := faces.Named(c.Face)
	if err != nil {
		return daemon.Config{}, fmt.Errorf("--face: %w", err)
	}
	getenv, _, err := p.providerEnv()
	if err != nil {
		return daemon.Config{}, err
	}
	cfg := daemon.Config{
		Faces:       served,
		Addr:        c.Addr,
		AdminAddr:   c.AdminAddr,
		TLSCertFile: c.TLSCert,
		TLSKeyFile:  c.TLSKey,
		DataDir:     data,
		StoreURL:    daemon.Secret(c.Store),
		Cluster: daemon.Cluster{
			Advertise: c.Advertise, Name: c.ReplicaName, Secret: daemon.Secret(c.ReplicaSecret), CAFile: c.ReplicaCA,
			BusURL: daemon.Secret(c.Bus), BusCredsFile: c.BusCreds, BusCAFile: c.BusCA,
			TTL: c.ReplicaTTL,
		},
		AllowNetworkFiles: c.AllowNetworkFiles,
		Encryption:        c.encryption(),
		EventLog:          c.on(),
		Getenv:            getenv,
		Version:           thisRelease().version,
		CORSOrigins:       c.CORSOrigins,
		AllowedHosts:      c.AllowedHosts,
		NoReflection:      c.NoReflection,

		NoBackgroundAgents: c.NoBackgroundAgents,
		CreateSessions:     c.CreateSessions,
		OnDisconnect:       c.OnDisconnect,
		MaxConns:           c.MaxConns,
		MaxStreams:         c.MaxStreams,
		MaxTenantStreams:   c.MaxTenantStreams,
		Collector: daemon.Collector{
			Endpoint: getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), Headers: getenv("OTEL_EXPORTER_OTLP_HEADERS"),
			TraceShare: c.TraceShare,
		},
		DropToolPayloads:  c.DropToolPayloads,
		MaxMessageBytes:   c.MaxMessageBytes,
		MaxReplyBytes:     c.MaxReplyBytes,
		MessagesPerSecond: c.MessagesPerSecond,
		IdleTimeout:       c.IdleTimeout,
		StreamTimeout:     c.StreamTimeout,
		WriteTimeout:      c.WriteTimeout,
	}
	if c.AdminAddr == "off" {
		cfg.AdminAddr = ""
	}
	if c.OnDisconnect == "off" {
		cfg.OnDisconnect = "continue"
	}
	if err := c.authenticate(&cfg); err != nil {
		return daemon.Config{}, err
	}
	if cfg.AuditRetention = c.AuditRetention; c.AuditRetention == 0 {
		cfg.AuditRetention = -1
	}
	c.configure(&cfg)
	cfg.TenantRequestsPerSecond = c.TenantRequestsPerSecond
	cfg.Turns.MaxTurns, cfg.Turns.MaxTenantTurns = c.MaxTurns, c.MaxTenantTurns
	if cfg.Turns.MaxTenantSessions = c.MaxTenantSessions; c.MaxTenantSessions == 0 {
		cfg.Turns.MaxTenantSessions = -1
	}
	cfg.Turns.TurnTimeout = c.TurnTimeout
	cfg.Turns.ToolTimeout = c.ToolTimeout
	cfg.Turns.Retention = c.Retention
	cfg.Turns.PurgeAfter = c.PurgeAfter
	cfg.Turns.IdleTurn = c.IdleTurn
	cfg.Turns.HandoverGrace, cfg.Turns.HibernateAfter = c.HandoverGrace, c.HibernateAfter
	cfg.Turns.MaxQueued = c.MaxQueued
	cfg.Turns.MaxSharedBytes, cfg.Turns.MaxSharedKeys = c.MaxSharedBytes, c.MaxSharedKeys
	cfg.Turns.MaxOwnBytes, cfg.Turns.MaxOwnKeys = c.MaxStateBytes, c.MaxStateKeys
	cfg.Turns.Instruction = instruction
	cfg.Turns.Budget = daemon.Budget(c.TurnBudget)
	cfg.Turns.SessionBudget = daemon.Budget(c.SessionBudget)
	cfg.Turns.TenantDay = everybody(c.TenantDayBudget)
	cfg.Turns.TenantMonth = everybody(c.TenantMonthBudget)
	cfg.Tenants, cfg.Backends, cfg.Webhooks = c.Tenants, c.Backends, c.Webhooks
	if cfg.Turns.QuarantineAfter = c.QuarantineAfter; c.QuarantineAfter == 0 {
		cfg.Turns.QuarantineAfter = -1
	}
	cfg.Trees.ModelCalls = c.MaxModelCalls
	cfg.Trees.AllRequestBytes = c.MaxRequestBytes
	cfg.ModelBreaker.CoolDown = c.ModelCoolDown
	if cfg.ModelBreaker.Failures = c.ModelBreaker; c.ModelBreaker == 0 {
		cfg.ModelBreaker.Failures = -1
	}
	return cfg, nil
}

// everybody gives each tenant a budget.
func everybody(b budgetFlag) map[string]daemon.Budget {
	if b == (budgetFlag{}) {
		return nil
	}
	return map[string]daemon.Budget{"*": daemon.Budget(b)}
}

// Validate refuses limits that would mean a default or none.
func (c *serveCmd) Validate() error {
	errs := []error{c.modelFlags.check()}
	for name, d := range map[string]time.Duration{
		"turn-timeout":    c.TurnTimeout,
		"tool-timeout":    c.ToolTimeout,
		"model-cool-down": c.ModelCoolDown,
		"stream-timeout":  c.StreamTimeout,
		"write-timeout":   c.WriteTimeout,
		"retention":       c.Retention,
		"idle-turn":       c.IdleTurn,
		"handover-grace":  c.HandoverGrace,
		"hibernate-after": c.HibernateAfter,
	} {
		errs = append(errs, above0(name, d))
	}
	for name, n := range map[string]int{
		"max-conns":          c.MaxConns,
		"max-streams":        c.MaxStreams,
		"max-tenant-streams": c.MaxTenantStreams,
		"max-tenant-turns":   c.MaxTenantTurns,

		"tenant-requests-per-second": c.TenantRequestsPerSecond,

		"max-turns":           c.MaxTurns,
		"max-message-bytes":   c.MaxMessageBytes,
		"max-reply-bytes":     c.MaxReplyBytes,
		"messages-per-second": c.MessagesPerSecond,
		"max-model-calls":     c.MaxModelCalls,
		"max-request-bytes":   c.MaxRequestBytes,
		"max-queued":          c.MaxQueued,
		"max-shared-bytes":    c.MaxSharedBytes,
		"max-shared-keys":     c.MaxSharedKeys,
		"max-state-bytes":     c.MaxStateBytes,
		"max-state-keys":      c.MaxStateKeys,
	} {
		errs = append(errs, atLeast1(name, n))
	}
	for name, b := range map[string]budgetFlag{
		"tenant-day-budget": c.TenantDayBudget, "tenant-month-budget": c.TenantMonthBudget,
	} {
		if b.ModelCalls > 0 || b.Wall > 0 {
			errs = append(errs, fmt.Errorf("--%s is %s: want tokens=N and cost=DOLLARS alone", name, b))
		}
	}
	if c.ModelBreaker < 0 {
		errs = append(errs, fmt.Errorf("--model-breaker is %d, must not be below 0", c.ModelBreaker))
	}
	if c.MaxTenantSessions < 0 {
		errs = append(errs, fmt.Errorf("--max-tenant-sessions is %d, must not be below 0", c.MaxTenantSessions))
	}
	if c.QuarantineAfter < 0 {
		errs = append(errs, fmt.Errorf("--quarantine-after is %d, must not be below 0", c.QuarantineAfter))
	}
	if c.PurgeAfter < 0 {
		errs = append(errs, fmt.Errorf("--purge-after is %v, must not be below 0", c.PurgeAfter))
	}
	if c.AuditRetention < 0 {
		errs = append(errs, fmt.Errorf("--audit-retention is %v, must not be below 0", c.AuditRetention))
	}
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("--idle-timeout is %v, must be above 0", c.IdleTimeout))
	}
	if c.ShutdownGrace < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-grace is %v, must not be below 0", c.ShutdownGrace))
	}
	return errors.Join(errs...)
}

// Help is shown below the flags.
func (*serveCmd) Help() string {
	return `Each flag is an environment variable, named in parentheses, and a key of the file of --config: max_turns
is that of --max-turns. The first of flag, variable and file counts that says something. The file may also hold
keys and addresses of providers (gemini_api_key, gemini_api_key_file, gemini_base_url and so on), and
${env:NAME} in place of a value. agentd config prints what counts.

SIGTERM and SIGINT stop the server: model calls that are under way have --shutdown-grace, all other turns are
suspended at once. A second signal suspends all. SIGHUP has it read the file, and the files that it names,
again; the log says what has changed, and what needs a restart. When the terminal on which it was started has
closed, SIGHUP stops it. Under nohup, SIGHUP is ignored.`
}

// Run serves until a signal, or until serving fails.
func (c *serveCmd) Run(p *process, ctx *kong.Context) error {
	r, cfg, err := c.start(p, ctx)
	if err != nil {
		return err
	}
	cfg.Debug = profiles()
	cfg.AdminMayFail = slices.ContainsFunc(r.settings, func(s setting) bool {
		return s.Key == "admin_addr" && s.Source == defaultSource
	})
	if p.adjust != nil {
		p.adjust(&cfg)
	}
	daemon.OwnProcess(cfg.Logger)
	boundMemory(cfg.Logger, memlimit.FromCgroup)
	stop := heap.Pace()
	defer stop()
	opening, opened := p.opening()
	d, err := daemon.Open(opening, cfg)
	if opened() {
		cfg.Logger.Info("stopped before it served")
		if d != nil {
			return r.shutdown(p, d)
		}
		return nil
	}
	if errors.Is(err, daemon.ErrNetworkFiles) {
		return fmt.Errorf("%w (--data), or set --allow-network-files if one daemon of one machine alone uses it", err)
	}
	if errors.Is(err, daemon.ErrStoreInUse) {
		return fmt.Errorf("%w (--store): one daemon at a time may use it, or all that have --advertise", err)
	}
	if err != nil {
		return err
	}
	if err := d.Start(context.Background()); err != nil {
		if errors.Is(err, daemon.ErrOpen) {
			err = fmt.Errorf("%w. Make an API key (agentd keys create NAME), "+
				"set --oidc-issuer, --client-ca or --trusted-proxies, listen on 127.0.0.1 (--addr), "+
				"or, if whoever reaches it may run agents at your cost, set --insecure", err)
		}
		return errors.Join(err, r.shutdown(p, d))
	}
	for {
		select {
		case s := <-p.signals:
			if s == syscall.SIGHUP && (p.hungUp == nil || !p.hungUp()) {
				r.reload(d)
				continue
			}
			cfg.Logger.Info("stopping", slog.String("signal", s.String()), slog.Duration("grace", r.cmd.ShutdownGrace))
			return r.shutdown(p, d)
		case failed := <-d.Failed():
			return errors.Join(failed, r.shutdown(p, d))
		}
	}
}

// opening returns a context that a signal to stop ends until opened is called, which reports whether there was one. So
// a database that does not respond keeps no process that is asked to end.
func (p *process) opening() (ctx context.Context, opened func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() {
		for {
			select {
			case s := <-p.signals:
				if s == syscall.SIGHUP && (p.hungUp == nil || !p.hungUp()) { // all that it would read is new
					continue
				}
				cancel()
			case <-done:
			}
			return
		}
	})
	return ctx, func() bool {
		close(done)
		watched.Wait()
		defer cancel()
		return ctx.Err() != nil
	}
}

// shutdown stops softly, and hard upon another signal.
func (r *running) shutdown(p *process, d *daemon.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cmd.ShutdownGrace)
	defer cancel()
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with the shutdown
		defer close(watched)
		for {
			select {
			case s := <-p.signals:
				if s == syscall.SIGHUP { // a terminal that closes may say so twice
					continue
				}
				cancel()
			case <-done:
			}
			return
		}
	}()
	err := d.Shutdown(ctx)
	close(done)
	<-watched
	return err
}

// folder is the folder of a database on disk; data is what --data says.
func (p *process) folder(data string) (_ string, err error) {
	if data == "" {
		data, err = dataDir(runtime.GOOS, p.env)
	}
	if data == daemon.Memory {
		err = usage("--data: a database in memory is not on disk")
	}
	return data, err
}

// storeFlag is the flag of commands that work on a database of PostgreSQL too.
type storeFlag struct {
	Store secretFlag `placeholder:"URL" help:"${serve_store}"`
}

// secretFlag is a value that is not shown.
type secretFlag string

// String hides the value.
func (secretFlag) String() string { return hidden }

// database is where the database is that a command reads: a folder, or what --store says. Each has a variable and a
// key; one that is named on the command line counts before the other.
func (p *process) database(data string, store secretFlag) (dir string, url daemon.Secret, err error) {
	named := p.names("data")
	switch {
	case named && p.names("store"):
		return "", "", usage("--data and --store name two databases: want one")
	case store != "" && !named:
		return "", daemon.Secret(store), nil
	}
	dir, err = p.folder(data)
	return dir, "", err
}

// names reports whether a flag is on the command line.
func (p *process) names(flag string) bool {
	return slices.ContainsFunc(p.args, func(arg string) bool {
		return arg == "--"+flag || strings.HasPrefix(arg, "--"+flag+"=")
	})
}

// onlyFolder is folder for a command that does not work on a database of PostgreSQL, which the server may have; instead
// says what does.
func (p *process) onlyFolder(data, instead string) (string, error) {
	fromFile := p.file != nil && p.file.Values["store"].Text != ""
	if data == "" && (p.env[variable("store")] != "" || fromFile) {
		return "", usage("the server keeps its data in PostgreSQL (AGENTD_STORE or the key store), where %s; "+
			"this command works on a folder: --data names one", instead)
	}
	return p.folder(data)
}

// dataDir is agentd's folder in the place where programs keep a user's data.
func dataDir(goos string, env map[string]string) (string, error) {
	home := env["HOME"]
	switch {
	case env["XDG_DATA_HOME"] != "":
		return filepath.Join(env["XDG_DATA_HOME"], "agentd"), nil
	case goos == "windows" && env["LOCALAPPDATA"] != "":
		return filepath.Join(env["LOCALAPPDATA"], "agentd"), nil
	case goos == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support", "agentd"), nil
	case goos != "windows" && home != "":
		return filepath.Join(home, ".local", "share", "agentd"), nil
	}
	return "", fmt.Errorf("no data folder: this user has no home; name one with --data, or %s to keep nothing: %w",
		daemon.Memory, os.ErrNotExist)
}
