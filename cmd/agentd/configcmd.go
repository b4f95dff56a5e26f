package main

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type configCmd struct {
	serveCmd `embed:""`

	Check bool `noenv:"" help:"Only check the configuration, with the files that it names."`
	JSON  bool `name:"json" noenv:"" help:"Write JSON, one object a line."`
}

// Help is shown below the flags.
func (*configCmd) Help() string {
	return `Prints each setting of agentd serve, its value, and where that is from: a flag, an environment variable,
a line of the file, or the default. It takes the flags of serve. Keys of providers are shown as ***,
and values with ${env:NAME} as they are written.

The exit code is 2 when the file is invalid, and 1 when a file that it names is.

Examples:

  agentd config --config /etc/agentd.yaml

  agentd config --check --config /etc/agentd.yaml`
}

// Run prints the settings, or checks them.
func (c *configCmd) Run(p *process, ctx *kong.Context) error {
	cfg, err := c.config(p)
	if err != nil {
		return err
	}
	if c.Check {
		if err := daemon.CheckConfig(cfg); err != nil {
			return err
		}
		_, err := fmt.Fprintln(p.stdout, "ok")
		return err
	}
	settings, err := p.allSettings(ctx)
	if err != nil {
		return err
	}
	return c.print(p, settings)
}

func (c *configCmd) print(p *process, settings []setting) error {
	if c.JSON {
		for _, s := range settings {
			if err := p.printJSON(s); err != nil {
				return err
			}
		}
		return nil
	}
	out := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, s := range settings {
		fmt.Fprintf(out, "%s\t%s\t%s\n", s.Key, cli.Clean(s.Value), cli.Clean(s.Source))
	}
	return out.Flush()
}

// allSettings are the settings of the flags, and those of providers. Defaults that depend on something are
// filled in.
func (p *process) allSettings(ctx *kong.Context) ([]setting, error) {
	out := p.settings(ctx)
	for i, s := range out {
		if s.Key == "data" && s.Source == defaultSource {
			out[i].Value, _ = dataDir(runtime.GOOS, p.env)
		}
	}
	_, more, err := p.providerEnv()
	return append(out, more...), err
}
