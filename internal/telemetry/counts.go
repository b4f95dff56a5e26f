package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apzuk3/agentd/internal/modelcall"
)

// Counts are what there is at a moment.
type Counts struct {
	// Known is false while nothing can be counted, SuspendedKnown while the store cannot be read.
	Known, SuspendedKnown bool
	// Sessions are in memory.
	Sessions int
	// Running, Waiting and Queued are turns in memory, Suspended those that nothing drives.
	Running, Waiting, Queued, Suspended int
	// Behind is how many messages wait for clients, FurthestBehind how many for one of them at most. Lagging
	// clients are sent the log in their place. Lags counts how often one began to lag.
	Behind, FurthestBehind, Lagging int
	Lags                            int64
	// Streams are the Run streams that are open.
	Streams int
}

// Replicas are the daemons that share a database, as one of them sees them.
type Replicas struct {
	// Alive, Draining and Dead count them.
	Alive, Draining, Dead int
	// Takeovers are the sessions that this one has taken over from dead ones.
	Takeovers int64
	// DueKnown is false while the database cannot be read. Due are the sessions that must go on and that nobody owns,
	// OldestDue is how long one of them has waited at most.
	DueKnown  bool
	Due       int64
	OldestDue time.Duration
}

// Webhook is how the notices of a webhook are.
type Webhook struct {
	// Waiting and Dead count them; Oldest is for how long one has waited at most.
	Waiting, Dead int64
	Oldest        time.Duration
}

// countsTimeout bounds the counting at a scrape.
const countsTimeout = 5 * time.Second

// counting is the collector of what is counted at each scrape.
type counting struct{ m *Metrics }

var (
	turnsDesc    = desc("agentd_turns", "Turns by status; suspended ones are open, and nothing drives them.", "status")
	sessionsDesc = desc("agentd_sessions_live", "Sessions in memory.")
	streamsDesc  = desc("agentd_streams_open", "Run streams that are open.")
	behindDesc   = desc("agentd_stream_behind_messages", "Messages that wait for clients, of all streams.")
	furthestDesc = desc("agentd_stream_behind_most_messages", "Messages that wait for the client furthest behind.")
	laggingDesc  = desc("agentd_streams_lagging", "Streams that are so far behind that they read the log.")
	lagsDesc     = desc("agentd_stream_lags_total", "How often a stream fell so far behind that it read the log.")
	breakerDesc  = desc("agentd_model_breaker_state",
		"What the breaker does with calls of a model: 0 closed, 1 half open, 2 open; the worst of all keys of callers.",
		"model", "key")
	busUpDesc    = desc("agentd_bus_connected", "1 while hints of other replicas arrive, else 0.")
	busHintsDesc = desc("agentd_bus_hints_total",
		"Hints between replicas: sent, received, or dropped here.", "what")
	replicasDesc  = desc("agentd_replicas", "Replicas as this one sees them, itself among them.", "state")
	takeoversDesc = desc("agentd_takeovers_total", "Sessions that this replica has taken over from dead ones.")
	dueDesc       = desc("agentd_due_sessions", "Sessions that must go on and that no replica owns.")
	oldestDueDesc = desc("agentd_due_oldest_seconds", "How long the oldest of them has waited.")
	hooksDesc     = desc("agentd_webhook_notices", "What webhooks are to be told, or was given up.", "hook", "state")
	hookAgeDesc   = desc("agentd_webhook_oldest_seconds", "How long the oldest notice of a webhook has waited.", "hook")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*counting) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		turnsDesc, sessionsDesc, streamsDesc, behindDesc, furthestDesc, laggingDesc, lagsDesc, breakerDesc,
		busUpDesc, busHintsDesc, replicasDesc, takeoversDesc, dueDesc, oldestDueDesc,
		hooksDesc, hookAgeDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *counting) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), countsTimeout)
	defer cancel()
	if n := c.m.cfg.Counts(ctx); n.Known {
		gauge(turnsDesc, n.Running, "running")
		gauge(turnsDesc, n.Waiting, "waiting")
		gauge(turnsDesc, n.Queued, "queued")
		if n.SuspendedKnown {
			gauge(turnsDesc, n.Suspended, "suspended")
		}
		gauge(sessionsDesc, n.Sessions)
		gauge(streamsDesc, n.Streams)
		gauge(behindDesc, n.Behind)
		gauge(furthestDesc, n.FurthestBehind)
		gauge(laggingDesc, n.Lagging)
		to <- prometheus.MustNewConstMetric(lagsDesc, prometheus.CounterValue, float64(n.Lags))
	}
	c.bus(to)
	c.replicas(ctx, to)
	c.webhooks(ctx, to)
	for key, state := range c.breakers() {
		gauge(breakerDesc, int(state), key.model, key.of)
	}
}

// bus collects what there is of the bus.
func (c *counting) bus(to chan<- prometheus.Metric) {
	if c.m.cfg.Bus == nil {
		return
	}
	state, is := c.m.cfg.Bus()
	if !is {
		return
	}
	up := 0.0
	if state.Connected {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(busUpDesc, prometheus.GaugeValue, up)
	for what, n := range map[string]int64{"sent": state.Sent, "received": state.Received, "dropped": state.Dropped} {
		to <- prometheus.MustNewConstMetric(busHintsDesc, prometheus.CounterValue, float64(n), what)
	}
}

// webhooks collects how the webhooks are.
func (c *counting) webhooks(ctx context.Context, to chan<- prometheus.Metric) {
	if c.m.cfg.Webhooks == nil {
		return
	}
	for hook, is := range c.m.cfg.Webhooks(ctx) {
		to <- prometheus.MustNewConstMetric(hooksDesc, prometheus.GaugeValue, float64(is.Waiting), hook, "waiting")
		to <- prometheus.MustNewConstMetric(hooksDesc, prometheus.GaugeValue, float64(is.Dead), hook, "dead")
		to <- prometheus.MustNewConstMetric(hookAgeDesc, prometheus.GaugeValue, is.Oldest.Seconds(), hook)
	}
}

// replicas collects what there is of the other replicas.
func (c *counting) replicas(ctx context.Context, to chan<- prometheus.Metric) {
	if c.m.cfg.Replicas == nil {
		return
	}
	now, is := c.m.cfg.Replicas(ctx)
	if !is {
		return
	}
	for state, n := range map[string]int{"alive": now.Alive, "draining": now.Draining, "dead": now.Dead} {
		to <- prometheus.MustNewConstMetric(replicasDesc, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(takeoversDesc, prometheus.CounterValue, float64(now.Takeovers))
	if now.DueKnown {
		to <- prometheus.MustNewConstMetric(dueDesc, prometheus.GaugeValue, float64(now.Due))
		to <- prometheus.MustNewConstMetric(oldestDueDesc, prometheus.GaugeValue, now.OldestDue.Seconds())
	}
}

// breakerKey is a model, and whose key its calls are made with.
type breakerKey struct{ model, of string }

// breakers returns the states of the breaker for each model that was called with the server's key, and for those
// of which it suspends calls with a caller's.
func (c *counting) breakers() map[breakerKey]modelcall.State {
	states := map[breakerKey]modelcall.State{}
	for _, name := range c.m.models.all() {
		states[breakerKey{name, "server"}] = modelcall.Closed
	}
	c.m.cfg.Breakers(func(circuit modelcall.Circuit, is modelcall.State) {
		key := breakerKey{c.m.models.known(circuit.Provider + "/" + circuit.Model), "server"}
		if circuit.Account != (modelcall.Account{}) {
			key.of = "caller"
		}
		states[key] = max(states[key], is)
	})
	return states
}
