package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
)

type migrateCmd struct {
	SQLiteToPostgres sqliteToPostgresCmd `cmd:"" name:"sqlite-to-postgres" help:"${migrate_sqlite_to_postgres}"`
}

type sqliteToPostgresCmd struct {
	configFlag
	From string     `noenv:"" required:"" placeholder:"DIR" help:"${migrate_from}"`
	To   secretFlag `noenv:"" placeholder:"URL" help:"${migrate_to}"`
	JSON bool       `name:"json" noenv:"" help:"Write JSON."`

	storeFlag         `embed:""`
	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`
}

// Help is shown below the flags.
func (*sqliteToPostgresCmd) Help() string {
	return `Copies all that a server on SQLite has: sessions with their logs, byte for byte, shared state, keys, the
audit trail, agents, objects, and what is encrypted, with its data keys. At the end all is read back and compared, the
records of each session by their number and SHA-256. The folder is only read, and stays as it is.

The server of the folder has to be stopped, and its database must be of this version: start agentd serve of this
version on it once if it is older. The target has to be an empty database of PostgreSQL, in UTF8, that nobody uses.
After a kill, at any place, or an error of a connection, the same command goes on; until it is over no server opens
the target. When it is over, start servers on the target, and keep the folder from being served again: turns that are
open go on in the target.

Examples:

  agentd migrate sqlite-to-postgres --from /var/lib/agentd --to postgres://agentd@db/agentd

  AGENTD_STORE=postgres://agentd:PASSWORD@db/agentd agentd migrate sqlite-to-postgres --from /var/lib/agentd`
}

// Validate refuses a command without a target.
func (c *sqliteToPostgresCmd) Validate() error {
	if c.To == "" && c.Store == "" {
		return errors.New("--to is missing: the URL of an empty database of PostgreSQL, or AGENTD_STORE")
	}
	return nil
}

// Run copies a database.
func (c *sqliteToPostgresCmd) Run(p *process) error {
	url := c.To
	if url == "" {
		url = c.Store
	}
	from, err := p.folder(c.From)
	if err != nil {
		return err
	}
	ctx, stop := p.context()
	defer stop()
	m := &meter{w: p.stderr, on: p.tty.stderr, now: time.Now}
	out, err := daemon.Migrate(ctx, daemon.Config{
		DataDir: from, StoreURL: daemon.Secret(url), AllowNetworkFiles: c.AllowNetworkFiles,
	}, m.show)
	m.clear()
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(out)
	}
	has := fmt.Sprintf("%s, %s, %s in all", counted(int(out.Sessions), "session"), counted(int(out.Records), "record"),
		counted(int(out.Rows), "row"))
	if !out.Earlier.IsZero() {
		fmt.Fprintf(p.stdout, "nothing to do: an earlier run has finished at %s: %s\n",
			out.Earlier.UTC().Format(time.RFC3339), has)
		return nil
	}
	fmt.Fprintf(p.stdout, "copied and compared: %s, SHA-256 %s\n", has, out.SHA256)
	return nil
}
