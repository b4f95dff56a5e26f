package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	// lookEvery is how often a driver looks for what others have made.
	lookEvery = 2 * time.Second
	// atOnce is how many runs start at the same time.
	atOnce = 16
	// startTimeout bounds the start of a run, storeTimeout a use of the database.
	startTimeout, storeTimeout = 30 * time.Second, 30 * time.Second
	// busyWait is how long a run waits whose session is busy until it is tried again, failedWait one that cannot start
	// now.
	busyWait, failedWait = 5 * time.Second, 30 * time.Second
	// errorBytes bounds the text of an error that is kept.
	errorBytes = 500
)

// DriverConfig says what a Driver does. All of it is required; its functions may be called from any goroutine.
type DriverConfig struct {
	DB      DB
	Objects ledger.Objects
	// Mine reports whether this server is the one of those over the database that drives.
	Mine func() bool
	// Start starts a turn for the principal of the context and returns its id. A repeat with the same idempotency key
	// returns that of the first one. Its errors are *fault.Error.
	Start func(ctx context.Context, ex *agentdv1.RunRequest_ExecuteRequest) (turnID string, err error)
	// StartGoal does the same with a goal, and returns the id of its turn. A session that works on a goal is busy.
	StartGoal func(ctx context.Context, goal *agentdv1.StartGoalRequest) (turnID string, err error)
	// Logger receives what fails.
	Logger *slog.Logger
}

// Driver starts the runs of schedules. Its methods may be called from any goroutine.
type Driver struct {
	cfg    DriverConfig
	table  table
	look   time.Duration // lookEvery
	poke   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

// Drive starts a driver. Its goroutine, and those that start runs, end with Close.
func Drive(cfg DriverConfig) *Driver { return drive(cfg, lookEvery) }

func drive(cfg DriverConfig, look time.Duration) *Driver {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Driver{
		cfg: cfg, table: table{cfg.DB}, look: look, poke: make(chan struct{}, 1), cancel: cancel,
		done: make(chan struct{}),
	}
	go d.run(ctx)
	return d
}

// Poke says that something may be due. It does not block.
func (d *Driver) Poke() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// Close returns when nothing starts any more. A run whose start is under way is started by the next driver, if it was
// not.
func (d *Driver) Close() {
	d.cancel()
	<-d.done
}

func (d *Driver) run(ctx context.Context) {
	defer close(d.done)
	for ctx.Err() == nil {
		wait, err := d.look, error(nil)
		if d.cfg.Mine() {
			wait, err = d.round(ctx)
		}
		if err != nil && ctx.Err() == nil {
			wait = d.look
			d.cfg.Logger.Warn("schedules wait for the database", slog.String("error", err.Error()))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.poke:
		}
		timer.Stop()
	}
}

// round starts what is due, and returns how long nothing is.
func (d *Driver) round(ctx context.Context) (wait time.Duration, err error) {
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now := time.Now()
	all, err := d.table.soonest(reading, atOnce)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(all))
	wait = d.look
	var wg sync.WaitGroup
	for i := range all {
		if w := all[i].due.Sub(now); w > 0 {
			wait = min(wait, w)
			break // the others are later
		}
		wg.Go(func() { errs[i] = d.start(ctx, &all[i]) })
		wait = 0 // what has become of it says when it is due again
	}
	wg.Wait()
	return wait, errors.Join(errs...)
}

// start starts the run of a schedule that is due, and notes what has become of it.
func (d *Driver) start(ctx context.Context, r *row) error {
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w, err := startedBy(reading, d.cfg.Objects, r)
	if errors.Is(err, ledger.ErrNoObject) { // it was erased
		if err = d.table.remove(reading, r.tenant, r.id); errors.Is(err, errNone) {
			err = nil
		}
		return err
	} else if err != nil {
		return err
	}
	ex, _ := w.execute()
	ex.SessionId, ex.Create, ex.IdempotencyKey = &r.session, true, keyOf(r)
	if r.runs > 0 {
		ex.InitialState, ex.InitialStateJson, ex.SeedMessages, ex.Labels = nil, "", nil, nil
	}
	p := principal.Principal{ID: r.maker, Tenant: r.tenant, Role: principal.Caller}
	starting, cancel := context.WithTimeout(principal.With(ctx, p), startTimeout)
	defer cancel()
	var turn string
	var failed error
	if w.goal != nil {
		turn, failed = d.cfg.StartGoal(starting, w.goal)
	} else {
		turn, failed = d.cfg.Start(starting, ex)
	}
	if ctx.Err() != nil {
		return nil // the next driver starts it under the same key
	}
	after, err := outcome(r, turn, failed, time.Now().UTC().Truncate(timesKept))
	if err != nil {
		return err
	}
	if after.err != "" && after.err != r.err {
		d.cfg.Logger.Warn("the run of a schedule does not start", slog.String("tenant", r.tenant),
			slog.String("schedule", r.id), slog.String("error", after.err))
	}
	writing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return d.table.set(writing, r, &after)
}

// outcome is a schedule after the start of a run.
func outcome(r *row, turn string, failed error, now time.Time) (row, error) {
	after := *r
	after.err = ""
	if failed != nil {
		e := fault.As(failed)
		text := strings.ToValidUTF8(e.Message, "")
		after.err = text[:min(len(text), errorBytes)]
		switch {
		case e.Code == fault.Busy:
			after.due = now.Add(busyWait)
			return after, nil
		case e.Retryable() || e.Code == fault.Internal || e.Code == fault.Unavailable:
			after.due = now.Add(max(failedWait, e.RetryAfter))
			return after, nil
		}
	}
	all, err := r.timing.times(r.created)
	if err != nil {
		return after, fmt.Errorf("schedule %q: %w", r.id, err)
	}
	after.last, after.turn, after.runs = r.next, turn, r.runs+1
	behind := r.next
	if now.After(behind) {
		behind = now
	}
	after.next = all.next(behind)
	after.due = after.next
	return after, nil
}

// keyOf is the idempotency key of the next run of a schedule.
func keyOf(r *row) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", r.tenant, r.id, micros(r.created), micros(r.next)))
	return "schedule-" + hex.EncodeToString(sum[:16])
}
