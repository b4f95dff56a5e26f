package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"github.com/apzuk3/agentd/internal/bus"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// maxModels and maxLimits are how many models and limits have metrics of their own.
	maxModels, maxLimits = 100, 200
	// scrapes is how many requests for metrics are served at once, scrapeTimeout how long one may take.
	scrapes, scrapeTimeout = 4, 10 * time.Second
)

// Config says what the metrics are of. All of it is set but Bus, Replicas and Webhooks.
type Config struct {
	// Version is what the daemon calls itself.
	Version string
	// Counts returns what there is now. Several goroutines may call it at once.
	Counts func(context.Context) Counts
	// Breakers calls f with each circuit of the models that is not closed.
	Breakers func(f func(modelcall.Circuit, modelcall.State))
	// Bus returns the state of what carries hints between replicas; is is false where there is none, as with nil.
	Bus func() (state bus.State, is bool)
	// Replicas returns what this daemon sees of all that share its database; is is false for one that is alone, as with
	// nil. Several goroutines may call it at once.
	Replicas func(context.Context) (now Replicas, is bool)
	// Webhooks returns how the webhooks are, by their names; nil for none. Several goroutines may call it at once.
	Webhooks func(context.Context) map[string]Webhook
	// Logger receives what goes wrong with a scrape.
	Logger *slog.Logger
}

// Metrics are the metrics of one daemon. Its methods may be called from any goroutine.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry
	models   *names
	limits   *names

	tries, tools, appends, calls                                   *prometheus.HistogramVec
	tokens, cost, unpriced, retries, ended, hit, refused, requests *prometheus.CounterVec
	open                                                           *prometheus.GaugeVec
	hooks                                                          *prometheus.CounterVec

	// The GenAI conventions' own; zero without MeasureCalls.
	duration genaiconv.ClientOperationDuration
	usage    genaiconv.ClientTokenUsage
}

// Buckets in seconds: of what a machine does, and of what waits for models, clients and people.
var (
	quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	slow  = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 3600}
)

// callSeconds and callTokens are the buckets that the GenAI conventions (1.41) give their histograms.
var (
	callSeconds = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	callTokens  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)

// New returns metrics in which nothing was counted.
func New(cfg Config) *Metrics {
	m := &Metrics{cfg: cfg, registry: prometheus.NewRegistry()}
	m.models, m.limits = newNames(maxModels), newNames(maxLimits)
	m.tries = m.histogram("agentd_model_call_duration_seconds", slow,
		"Time of each try of a model call, by its outcome.", "model", "outcome")
	m.tokens = m.counter("agentd_model_tokens_total",
		"Tokens of model calls. cached is a part of prompt, thoughts is a part of output.", "model", "kind")
	m.cost = m.counter("agentd_model_cost_dollars_total", "Estimated cost of model calls in US dollars.", "model")
	m.unpriced = m.counter("agentd_model_unpriced_calls_total",
		"Tries of model calls that reported tokens and whose price is not known.", "model")
	m.retries = m.counter("agentd_model_retries_total", "Tries of model calls after the first one.", "model")
	m.ended = m.counter("agentd_turns_ended_total", "Turns that have ended, by how.", "status")
	m.tools = m.histogram("agentd_tool_call_duration_seconds", slow,
		"Time from the request of a tool call to its result, by how it was settled.", "outcome")
	m.appends = m.histogram("agentd_store_append_duration_seconds", quick,
		"Time of each append to the store, by its outcome.", "outcome")
	m.hit = m.counter("agentd_limits_hit_total", "Refusals because of a limit, by the limit.", "limit")
	m.refused = m.counter("agentd_auth_refusals_total", "Requests whose caller was refused, by the reason.", "reason")
	m.calls = m.histogram("agentd_request_duration_seconds", slow,
		"Time of each call of a method, of streams too.", "method")
	m.requests = m.counter("agentd_requests_total", "Calls of methods that have ended.", "method", "code")
	m.hooks = m.counter("agentd_webhook_requests_total",
		"Requests to webhooks by outcome; dead is a notice that is given up.", "hook", "outcome")
	m.open = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentd_requests_open", Help: "Calls of methods that are under way, streams among them.",
	}, []string{"method"})
	m.registry.MustRegister(m.open, &counting{m}, buildInfo(cfg.Version), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name string, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

// buildInfo is 1, with the version and the commit of the program as labels.
func buildInfo(version string) prometheus.Collector {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "agentd_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	}, func() float64 { return 1 })
}

// Gatherer returns the metrics, for those who export them elsewhere.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// MeasureCalls has model calls measured with instruments of a meter too, as the GenAI semantic conventions of
// OpenTelemetry have it. It is called before any other method.
func (m *Metrics) MeasureCalls(meter metric.Meter) (err error) {
	if m.duration, err = genaiconv.NewClientOperationDuration(meter,
		metric.WithExplicitBucketBoundaries(callSeconds...)); err != nil {
		return err
	}
	m.usage, err = genaiconv.NewClientTokenUsage(meter, metric.WithExplicitBucketBoundaries(callTokens...))
	return err
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: logger{m.cfg.Logger}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapes, Timeout: scrapeTimeout,
	})
}

// logger logs what promhttp complains of.
type logger struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l logger) Println(v ...any) { l.log.Warn("metrics", slog.String("error", fmt.Sprint(v...))) }

// ToolAnswered counts a tool call that was settled.
func (m *Metrics) ToolAnswered(outcome record.Outcome, took time.Duration) {
	m.tools.WithLabelValues(string(outcome)).Observe(took.Seconds())
}

// Refused counts a request whose caller was refused.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// LimitHit counts a refusal because of a limit.
func (m *Metrics) LimitHit(name string) { m.hit.WithLabelValues(m.limits.label(name)).Inc() }

// WebhookTried counts a request to a webhook. Hooks are few: an operator names them.
func (m *Metrics) WebhookTried(hook, outcome string) { m.hooks.WithLabelValues(hook, outcome).Inc() }

// Call counts a call of a method that begins. The result is called when it ends.
func (m *Metrics) Call(ctx context.Context, method string) (_ context.Context, ended func(code string)) {
	began := time.Now()
	m.open.WithLabelValues(method).Inc()
	return ctx, func(code string) {
		m.open.WithLabelValues(method).Dec()
		m.calls.WithLabelValues(method).Observe(time.Since(began).Seconds())
		m.requests.WithLabelValues(method, code).Inc()
	}
}
