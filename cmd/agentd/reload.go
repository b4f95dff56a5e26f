package main

import (
	"log/slog"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/internal/daemon"
)

// running is the configuration of a server that runs.
type running struct {
	p        process // with the file that was read last
	cmd      serveCmd
	settings []setting
	log      *slog.Logger
	level    slog.LevelVar
	redactor daemon.Redactor
}

// start reads the configuration of a server that is about to run.
func (c *serveCmd) start(p *process, ctx *kong.Context) (*running, daemon.Config, error) {
	r := &running{p: *p, cmd: *c}
	cfg, err := c.config(p)
	if err != nil {
		return nil, cfg, err
	}
	if r.settings, err = p.allSettings(ctx); err != nil {
		return nil, cfg, err
	}
	r.level.Set(c.LogLevel)
	r.redactor.Hide(daemon.Secrets(cfg)...)
	r.log = daemon.NewLogger(p.stderr, daemon.LogConfig{
		Level: &r.level, JSON: c.LogFormat == "json", Redactor: &r.redactor,
	})
	cfg.Logger = r.log
	return r, cfg, nil
}

// reload reads the configuration again and has the server take over what may change while it runs: all of it
// or, if anything is wrong, nothing.
func (r *running) reload(d *daemon.Daemon) {
	next := r.p
	cmd, settings, err := next.readAgain()
	if err == nil {
		err = r.apply(d, &next, cmd)
	}
	if err != nil {
		r.log.Error("the configuration was not reloaded, nothing has changed", slog.String("error", err.Error()))
		return
	}
	changed := 0
	for i, now := range settings {
		was := r.settings[i]
		if reflect.DeepEqual(was.raw, now.raw) {
			settings[i] = was
			settings[i].Source = now.Source
			continue
		}
		attrs := []any{slog.String("key", now.Key), slog.String("old", was.Value), slog.String("new", now.Value),
			slog.String("source", now.Source)}
		if !was.changesTo(now) {
			r.log.Warn("a setting needs a restart", attrs...)
			settings[i] = was
			continue
		}
		r.log.Info("a setting has changed", attrs...)
		changed++
	}
	r.p, r.settings = next, settings
	r.log.Info("the configuration was reloaded", slog.Int("changed", changed))
}

// readAgain reads the command line, the environment and the configuration file as at the start.
func (p *process) readAgain() (*serveCmd, []setting, error) {
	ctx, err := p.parse()
	if err != nil {
		return nil, nil, err
	}
	settings, err := p.allSettings(ctx)
	cmd, _ := reflect.TypeAssert[*serveCmd](ctx.Selected().Target.Addr())
	return cmd, settings, err
}

// apply has the server take over what may change of a command line. The rest stays in r.cmd.
func (r *running) apply(d *daemon.Daemon, p *process, next *serveCmd) error {
	cmd := r.cmd
	_, was, err := flagsOf(&cmd)
	if err != nil {
		return err
	}
	_, now, err := flagsOf(next)
	if err != nil {
		return err
	}
	for i, f := range was {
		old := setting{Key: keyOf(f.Name), live: f.Tag.Has(liveTag), raw: f.Target.Interface()}
		if old.changesTo(setting{raw: now[i].Target.Interface()}) {
			f.Target.Set(now[i].Target)
		}
	}
	cfg, err := cmd.config(p)
	if err != nil {
		return err
	}
	r.redactor.Hide(daemon.Secrets(cfg)...) // before anything uses them
	if err := d.Reload(cfg); err != nil {
		return err
	}
	r.level.Set(cmd.LogLevel)
	r.cmd = cmd
	return nil
}

// changesTo reports whether a reload changes a setting to another value. TLS is neither turned on nor off.
func (s setting) changesTo(next setting) bool {
	if slices.Contains([]string{"tls_cert", "tls_key"}, s.Key) {
		return s.raw != "" && next.raw != ""
	}
	return s.live
}
