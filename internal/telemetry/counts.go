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
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*counting) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		turnsDesc, sessionsDesc, streamsDesc, behindDesc, furthestDesc, laggingDesc, lagsDesc, breakerDesc,
		busUpDesc, busHintsDesc,
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
