package daemon

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/otlp"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

// Collector is an OpenTelemetry collector, which takes OTLP over HTTP.
type Collector struct {
	// Endpoint is its address, such as http://127.0.0.1:4318. Default: nothing is exported.
	Endpoint string
	// Headers are sent with each request: name=value, separated by commas, with values as in URLs. They may be secrets.
	Headers string
	// TraceShare is the share of traces that are exported, from 0 to 1, of those that begin here; of others who has
	// begun them decides.
	TraceShare float64
	// Client makes the requests. Default: one of the exporter's own.
	Client *http.Client
}

func (c *Collector) config() otlp.Config {
	return otlp.Config{Endpoint: c.Endpoint, Headers: c.Headers, Share: c.TraceShare, Client: c.Client}
}

func (c *Collector) check() error {
	if c.Endpoint == "" {
		return nil
	}
	cfg := c.config()
	return cfg.Check()
}

// OwnProcess says that the process is a daemon and nothing else: libraries that report to all of the process do so to
// a logger.
func OwnProcess(log *slog.Logger) { otlp.OwnProcess(log) }

// openExporter starts to export spans and metrics, if there is a collector.
func (d *Daemon) openExporter() (err error) {
	if d.cfg.Collector.Endpoint == "" {
		return nil
	}
	cfg := d.cfg.Collector.config()
	cfg.Service, cfg.Version, cfg.Metrics, cfg.Logger = "agentd", d.cfg.Version, d.metrics.Gatherer(), d.log
	if d.exporter, err = otlp.New(cfg); err != nil {
		return err
	}
	d.spans = d.exporter.Spans(d.runner.Decode)
	d.log.Info("spans and metrics are exported", slog.String("otlp_endpoint", cfg.Endpoint),
		slog.Float64("trace_share", cfg.Share))
	return d.metrics.MeasureCalls(d.exporter.Meter())
}

// traced returns the store of a daemon that exports spans.
func (d *Daemon) traced(s store.Store) store.Store {
	if d.spans == nil {
		return s
	}
	return d.spans.Store(s)
}

// tracedRunner is the engine of a daemon that may export spans.
func (d *Daemon) tracedRunner() session.Runner {
	if d.spans == nil {
		return d.runner
	}
	return d.spans.Runner(d.runner)
}

// observe follows a call of a method; see server.Config.Observe.
func (d *Daemon) observe(ctx context.Context, method string) (context.Context, func(code string)) {
	ctx, counted := d.metrics.Call(ctx, method)
	if d.spans == nil {
		return ctx, counted
	}
	ctx, ended := d.spans.Call(ctx, method)
	return ctx, func(code string) {
		counted(code)
		ended(code)
	}
}

// modelTried follows a try of a model call.
func (d *Daemon) modelTried(ctx context.Context, t modelcall.Tried) {
	d.metrics.ModelTried(ctx, t)
	if d.spans != nil {
		d.spans.ModelTried(ctx, t)
	}
}
