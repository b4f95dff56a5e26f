package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
)

type serveCmd struct {
	Addr string `default:":8080" placeholder:"HOST:PORT" help:"Where to listen; no host means every address."`
	Data string `placeholder:"DIR" help:"${serve_data}"`

	TLSCert string `name:"tls-cert" placeholder:"FILE" help:"Certificate, PEM; serves TLS on the same port."`
	TLSKey  string `name:"tls-key" placeholder:"FILE" help:"Key of the certificate, PEM."`

	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`

	LogLevel  slog.Level `default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat string     `default:"text" enum:"text,json" help:"Form of the log: text or json."`

	modelFlags `embed:""`

	CORSOrigins  []string `name:"cors-origins" placeholder:"ORIGIN" help:"${serve_cors_origins}"`
	AllowedHosts []string `name:"allowed-hosts" placeholder:"NAME" help:"${serve_allowed_hosts}"`
	NoReflection bool     `help:"Do not serve gRPC reflection."`

	CreateSessions bool   `help:"${serve_create_sessions}"`
	OnDisconnect   string `default:"auto" enum:"auto,off,continue,cancel" help:"${serve_on_disconnect}"`

	ShutdownGrace time.Duration `default:"8s" help:"${serve_shutdown_grace}"`
	Retention     time.Duration `default:"24h" help:"How long a turn waits for a client before it is ended."`
	PurgeAfter    time.Duration `default:"0s" help:"${serve_purge_after}"`
	IdleTurn      time.Duration `default:"1m" help:"How long a turn that waits for a client stays in memory."`
	HandoverGrace time.Duration `default:"2s" help:"${serve_handover_grace}"`
	TurnTimeout   time.Duration `default:"1h" help:"Longest turn."`
	ToolTimeout   time.Duration `default:"10m" help:"Longest wait for the result of a tool call."`
	ModelCoolDown time.Duration `default:"10s" help:"${serve_model_cool_down}"`
	IdleTimeout   time.Duration `help:"${serve_idle_timeout}"`
	StreamTimeout time.Duration `default:"24h" help:"Longest stream."`
	WriteTimeout  time.Duration `default:"10s" help:"${serve_write_timeout}"`

	InstructionFile []byte `type:"filecontent" placeholder:"FILE" help:"${serve_instruction_file}"`

	TurnBudget    budgetFlag `placeholder:"BUDGET" help:"${serve_turn_budget}"`
	SessionBudget budgetFlag `placeholder:"BUDGET" help:"${serve_session_budget}"`

	MaxConns          int `default:"4096" help:"Connections at once."`
	MaxStreams        int `default:"4096" help:"Run streams at once."`
	MaxTurns          int `default:"1000" help:"Turns at once."`
	MaxMessageBytes   int `default:"4194304" help:"Size of the largest request message."`
	MaxReplyBytes     int `default:"268435456" help:"${serve_max_reply_bytes}"`
	MessagesPerSecond int `default:"200" help:"Messages a second that are taken from one stream."`
	MaxModelCalls     int `default:"500" help:"Model calls of one turn."`
	MaxRequestBytes   int `default:"536870912" help:"${serve_max_request_bytes}"`
	MaxQueued         int `default:"16" help:"Turns of one session that may wait for their start."`
	MaxSharedBytes    int `default:"262144" help:"${serve_max_shared_bytes}"`
	MaxSharedKeys     int `default:"1000" help:"Keys that sessions share, of each of app: and user:."`
	MaxStateBytes     int `default:"4194304" help:"Size of the state of one session's own, as JSON."`
	MaxStateKeys      int `default:"10000" help:"Keys of one session's own."`
	QuarantineAfter   int `default:"3" help:"${serve_quarantine_after}"`
	ModelBreaker      int `default:"10" help:"${serve_model_breaker}"`
}

func (c *serveCmd) config(p *process) (daemon.Config, error) {
	data := c.Data
	if data == "" {
		var err error
		if data, err = dataDir(runtime.GOOS, p.env); err != nil {
			return daemon.Config{}, err
		}
	}
	log := daemon.LogConfig{
		Level:   c.LogLevel,
		JSON:    c.LogFormat == "json",
		Secrets: daemon.Secrets(p.getenv),
	}
	cfg := daemon.Config{
		Addr:              c.Addr,
		TLSCertFile:       c.TLSCert,
		TLSKeyFile:        c.TLSKey,
		DataDir:           data,
		AllowNetworkFiles: c.AllowNetworkFiles,
		Getenv:            p.getenv,
		Logger:            daemon.NewLogger(p.stderr, log),
		Version:           versionText(),
		CORSOrigins:       c.CORSOrigins,
		AllowedHosts:      c.AllowedHosts,
		NoReflection:      c.NoReflection,
		CreateSessions:    c.CreateSessions,
		OnDisconnect:      c.OnDisconnect,
		MaxConns:          c.MaxConns,
		MaxStreams:        c.MaxStreams,
		MaxMessageBytes:   c.MaxMessageBytes,
		MaxReplyBytes:     c.MaxReplyBytes,
		MessagesPerSecond: c.MessagesPerSecond,
		IdleTimeout:       c.IdleTimeout,
		StreamTimeout:     c.StreamTimeout,
		WriteTimeout:      c.WriteTimeout,
	}
	if c.OnDisconnect == "off" {
		cfg.OnDisconnect = "continue"
	}
	c.configure(&cfg)
	cfg.Turns.MaxTurns = c.MaxTurns
	cfg.Turns.TurnTimeout = c.TurnTimeout
	cfg.Turns.ToolTimeout = c.ToolTimeout
	cfg.Turns.Retention = c.Retention
	cfg.Turns.PurgeAfter = c.PurgeAfter
	cfg.Turns.IdleTurn = c.IdleTurn
	cfg.Turns.HandoverGrace = c.HandoverGrace
	cfg.Turns.MaxQueued = c.MaxQueued
	cfg.Turns.MaxSharedBytes, cfg.Turns.MaxSharedKeys = c.MaxSharedBytes, c.MaxSharedKeys
	cfg.Turns.MaxOwnBytes, cfg.Turns.MaxOwnKeys = c.MaxStateBytes, c.MaxStateKeys
	cfg.Turns.Instruction = strings.TrimSpace(string(c.InstructionFile))
	cfg.Turns.Budget = daemon.Budget(c.TurnBudget)
	cfg.Turns.SessionBudget = daemon.Budget(c.SessionBudget)
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

// Validate refuses limits that would mean a default or none.
func (c *serveCmd) Validate() error {
	errs := []error{c.check()}
	for name, d := range map[string]time.Duration{
		"turn-timeout":    c.TurnTimeout,
		"tool-timeout":    c.ToolTimeout,
		"model-cool-down": c.ModelCoolDown,
		"stream-timeout":  c.StreamTimeout,
		"write-timeout":   c.WriteTimeout,
		"retention":       c.Retention,
		"idle-turn":       c.IdleTurn,
		"handover-grace":  c.HandoverGrace,
	} {
		errs = append(errs, above0(name, d))
	}
	for name, n := range map[string]int{
		"max-conns":           c.MaxConns,
		"max-streams":         c.MaxStreams,
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
	if c.ModelBreaker < 0 {
		errs = append(errs, fmt.Errorf("--model-breaker is %d, must not be below 0", c.ModelBreaker))
	}
	if c.QuarantineAfter < 0 {
		errs = append(errs, fmt.Errorf("--quarantine-after is %d, must not be below 0", c.QuarantineAfter))
	}
	if c.PurgeAfter < 0 {
		errs = append(errs, fmt.Errorf("--purge-after is %v, must not be below 0", c.PurgeAfter))
	}
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("--idle-timeout is %v, must be above 0", c.IdleTimeout))
	}
	if c.ShutdownGrace < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-grace is %v, must not be below 0", c.ShutdownGrace))
	}
	return errors.Join(errs...)
}

// Run serves until a signal, or until serving fails.
func (c *serveCmd) Run(p *process) error {
	cfg, err := c.config(p)
	if err != nil {
		return err
	}
	if p.adjust != nil {
		p.adjust(&cfg)
	}
	d, err := daemon.New(cfg)
	if errors.Is(err, daemon.ErrNetworkFiles) {
		return fmt.Errorf("%w (--data), or set --allow-network-files if one daemon of one machine alone uses it", err)
	}
	if err != nil {
		return err
	}
	if err := d.Start(context.Background()); err != nil {
		return errors.Join(err, c.shutdown(p, d))
	}
	var failed error
	select {
	case s := <-p.signals:
		cfg.Logger.Info("stopping", slog.String("signal", s.String()), slog.Duration("grace", c.ShutdownGrace))
	case failed = <-d.Failed():
	}
	return errors.Join(failed, c.shutdown(p, d))
}

// shutdown stops softly, and hard upon another signal.
func (c *serveCmd) shutdown(p *process, d *daemon.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownGrace)
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
