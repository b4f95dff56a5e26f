package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/webhook"
	"github.com/apzuk3/agentd/session/limits"
)

// live is what of a daemon may change while it runs. It is immutable.
type live struct {
	cfg     Config
	turns   limits.Limits // with what the file of tenants says
	served                // to callers without a tenant
	tenants map[string]served
	backends
	hooks   []webhook.Hook
	breaker *modelcall.Breaker
	cert    *tls.Certificate // nil without TLS
}

// newLive reads the files that the config names. It keeps the breaker of before, which may be nil, if its
// configuration is the same.
func (d *Daemon) newLive(cfg Config, before *live) (*live, error) {
	if cfg.Script != "" && cfg.script == nil { // what was played of it stays so
		var err error
		if cfg.script, err = scripted.OpenQueue(cfg.Script, cfg.ScriptStrict); err != nil {
			return nil, fmt.Errorf("daemon: script: %w", err)
		}
	}
	now := &live{cfg: cfg}
	if cfg.TLSCertFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.TLSCertFile, cfg.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("daemon: TLS certificate: %w", err)
		}
		now.cert = &cert
	}
	registry, all, err := newRegistry(&cfg)
	if err != nil {
		return nil, err
	}
	tenants, err := readTenants(&cfg, all)
	if err != nil {
		return nil, err
	}
	if now.backends, err = readBackends(&cfg); err != nil {
		return nil, err
	}
	if now.hooks, err = readHooks(&cfg); err != nil {
		return nil, err
	}
	now.turns = withTenants(cfg.Turns, tenants)
	if before != nil && before.cfg.ModelBreaker == cfg.ModelBreaker {
		now.breaker = before.breaker
	} else {
		now.breaker = modelcall.NewBreaker(cfg.ModelBreaker, cfg.Logger)
	}
	of := func(reg *models.Registry, further []string) resolver {
		return d.recorded(adkbridge.FromRegistry(reg, modelcall.Limits{
			Total: cfg.ModelTimeout, Idle: cfg.ModelIdleTimeout, Retry: cfg.ModelRetry, Breaker: now.breaker,
			OnTry: d.onTry(),
		}), append(secrets(all), further...))
	}
	now.served = served{registry, of(registry, nil)}
	now.tenants, err = serveTenants(now.served, tenants, cfg.ExtraProviders, of)
	return now, err
}

// Reloaded returns the config with what Reload takes over from next: keys and addresses of providers,
// prices, scripts, the files of a certificate if both have one, budgets, the instruction, and those limits
// and times from which nothing of a size is made at the start.
func (c Config) Reloaded(next Config) Config {
	if c.TLSCertFile != "" && next.TLSCertFile != "" {
		c.TLSCertFile, c.TLSKeyFile = next.TLSCertFile, next.TLSKeyFile
	}
	c.Getenv, c.Providers = next.Getenv, next.Providers
	c.ScriptsDir, c.Prices = next.ScriptsDir, next.Prices
	c.CreateSessions, c.OnDisconnect = next.CreateSessions, next.OnDisconnect
	c.MaxStreams, c.MessagesPerSecond = next.MaxStreams, next.MessagesPerSecond
	c.MaxTenantStreams, c.TenantRequestsPerSecond = next.MaxTenantStreams, next.TenantRequestsPerSecond
	c.FirstMessageTimeout, c.IdleTimeout = next.FirstMessageTimeout, next.IdleTimeout
	c.StreamTimeout, c.WriteTimeout = next.StreamTimeout, next.WriteTimeout
	c.LingerTimeout = next.LingerTimeout
	c.ModelTimeout, c.ModelIdleTimeout = next.ModelTimeout, next.ModelIdleTimeout
	c.ModelRetry, c.ModelBreaker = next.ModelRetry, next.ModelBreaker
	c.CompactAt, c.DropToolPayloads = next.CompactAt, next.DropToolPayloads
	c.Trees.ModelCalls = next.Trees.ModelCalls
	c.Turns.MaxTenantTurns, c.Turns.MaxTenantSessions = next.Turns.MaxTenantTurns, next.Turns.MaxTenantSessions
	c.Turns.MaxTurns, c.Turns.MaxQueued = next.Turns.MaxTurns, next.Turns.MaxQueued
	c.Turns.TurnTimeout, c.Turns.ToolTimeout = next.Turns.TurnTimeout, next.Turns.ToolTimeout
	c.Turns.HandoverGrace, c.Turns.IdleTurn = next.Turns.HandoverGrace, next.Turns.IdleTurn
	c.Turns.HibernateAfter = next.Turns.HibernateAfter
	c.Turns.Budget, c.Turns.SessionBudget = next.Turns.Budget, next.Turns.SessionBudget
	c.Turns.TenantDay, c.Turns.TenantMonth = next.Turns.TenantDay, next.Turns.TenantMonth
	c.Tenants, c.Backends, c.Webhooks = next.Tenants, next.Backends, next.Webhooks
	c.Turns.Instruction = next.Turns.Instruction
	c.Turns.MaxOwnBytes, c.Turns.MaxOwnKeys = next.Turns.MaxOwnBytes, next.Turns.MaxOwnKeys
	return c
}

// Reload takes over what Reloaded says of next, all of it or, after an error, nothing, and reads the files
// that it names again. Turns that run keep the models, keys and timers that they have; new ones, and those
// that resume, get the new. It may be called from any goroutine, also before Start.
func (d *Daemon) Reload(next Config) error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	before := d.live.Load()
	cfg := before.cfg.Reloaded(next)
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Turns.Validate(); err != nil {
		return err
	}
	now, err := d.newLive(cfg, before)
	if err != nil {
		return err
	}
	if err := d.reloadKeys(); err != nil {
		return err
	}
	if err := d.server.Reload(d.serverConfig(&cfg)); err != nil {
		return err
	}
	d.runner.Set(cfg.Trees, cfg.CompactAt)
	d.live.Store(now)
	return d.manager.SetLimits(now.turns) // validated above
}

// CheckConfig returns why New would refuse a config, as far as that can be told without its database, its
// record of model calls, and its address.
func CheckConfig(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Turns.Validate(); err != nil {
		return err
	}
	_, err := new(Daemon).newLive(cfg, nil)
	return errors.Join(err, cfg.Encryption.Check())
}
