package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/telemetry"
	"github.com/apzuk3/agentd/internal/webhook"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// readHooks reads the file of webhooks, if there is one.
func readHooks(cfg *Config) ([]webhook.Hook, error) {
	if cfg.Webhooks == "" {
		return nil, nil
	}
	content, err := readFile(cfg.Webhooks, webhook.MaxBytes)
	if err == nil {
		var hooks []webhook.Hook
		hooks, err = webhook.Parse(cfg.Webhooks, content, webhook.Around{
			Getenv: cfg.getenv, ReadKey: configfile.ReadKey,
		})
		if err == nil {
			return hooks, nil
		}
	}
	return nil, fmt.Errorf("daemon: webhooks: %w", err)
}

// hooks are the webhooks as the files say now.
func (d *Daemon) hooks() []webhook.Hook { return d.live.Load().hooks }

// notifying returns the store with what webhooks are told written with each fact.
func (d *Daemon) notifying(s store.Store) store.Store {
	if d.ledger == nil {
		return s
	}
	return webhook.NewStore(s, webhook.StoreConfig{
		Hooks: d.hooks, SessionBudget: func() record.Budget { return d.live.Load().turns.SessionBudget },
		Written: func() {
			if sender := d.sender.Load(); sender != nil {
				sender.Poke()
			}
		},
	})
}

// checkHooks refuses webhooks where there is no place for what they are told.
func (d *Daemon) checkHooks() error {
	if d.ledger == nil && d.cfg.Webhooks != "" {
		return errors.New("daemon: Webhooks needs a store with Transact and View, as that of a DataDir has")
	}
	return nil
}

// startSender sends what webhooks are to be told.
func (d *Daemon) startSender() {
	db := d.Database()
	if d.ledger == nil || db == nil {
		return
	}
	d.sender.Store(webhook.Start(webhook.Config{
		DB: db, Reader: d.kept, Holder: rand.Text(), Alone: d.replica == nil, Hooks: d.hooks,
		Budgets: func() webhook.Budgets {
			l := d.live.Load().turns
			return webhook.Budgets{Day: l.TenantDay, Month: l.TenantMonth}
		},
		Tried: d.metrics.WebhookTried, Agent: "agentd/" + d.cfg.Version, Logger: d.log,
	}))
}

// stopSender ends what startSender has started.
func (d *Daemon) stopSender() {
	if sender := d.sender.Load(); sender != nil {
		sender.Close()
	}
}

// hookCounts is what the metrics say of webhooks.
func (d *Daemon) hookCounts(ctx context.Context) map[string]telemetry.Webhook {
	hooks := d.hooks()
	if len(hooks) == 0 || d.ledger == nil {
		return nil
	}
	all, err := webhook.LettersIn(d.Database()).Standings(ctx)
	if err != nil {
		return nil
	}
	out := make(map[string]telemetry.Webhook, len(hooks))
	for i := range hooks {
		s := all[hooks[i].Name]
		now := telemetry.Webhook{Waiting: s.Waiting, Dead: s.Dead}
		if !s.Oldest.IsZero() {
			now.Oldest = max(time.Since(s.Oldest), 0)
		}
		out[hooks[i].Name] = now
	}
	return out
}

// Webhook is how the notices of a webhook are.
type Webhook = webhook.Standing

// DeadLetter is what a webhook was not told.
type DeadLetter = webhook.Letter

// Webhooks are those that have notices, by their names.
func (l *Ledger) Webhooks(ctx context.Context) (map[string]Webhook, error) {
	return webhook.LettersIn(l.store).Standings(ctx)
}

// DeadLetters calls yield with the dead letters of a webhook, or of all if that is "", the newest first.
func (l *Ledger) DeadLetters(ctx context.Context, hook string, yield func(*DeadLetter) error) error {
	const page = 200
	var last *DeadLetter
	for {
		all, err := webhook.LettersIn(l.store).Dead(ctx, hook, last, page)
		if err != nil {
			return err
		}
		for i := range all {
			if err := yield(&all[i]); err != nil {
				return err
			}
		}
		if len(all) < page {
			return nil
		}
		last = &all[len(all)-1]
	}
}

// RetryLetter has a dead letter be sent again, and reports whether there is one of the id. A daemon that runs sends it
// within seconds.
func (l *Ledger) RetryLetter(ctx context.Context, id string) (bool, error) {
	is, err := webhook.LettersIn(l.store).Retry(ctx, id)
	if err == nil && is {
		err = l.noteWebhooks(ctx, id, 1)
	}
	return is, err
}

// RetryLetters has all dead letters of a webhook be sent again, and returns how many.
func (l *Ledger) RetryLetters(ctx context.Context, hook string) (int64, error) {
	n, err := webhook.LettersIn(l.store).RetryAll(ctx, hook)
	if err == nil && n > 0 {
		err = l.noteWebhooks(ctx, hook, n)
	}
	return n, err
}

// noteWebhooks adds a retry to the audit trail.
func (l *Ledger) noteWebhooks(ctx context.Context, subject string, n int64) error {
	return l.ledger.AddEntries(ctx, []ledger.Entry{{
		Time: time.Now(), Principal: osUser(), Role: principal.Operator, From: "local",
		Action: "webhooks.retry", Subject: subject + " (" + strconv.FormatInt(n, 10) + ")", Outcome: "ok",
	}})
}

// NewWebhookSecret returns a secret for a webhook.
func NewWebhookSecret() string { return webhook.NewSecret() }
