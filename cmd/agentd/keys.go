package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make an API key, and print it."`
	List   keysListCmd   `cmd:"" help:"List the API keys, without their secrets."`
	Revoke keysRevokeCmd `cmd:"" help:"Revoke API keys."`
}

// ledgerFlags are those of all commands about API keys and the audit trail.
type ledgerFlags struct {
	configFlag
	Data              string `placeholder:"DIR" help:"${keys_data}"`
	storeFlag         `embed:""`
	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`
	JSON              bool `name:"json" noenv:"" help:"Write JSON, one object a line."`
}

type keysCreateCmd struct {
	Name string `arg:"" help:"Whose key it is: what created_by says of whatever its holder makes."`
	ledgerFlags
	Tenant  string        `noenv:"" placeholder:"NAME" help:"The tenant of its holder. Default: none."`
	Role    string        `noenv:"" default:"caller" enum:"caller,observer,operator" help:"${keys_role}"`
	Expires time.Duration `noenv:"" placeholder:"DURATION" help:"${keys_expires}"`
	Note    string        `noenv:"" placeholder:"TEXT" help:"What it is for."`
}

// Help is shown below the flags.
func (*keysCreateCmd) Help() string {
	return `The key is printed once; the database has only its SHA-256. It works at once, also with a daemon that runs.
The first key closes a daemon that was open: from then on each request needs a credential.

Examples:

  agentd keys create ops --role operator

  agentd keys create billing --tenant acme --expires 2160h > billing.key

  docker exec CONTAINER /agentd keys create ops --role operator`
}

type keysListCmd struct {
	ledgerFlags
	Tenant *string `noenv:"" placeholder:"NAME" help:"Only keys of this tenant; an empty name is those of none."`
}

// Help is shown below the flags.
func (*keysListCmd) Help() string {
	return `The secrets are not in the database. When the output is no terminal, it is JSON.

Examples:

  agentd keys list --tenant acme

  agentd keys list --json | jq -r 'select(.revoked == null) | .id'`
}

type keysRevokeCmd struct {
	IDs []string `arg:"" help:"The ids of the keys, as agentd keys list shows them."`
	ledgerFlags
}

// Help is shown below the flags.
func (*keysRevokeCmd) Help() string {
	return `A daemon that runs refuses the keys within two seconds, ends the streams that were opened with them
within half a minute, and takes no token any more that was made with them. Turns continue. Keys stay in the list.

Examples:

  agentd keys revoke 4q7cnzv5mm2k`
}

// keyLine is a key as JSON.
type keyLine struct {
	ID        string     `json:"id"`
	Key       string     `json:"key,omitempty"`
	Principal string     `json:"principal"`
	Tenant    string     `json:"tenant,omitempty"`
	Role      string     `json:"role"`
	Note      string     `json:"note,omitempty"`
	Created   time.Time  `json:"created"`
	Expires   *time.Time `json:"expires,omitempty"`
	Revoked   *time.Time `json:"revoked,omitempty"`
}

func lineOf(k *daemon.APIKey, text string) keyLine {
	line := keyLine{
		ID: k.ID, Key: text, Principal: k.Principal.ID, Tenant: k.Principal.Tenant, Role: k.Principal.Role.String(),
		Note: k.Note, Created: k.Created.UTC(),
	}
	if !k.Principal.Expires.IsZero() {
		line.Expires = new(k.Principal.Expires.UTC())
	}
	if !k.Revoked.IsZero() {
		line.Revoked = new(k.Revoked.UTC())
	}
	return line
}

// with opens the ledger of the database for f.
func (f *ledgerFlags) with(p *process, use func(context.Context, *daemon.Ledger) error) (err error) {
	ctx, stop := p.context()
	defer stop()
	var l *daemon.Ledger
	if f.Store != "" {
		l, err = daemon.OpenStoreLedger(ctx, daemon.Secret(f.Store))
	} else {
		var data string
		if data, err = p.folder(f.Data); err == nil {
			l, err = daemon.OpenLedger(ctx, data, f.AllowNetworkFiles)
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return use(ctx, l)
}

// Validate refuses a key that would have ended before it was made.
func (c *keysCreateCmd) Validate() error {
	switch {
	case c.Expires < 0:
		return fmt.Errorf("--expires is %v, must be above 0", c.Expires)
	case c.Name == "":
		return errors.New("the name is empty: created_by has to say whose key it is")
	}
	return nil
}

// Run makes a key.
func (c *keysCreateCmd) Run(p *process) error {
	who, err := daemon.NewPrincipal(c.Name, c.Tenant, c.Role)
	if err != nil {
		return usage("%w", err)
	}
	if c.Expires > 0 {
		who.Expires = time.Now().Add(c.Expires)
	}
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		text, key, first, err := l.CreateKey(ctx, who, c.Note)
		if err != nil {
			return err
		}
		if c.JSON {
			return json.NewEncoder(p.stdout).Encode(lineOf(&key, text))
		}
		fmt.Fprintln(p.stdout, text)
		if first {
			p.notef("this is the first key: from now on the server refuses requests without a credential")
		}
		return nil
	})
}

// Run lists keys.
func (c *keysListCmd) Run(p *process) error {
	tenant := ""
	if c.Tenant != nil {
		tenant = *c.Tenant
	}
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		list, err := l.Keys(ctx, tenant, c.Tenant == nil)
		if err != nil {
			return err
		}
		if c.JSON || !p.tty.stdout {
			out := json.NewEncoder(p.stdout)
			for i := range list {
				if err := out.Encode(lineOf(&list[i], "")); err != nil {
					return err
				}
			}
			return nil
		}
		return c.table(p, list)
	})
}

func (c *keysListCmd) table(p *process, list []daemon.APIKey) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPRINCIPAL\tTENANT\tROLE\tSTATE\tCREATED\tNOTE")
	for i := range list {
		k := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID,
			cli.Clean(k.Principal.ID), cli.Clean(k.Principal.Tenant), k.Principal.Role, keyState(k),
			k.Created.UTC().Format(time.DateOnly), cli.Clean(k.Note))
	}
	return w.Flush()
}

// keyState says whether a key is good for something.
func keyState(k *daemon.APIKey) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case k.Principal.Expires.IsZero():
		return "valid"
	case !time.Now().Before(k.Principal.Expires):
		return "expired"
	}
	return "until " + k.Principal.Expires.UTC().Format(time.DateOnly)
}

// Run revokes keys.
func (c *keysRevokeCmd) Run(p *process) error {
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		var errs []error
		for _, id := range c.IDs {
			key, err := l.RevokeKey(ctx, id)
			switch {
			case errors.Is(err, daemon.ErrNoKey):
				errs = append(errs, fmt.Errorf("there is no API key of the id %q: agentd keys list shows them", id))
			case err != nil:
				errs = append(errs, err)
			case c.JSON:
				errs = append(errs, json.NewEncoder(p.stdout).Encode(lineOf(&key, "")))
			}
		}
		return errors.Join(errs...)
	})
}
