package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/webhook"
	"github.com/apzuk3/agentd/session/principal"
)

// Erasure is what a server has of a tenant or a user and is to erase.
type Erasure = ledger.Erasure

const (
	// erasureEvery is how often a daemon looks for what it is to erase, erasurePoll how often who waits for it does.
	erasureEvery = 5 * time.Second
	erasurePoll  = 200 * time.Millisecond
	// erasedEntries is how many entries of the audit trail one transaction removes.
	erasedEntries = 1000
)

// erasing does what the ledger says is to be erased, until ctx ends. What a process does not finish, the next one does.
func (d *Daemon) erasing(ctx context.Context) {
	tick := time.NewTicker(erasureEvery)
	defer tick.Stop()
	for {
		var open []ledger.Erasure
		var err error
		if d.isFirst() {
			open, err = d.ledger.OpenErasures(ctx, 1)
		}
		if err == nil && len(open) > 0 {
			err = d.erase(ctx, &open[0])
		}
		if err != nil && ctx.Err() == nil {
			d.log.Error("an erasure has failed; it is tried again", slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// erase does one erasure.
func (d *Daemon) erase(ctx context.Context, e *Erasure) error {
	sessions, shared, err := d.manager.Erase(ctx, e.Tenant, e.User, d.eraseAt)
	if err != nil {
		return fmt.Errorf("erasure %d: %w", e.ID, err)
	}
	keys, err := d.ledger.RemoveKeysOf(ctx, e.Tenant, e.User)
	if err != nil {
		return fmt.Errorf("erasure %d: %w", e.ID, err)
	}
	kept, objects, err := d.eraseKept(ctx, e)
	if err != nil {
		return fmt.Errorf("erasure %d: %w", e.ID, err)
	}
	if db := d.Database(); db != nil && e.User == "" {
		if err := webhook.LettersIn(db).RemoveOf(ctx, e.Tenant); err != nil {
			return fmt.Errorf("erasure %d: %w", e.ID, err)
		}
	}
	entries := 0
	for more := e.Trail; more; {
		n, err := d.ledger.RemoveEntriesOf(ctx, e.Tenant, e.User, erasedEntries)
		if err != nil {
			return fmt.Errorf("erasure %d: %w", e.ID, err)
		}
		entries += n
		more = n == erasedEntries
	}
	result := fmt.Sprintf("erased %d sessions, %d shared keys, %d API keys, %d agents, %d objects, "+
		"%d entries of the audit trail", sessions, shared, keys, kept, objects, entries)
	d.log.Info("erasure is over", slog.Int64("erasure", e.ID), slog.String("result", result))
	return d.ledger.EndErasure(ctx, e.ID, time.Now(), result)
}

// eraseAt has the replica at an address remove a session that it owns.
func (d *Daemon) eraseAt(ctx context.Context, address, id string) error {
	p := principal.Of(ctx)
	p.ID = osUser() // an erasure of a whole tenant is of no user
	err := d.server.DeleteAt(principal.With(ctx, p), address, id)
	if err != nil {
		return fmt.Errorf("session %q, which the replica at %s owns: %w", id, address, err)
	}
	return nil
}

// Erase erases what a database has of a tenant, or of a user if e.User is not "", and returns what that was. A daemon
// that runs does it; else this process does. ctx bounds the wait; the erasure goes on.
func Erase(ctx context.Context, cfg Config, e Erasure) (result string, err error) {
	l, err := openLedger(ctx, &cfg)
	if err != nil {
		return "", err
	}
	e.Asked = time.Now()
	e.ID, err = l.ledger.AddErasure(ctx, e)
	if err == nil {
		err = l.ledger.AddEntries(ctx, []ledger.Entry{{
			Time: e.Asked, Tenant: e.Tenant, Principal: osUser(), Role: principal.Operator, From: "local",
			Action: "erase", Subject: fmt.Sprint(e.ID), Outcome: "ok",
		}})
	}
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	if l.alone {
		if err := l.Close(); err != nil {
			return "", err
		}
		return eraseAlone(ctx, cfg, e.ID)
	}
	result, err = l.awaitErasure(ctx, e.ID)
	return result, errors.Join(err, l.Close())
}

// awaitErasure waits until a daemon has done an erasure.
func (l *Ledger) awaitErasure(ctx context.Context, id int64) (string, error) {
	tick := time.NewTicker(erasurePoll)
	defer tick.Stop()
	for {
		e, err := l.ledger.Erasure(ctx, id)
		if err != nil || !e.Ended.IsZero() {
			return e.Result, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("erasure %d is not over; the server continues: %w", id, context.Cause(ctx))
		}
	}
}

// eraseAlone does the erasures of a database that no daemon has open. It runs no turn.
func eraseAlone(ctx context.Context, cfg Config, id int64) (result string, err error) {
	cfg.HandlerOnly = true
	d, err := New(cfg)
	if err != nil {
		return "", err
	}
	defer func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, d.Shutdown(now))
	}()
	for {
		open, err := d.ledger.OpenErasures(ctx, 1)
		if err != nil {
			return "", err
		}
		if len(open) == 0 {
			break
		}
		if err := d.erase(ctx, &open[0]); err != nil {
			return "", err
		}
	}
	e, err := d.ledger.Erasure(ctx, id)
	return e.Result, err
}

// Erasable returns how many sessions an erasure removes.
func Erasable(ctx context.Context, cfg Config, e Erasure) (sessions int, err error) {
	p := principal.Principal{ID: e.User, Tenant: e.Tenant}
	err = eachSession(ctx, cfg, p, func(context.Context, *source, *sessionInfo) error {
		sessions++
		return nil
	})
	return sessions, err
}
