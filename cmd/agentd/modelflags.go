package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/internal/daemon"
)

// modelFlags say what a daemon does about models: that of serve, and that of
// run --local.
type modelFlags struct {
	Scripts      string `live:"" placeholder:"DIR" help:"Folder of scripts for the models 'scripted/…'."`
	Script       string `placeholder:"FILE" help:"${script}"`
	ScriptStrict bool   `help:"${script_strict}"`

	Prices   string `live:"" placeholder:"FILE" help:"${prices}"`
	RecordTo string `placeholder:"FILE" help:"${record_to}"`

	ModelTimeout time.Duration `live:"" default:"10m" help:"Longest model call; each try has it to itself."`
	ModelIdle    time.Duration `live:"" default:"5m" help:"${model_idle}"`
	ModelTries   int           `live:"" default:"5" help:"${model_tries}"`

	CompactAt float64 `live:"" default:"0.85" placeholder:"SHARE" help:"${compact_at}"`
}

// configure says it to a daemon.
func (f *modelFlags) configure(cfg *daemon.Config) {
	cfg.ScriptsDir, cfg.Prices, cfg.RecordTo = f.Scripts, f.Prices, f.RecordTo
	cfg.Script, cfg.ScriptStrict = f.Script, f.ScriptStrict
	cfg.ModelTimeout, cfg.ModelIdleTimeout, cfg.ModelRetry.Tries = f.ModelTimeout, f.ModelIdle, f.ModelTries
	cfg.CompactAt = f.CompactAt
}

// check refuses limits that would mean a default or none.
func (f *modelFlags) check() error {
	errs := []error{
		above0("model-timeout", f.ModelTimeout),
		above0("model-idle", f.ModelIdle),
		atLeast1("model-tries", f.ModelTries),
	}
	if f.CompactAt < 0 || f.CompactAt > 1 || math.IsNaN(f.CompactAt) {
		errs = append(errs, fmt.Errorf("--compact-at is %v, must be from 0 to 1", f.CompactAt))
	}
	return errors.Join(errs...)
}

// localGroup is the group of run's modelFlags.
var localGroup = kong.Group{Key: "local", Title: "Flags of --local:"}

// localFlag is the first flag on the command line that only --local has, or "". One
// that is an environment variable may be there for agentd serve.
func localFlag(ctx *kong.Context) string {
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && p.Flag.Group != nil && p.Flag.Group.Key == localGroup.Key {
			return "--" + p.Flag.Name
		}
	}
	return ""
}

func above0(flag string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("--%s is %v, must be above 0", flag, d)
}

func atLeast1(flag string, n int) error {
	if n >= 1 {
		return nil
	}
	return fmt.Errorf("--%s is %d, must be at least 1", flag, n)
}
