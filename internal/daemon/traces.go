package daemon

import (
	"context"
	"log/slog"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/otlp"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

// openExporter starts to export spans and metrics, if the environment names a collector.
func (d *Daemon) openExporter() (err error) {
	endpoint := d.cfg.getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" {
		return nil
	}
	if d.exporter, err = otlp.New(otlp.Config{
		Endpoint: endpoint, Headers: d.cfg.getenv("OTEL_EXPORTER_OTLP_HEADERS"), Share: d.cfg.TraceShare,
		Service: "agentd", Version: d.cfg.Version, Metrics: d.metrics.Gatherer(), Client: d.cfg.Collector,
		Logger: d.log,
	}); err != nil {
		return err
	}
	d.spans = d.exporter.Spans(d.runner.Decode)
	d.log.Info("spans and metrics are exported", slog.String("otlp_endpoint", endpoint),
		slog.Float64("trace_share", d.cfg.TraceShare))
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
