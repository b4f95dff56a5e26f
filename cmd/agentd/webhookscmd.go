package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type webhooksCmd struct {
	List   webhooksListCmd   `cmd:"" help:"List the webhooks that are still to be told something."`
	Dead   webhooksDeadCmd   `cmd:"" help:"List what was given up."`
	Retry  webhooksRetryCmd  `cmd:"" help:"Send what was given up again."`
	Secret webhooksSecretCmd `cmd:"" help:"Print a new secret for a webhook."`
}

type webhooksListCmd struct{ ledgerFlags }

// Help is shown below the flags.
func (*webhooksListCmd) Help() string {
	return `A webhook that has been told everything is not in the list. When the output is no terminal, it is JSON.

Examples:

  agentd webhooks list`
}

type webhooksDeadCmd struct {
	ledgerFlags
	Webhook string `noenv:"" placeholder:"NAME" help:"Only those of this webhook."`
}

// Help is shown below the flags.
func (*webhooksDeadCmd) Help() string {
	return `What a receiver has not taken within 72 hours, or said with 410 that it never will, the newest first.
It is kept for 40 days. When the output is no terminal, it is JSON.

Examples:

  agentd webhooks dead

  agentd webhooks dead --webhook phone --json | jq -r .id`
}

type webhooksRetryCmd struct {
	IDs []string `arg:"" optional:"" name:"id" help:"The ids, as agentd webhooks dead shows them."`
	ledgerFlags
	Webhook string `noenv:"" placeholder:"NAME" help:"All of this webhook."`
}

// Help is shown below the flags.
func (*webhooksRetryCmd) Help() string {
	return `A daemon that runs sends them within seconds, under the ids that they had. It is noted in the audit trail.

Examples:

  agentd webhooks retry msg_5f0c1d2e3b4a59687786958493a2b1c0

  agentd webhooks retry --webhook phone`
}

type webhooksSecretCmd struct{}

// Help is shown below the flags.
func (*webhooksSecretCmd) Help() string {
	return `32 random bytes in the form of Standard Webhooks, for secret or secret_file of a webhook and for its
receiver. It is stored nowhere.

Examples:

  agentd webhooks secret > phone.secret`
}

// Run prints a secret.
func (*webhooksSecretCmd) Run(p *process) error {
	_, err := fmt.Fprintln(p.stdout, daemon.NewWebhookSecret())
	return err
}

// webhookLine is a webhook as JSON.
type webhookLine struct {
	Webhook string     `json:"webhook"`
	Waiting int64      `json:"waiting"`
	Dead    int64      `json:"dead"`
	Oldest  *time.Time `json:"oldest,omitempty"`
}

// Run lists webhooks.
func (c *webhooksListCmd) Run(p *process) error {
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		all, err := l.Webhooks(ctx)
		if err != nil {
			return err
		}
		var lines []webhookLine
		for _, name := range slices.Sorted(maps.Keys(all)) {
			w := all[name]
			line := webhookLine{Webhook: name, Waiting: w.Waiting, Dead: w.Dead}
			if !w.Oldest.IsZero() {
				line.Oldest = new(w.Oldest)
			}
			if w.Waiting > 0 || w.Dead > 0 {
				lines = append(lines, line)
			}
		}
		if c.JSON || !p.tty.stdout {
			out := json.NewEncoder(p.stdout)
			for i := range lines {
				if err := out.Encode(lines[i]); err != nil {
					return err
				}
			}
			return nil
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "WEBHOOK\tWAITING\tOLDEST\tDEAD")
		for _, line := range lines {
			oldest := ""
			if line.Oldest != nil {
				oldest = line.Oldest.Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\n", cli.Clean(line.Webhook), line.Waiting, oldest, line.Dead)
		}
		return w.Flush()
	})
}

// letterLine is a dead letter as JSON.
type letterLine struct {
	ID          string    `json:"id"`
	Webhook     string    `json:"webhook"`
	Event       string    `json:"event"`
	Tenant      string    `json:"tenant,omitempty"`
	Session     string    `json:"session,omitempty"`
	Turn        string    `json:"turn,omitempty"`
	Interaction string    `json:"interaction,omitempty"`
	Time        time.Time `json:"time"`
	GivenUp     time.Time `json:"given_up"`
	Attempts    int64     `json:"attempts"`
	Error       string    `json:"error"`
}

// Run lists dead letters.
func (c *webhooksDeadCmd) Run(p *process) error {
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		if c.JSON || !p.tty.stdout {
			out := json.NewEncoder(p.stdout)
			return l.DeadLetters(ctx, c.Webhook, func(d *daemon.DeadLetter) error {
				return out.Encode(letterLine{
					d.ID, d.Hook, d.Event, d.Tenant, d.Session, d.Turn, d.Interaction, d.At, d.Died,
					d.Attempts, d.Error,
				})
			})
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tWEBHOOK\tEVENT\tSESSION\tTIME\tATTEMPTS\tERROR")
		err := l.DeadLetters(ctx, c.Webhook, func(d *daemon.DeadLetter) error {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", d.ID, cli.Clean(d.Hook), cli.Clean(d.Event),
				cli.Clean(d.Session), d.At.Format(time.RFC3339), d.Attempts, cli.Clean(d.Error))
			return nil
		})
		return errors.Join(err, w.Flush())
	})
}

// Validate refuses a command that names nothing, or two things.
func (c *webhooksRetryCmd) Validate() error {
	if (len(c.IDs) == 0) == (c.Webhook == "") {
		return errors.New("want ids, or --webhook for all of one")
	}
	return nil
}

// Run has dead letters be sent again.
func (c *webhooksRetryCmd) Run(p *process) error {
	return c.with(p, func(ctx context.Context, l *daemon.Ledger) error {
		if c.Webhook != "" {
			n, err := l.RetryLetters(ctx, c.Webhook)
			if err == nil {
				p.notef("%d are sent again", n)
			}
			return err
		}
		var errs []error
		for _, id := range c.IDs {
			is, err := l.RetryLetter(ctx, id)
			if err == nil && !is {
				err = fmt.Errorf("there is no dead letter of the id %q: agentd webhooks dead lists them", id)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
