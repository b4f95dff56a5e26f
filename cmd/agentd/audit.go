package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type auditCmd struct {
	ledgerFlags
	Tenant    *string   `noenv:"" placeholder:"NAME" help:"Only acts of this tenant; an empty name is none."`
	Principal string    `noenv:"" placeholder:"NAME" help:"Only what this caller did."`
	Session   string    `noenv:"" placeholder:"ID" help:"Only what was done to this session."`
	Since     sinceFlag `noenv:"" placeholder:"TIME" help:"Only from then on: 2026-01-31T08:00:00Z, or 24h ago."`
	After     int64     `noenv:"" placeholder:"SEQ" help:"Only entries behind this one."`
}

// Help is shown below the flags.
func (*auditCmd) Help() string {
	return `Who did what to which session, when, and from where, also of a daemon that runs, as it was
written: entries of the same tenth of a second may be in any order. Reads are not noted, and tool results are in the
log of their session. When the output is no terminal, it is JSON.

Examples:

  agentd audit --since 24h

  agentd audit --tenant acme --json > acme-audit.jsonl

  agentd audit --json --after 1200 | jq -r 'select(.outcome == "PERMISSION_DENIED") | .principal'`
}

// sinceFlag is a time, or how long ago it was.
type sinceFlag struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *sinceFlag) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil {
		f.Time = time.Now().Add(-d)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%q is neither a time such as 2026-01-31T08:00:00Z nor a duration such as 24h", text)
	}
	f.Time = t
	return nil
}

// auditLine is an entry as JSON.
type auditLine struct {
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	Tenant    string    `json:"tenant,omitempty"`
	Principal string    `json:"principal"`
	Role      string    `json:"role"`
	Key       string    `json:"key,omitempty"`
	From      string    `json:"from"`
	Action    string    `json:"action"`
	Session   string    `json:"session,omitempty"`
	Turn      string    `json:"turn,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	Outcome   string    `json:"outcome"`
}

// Run lists entries.
func (c *auditCmd) Run(p *process) error {
	q := daemon.AuditQuery{
		AllTenants: c.Tenant == nil, Session: c.Session, Principal: c.Principal, Since: c.Since.Time, After: c.After,
	}
	if c.Tenant != nil {
		q.Tenant = *c.Tenant
	}
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		if c.JSON || !p.tty.stdout {
			return printEntries(ctx, p.stdout, l, q)
		}
		return tabulate(ctx, p.stdout, l, q)
	})
}

func printEntries(ctx context.Context, to io.Writer, l *daemon.Ledger, q daemon.AuditQuery) error {
	out := json.NewEncoder(to)
	for e, err := range l.Entries(ctx, q) {
		if err != nil {
			return err
		}
		if err := out.Encode(auditLine{
			Seq: e.Seq, Time: e.Time.UTC(), Tenant: e.Tenant, Principal: e.Principal, Role: e.Role.String(), Key: e.Via,
			From: e.From, Action: e.Action, Session: e.Session, Turn: e.Turn, Subject: e.Subject, Outcome: e.Outcome,
		}); err != nil {
			return err
		}
	}
	return nil
}

func tabulate(ctx context.Context, to io.Writer, l *daemon.Ledger, q daemon.AuditQuery) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tPRINCIPAL\tTENANT\tROLE\tACTION\tSESSION\tTURN\tSUBJECT\tOUTCOME\tFROM")
	for e, err := range l.Entries(ctx, q) {
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Time.UTC().Format(time.RFC3339),
			cli.Clean(e.Principal), cli.Clean(e.Tenant), e.Role, e.Action, cli.Clean(e.Session), cli.Clean(e.Turn),
			cli.Clean(e.Subject), e.Outcome, e.From)
	}
	return w.Flush()
}
