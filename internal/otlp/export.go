package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	prombridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"
)

const (
	// scope is what the spans and the metrics are said to be from.
	scope = "github.com/apzuk3/agentd"
	// lastExport bounds the export of what is left when the daemon stops.
	lastExport = time.Second
)

// Config says where to export to.
type Config struct {
	// Endpoint is the address of the collector, such as http://127.0.0.1:4318; required. Spans go to v1/traces below
	// it, metrics to v1/metrics. The other variables OTEL_EXPORTER_OTLP_… of the process say the rest.
	Endpoint string
	// Headers are sent with each request: name=value, separated by commas, with values as in URLs.
	Headers string
	// Share is the share of traces that are sampled, from 0 to 1, of those that begin here. What a caller says of its
	// trace counts.
	Share float64
	// Service and Version are what the daemon calls itself.
	Service, Version string
	// Metrics are exported too.
	Metrics prometheus.Gatherer
	// Every is how often metrics are exported. Default a minute.
	Every time.Duration
	// Client makes the requests. Default: one of the exporter's own.
	Client *http.Client
	// Logger receives when an export fails for the first time, and when one succeeds again.
	Logger *slog.Logger
}

// Check returns what is wrong with the address of a collector, the headers, or the share of traces. The error has
// neither the address nor a value of a header, which may be secrets.
func (c *Config) Check() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("otlp: endpoint: want http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("otlp: the endpoint may have neither a user nor a query: the headers have credentials")
	case !(c.Share >= 0 && c.Share <= 1):
		return fmt.Errorf("otlp: the share of traces is %v, must be from 0 to 1", c.Share)
	}
	_, err = parseHeaders(c.Headers)
	return err
}

// parseHeaders reads the form of OTEL_EXPORTER_OTLP_HEADERS. Its errors do not have the values.
func parseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("otlp: header %d: want NAME=VALUE, with values as in URLs", len(headers)+1)
		}
		headers[name] = value
	}
	return headers, nil
}

// Exporter exports spans and metrics. Its methods may be called from any goroutine, until Close.
type Exporter struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// New returns an exporter, whose goroutines end with Close. It makes no request yet.
func New(cfg Config) (*Exporter, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	// What goes wrong before the daemon serves is here; a collector that is away is no error.
	ctx := context.Background()
	at, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	spanOptions := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(at.JoinPath("v1", "traces").String())}
	metricOptions := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpointURL(at.JoinPath("v1", "metrics").String())}
	headers, err := parseHeaders(cfg.Headers)
	if err != nil {
		return nil, err
	}
	if len(headers) > 0 {
		spanOptions = append(spanOptions, otlptracehttp.WithHeaders(headers))
		metricOptions = append(metricOptions, otlpmetrichttp.WithHeaders(headers))
	}
	if cfg.Client != nil {
		spanOptions = append(spanOptions, otlptracehttp.WithHTTPClient(cfg.Client))
		metricOptions = append(metricOptions, otlpmetrichttp.WithHTTPClient(cfg.Client))
	}
	spans, err := otlptracehttp.New(ctx, spanOptions...)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	metrics, err := otlpmetrichttp.New(ctx, metricOptions...)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName(cfg.Service), semconv.ServiceVersion(cfg.Version)),
		resource.WithFromEnv()) // which wins
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	var periods []sdkmetric.PeriodicReaderOption
	if cfg.Every > 0 {
		periods = append(periods, sdkmetric.WithInterval(cfg.Every))
	}
	if cfg.Metrics != nil {
		periods = append(periods,
			sdkmetric.WithProducer(prombridge.NewMetricProducer(prombridge.WithGatherer(cfg.Metrics))))
	}
	away := &outage{log: cfg.Logger}
	reader := sdkmetric.NewPeriodicReader(&reportingMetrics{metrics, away}, periods...)
	return &Exporter{
		traces: sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(&reportingSpans{spans, away}),
			sdktrace.WithResource(from),
			sdktrace.WithIDGenerator(ids{}),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Share))),
		),
		metrics: sdkmetric.NewMeterProvider(
			sdkmetric.WithReader(reader), sdkmetric.WithResource(from),
		),
	}, nil
}

// Meter makes instruments whose values are exported.
func (e *Exporter) Meter() metric.Meter {
	return e.metrics.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
}

func (e *Exporter) tracer() trace.Tracer {
	return e.traces.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}

// Close exports what is left, within a second, and ends the exporter. It may be called again, and of nil.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	// What could not be exported is reported already.
	_ = e.traces.Shutdown(ctx)
	_ = e.metrics.Shutdown(ctx)
}

// OwnProcess has what OpenTelemetry's SDK reports go to a logger, for all of the process, in place of lines of its own
// on standard error. A program that is more than a daemon decides that itself.
func OwnProcess(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !errors.Is(err, context.Canceled) { // an export that the daemon's stop has cut off
			log.Warn("OpenTelemetry reports an error", slog.String("error", err.Error()))
		}
	}))
}

// outage logs the first failure of a row, and its end.
type outage struct {
	log    *slog.Logger
	failed atomic.Bool
}

func (o *outage) note(err error) {
	switch {
	case err != nil && !o.failed.Swap(true):
		o.log.Warn("the collector takes no spans and metrics: they are dropped until it does",
			slog.String("error", err.Error()))
	case err == nil && o.failed.Swap(false):
		o.log.Info("the collector takes spans and metrics again")
	}
}

// reportingSpans has an outage reported here rather than by the SDK, which has one place for all of a process.
type reportingSpans struct {
	sdktrace.SpanExporter
	outage *outage
}

// ExportSpans implements sdktrace.SpanExporter.
func (r *reportingSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.outage.note(r.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// reportingMetrics is reportingSpans of metrics.
type reportingMetrics struct {
	sdkmetric.Exporter
	outage *outage
}

// Export implements sdkmetric.Exporter.
func (r *reportingMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	r.outage.note(r.Exporter.Export(ctx, m))
	return nil
}

// attributes leaves out those without a value.
func attributes(all ...attribute.KeyValue) []attribute.KeyValue {
	out := all[:0]
	for _, a := range all {
		if a.Value.Type() == attribute.STRING && a.Value.AsString() == "" {
			continue
		}
		out = append(out, a)
	}
	return out
}
