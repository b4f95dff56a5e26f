package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/apzuk3/agentd/internal/daemon"
)

// whoseFlags say whose data is meant.
type whoseFlags struct {
	configFlag
	Data   string  `placeholder:"DIR" help:"${backup_data}"`
	Tenant *string `noenv:"" placeholder:"NAME" help:"The tenant; an empty name is that of callers without one."`
	User   string  `noenv:"" placeholder:"ID" help:"One of its users, see created_by. Default: all of the tenant."`
	encryptionFlags

	storeFlag `embed:""`
}

// config is where the database is, and its keys.
func (f *whoseFlags) config(p *process) (cfg daemon.Config, err error) {
	cfg.Encryption = f.encryption()
	cfg.DataDir, cfg.StoreURL, err = p.database(f.Data, f.Store)
	return cfg, err
}

// Validate refuses a request that does not say whose data is meant.
func (f *whoseFlags) Validate() error {
	if f.Tenant == nil {
		return errors.New("--tenant is missing: say whose data is meant; --tenant= is callers without a tenant")
	}
	return nil
}

type exportCmd struct {
	File string `arg:"" help:"The file to write, '-' for the output."`
	whoseFlags
}

// Help is shown below the flags.
func (*exportCmd) Help() string {
	return `Writes one JSON object a line: sessions with each record of their logs, shared state, API keys without
their secrets, and the audit trail. A daemon may run; what it writes meanwhile is not in the file.
What a user did in sessions that others created is in the export of the tenant, not in that of the user.

Examples:

  agentd export --tenant acme acme.jsonl

  agentd export --tenant acme --user ann - | jq -c 'select(.kind == "session")'`
}

// Run writes an export.
func (c *exportCmd) Run(p *process) (err error) {
	cfg, err := c.config(p)
	if err != nil {
		return err
	}
	to := p.stdout
	if c.File != "-" {
		file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			if closed := file.Close(); err == nil {
				err = closed
			}
		}()
		to = file
	}
	ctx, stop := p.context()
	defer stop()
	out := bufio.NewWriter(to)
	counts, err := daemon.Export(ctx, cfg, *c.Tenant, c.User, out)
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	p.notef("exported %d sessions, %d records, %d shared keys, %d API keys, %d entries of the audit trail",
		counts["session"], counts["record"], counts["shared"], counts["api_key"], counts["audit"])
	return nil
}

type eraseCmd struct {
	whoseFlags
	JSON  bool `name:"json" noenv:"" help:"Write JSON."`
	Trail bool `noenv:"" help:"Erase the entries of the audit trail too."`
	Yes   bool `noenv:"" help:"Erase. Without it the command only says how many sessions there are."`

	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`
}

// Help is shown below the flags.
func (*eraseCmd) Help() string {
	return `Erases sessions with their logs, shared state and API keys. Turns that run are canceled. A daemon that runs
does it, and continues if this command is interrupted or the daemon is restarted; without one, this command does it.

What stays, unless the law that you are under says otherwise: entries of the audit trail (--trail erases them too), the
sums that the tenant has spent, that there was an erasure, backups, the daemon's log, and what a user did in sessions
that others created. Revoke API keys first (agentd keys revoke), or their holders go on meanwhile.

Examples:

  agentd erase --tenant acme --user ann

  agentd erase --tenant acme --yes --trail`
}

// Run erases.
func (c *eraseCmd) Run(p *process) error {
	cfg, err := c.config(p)
	if err != nil {
		return err
	}
	cfg.AllowNetworkFiles = c.AllowNetworkFiles
	ctx, stop := p.context()
	defer stop()
	e := daemon.Erasure{Tenant: *c.Tenant, User: c.User, Trail: c.Trail}
	if !c.Yes {
		n, err := daemon.Erasable(ctx, cfg, e)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "%d sessions would be erased, with shared state and API keys; --yes erases them\n", n)
		return nil
	}
	return c.erase(ctx, p, cfg, e)
}

func (c *eraseCmd) erase(ctx context.Context, p *process, cfg daemon.Config, e daemon.Erasure) error {
	result, err := daemon.Erase(ctx, cfg, e)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(map[string]string{"result": result})
	}
	fmt.Fprintln(p.stdout, result)
	return nil
}
