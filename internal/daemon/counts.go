package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/telemetry"
)

// countsKept is how long counts are reported before there is a new count: a daemon reads all of its suspended turns
// for one.
const countsKept = 2 * time.Second

// counting lets one goroutine at a time count, while the store is open.
type counting struct {
	mu      sync.Mutex // held while it is counted; protects the fields below
	stopped bool       // the store closes
	at      time.Time
	last    telemetry.Counts
}

// stop has nobody count any more.
func (c *counting) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// counts are the counts of the metrics.
func (d *Daemon) counts(ctx context.Context) telemetry.Counts {
	c := &d.counting
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return telemetry.Counts{}
	case !c.at.IsZero() && time.Since(c.at) < countsKept:
		return c.last
	}
	n, err := d.manager.Stats(ctx)
	if err != nil {
		d.log.Warn("suspended turns cannot be counted", slog.String("error", err.Error()))
	}
	c.at, c.last = time.Now(), telemetry.Counts{
		Known: true, SuspendedKnown: err == nil,
		Sessions: n.Sessions, Running: n.Running, Waiting: n.Waiting, Queued: n.Queued, Suspended: n.Suspended,
		Behind: n.Behind, FurthestBehind: n.FurthestBehind, Lagging: n.Lagging, Lags: n.Lags,
		Streams: d.server.Streams(),
	}
	return c.last
}

// breakers calls f with each circuit that is not closed.
func (d *Daemon) breakers(f func(modelcall.Circuit, modelcall.State)) { d.live.Load().breaker.Each(f) }

// onTry receives each try of a model call; nil where nothing is measured.
func (d *Daemon) onTry() func(context.Context, modelcall.Tried) {
	if d.metrics == nil {
		return nil
	}
	return d.modelTried
}
