// Package traces follows a turn by its spans, from its caller to its tools. It is a part of agentd, not an API.
package traces

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

// ours are the spans of this process as a user's program has them: those of the Go client among them.
var ours = tracetest.NewInMemoryExporter()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(ours)))
	goleak.VerifyTestMain(m)
}

// span is a span, of whichever side.
type span struct {
	trace, id, above string
	name, scope      string
	began, ended     uint64
	attributes       map[string]string
	events           []string
	failed           bool
}

// collector receives what a daemon exports, over HTTP.
type collector struct {
	*httptest.Server

	mu       sync.Mutex // protects the fields below
	spans    []span
	metrics  map[string]bool
	raw      bytes.Buffer
	headers  []http.Header
	refusals int // of the next requests
}

func newCollector(t *testing.T) *collector {
	c := &collector{metrics: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var req collectortrace.ExportTraceServiceRequest
		if c.read(w, r, &req) {
			c.addSpans(&req)
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var req collectormetrics.ExportMetricsServiceRequest
		if c.read(w, r, &req) {
			c.addMetrics(&req)
		}
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) read(w http.ResponseWriter, r *http.Request, into proto.Message) bool {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals > 0 {
		c.refusals--
		http.Error(w, "no room", http.StatusBadRequest)
		return false
	}
	if err != nil || proto.Unmarshal(body, into) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return false
	}
	c.raw.Write(body)
	c.headers = append(c.headers, r.Header)
	return true
}

func (c *collector) addSpans(req *collectortrace.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				o := span{
					trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
					above: hex.EncodeToString(s.GetParentSpanId()), name: s.GetName(), scope: ss.GetScope().GetName(),
					began: s.GetStartTimeUnixNano(), ended: s.GetEndTimeUnixNano(), attributes: map[string]string{},
					failed: s.GetStatus().GetCode() == 2,
				}
				for _, a := range s.GetAttributes() {
					o.attributes[a.GetKey()] = fmt.Sprint(a.GetValue())
					if text := a.GetValue().GetStringValue(); text != "" {
						o.attributes[a.GetKey()] = text
					}
				}
				for _, e := range s.GetEvents() {
					o.events = append(o.events, e.GetName())
				}
				c.spans = append(c.spans, o)
			}
		}
	}
}

func (c *collector) addMetrics(req *collectormetrics.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rm := range req.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				c.metrics[m.GetName()] = true
			}
		}
	}
}

// all returns the spans that were received, and those of this process.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	for _, s := range ours.GetSpans() {
		all = append(all, span{
			trace: s.SpanContext.TraceID().String(), id: s.SpanContext.SpanID().String(), above: s.Parent.SpanID().String(),
			name: s.Name, scope: s.InstrumentationScope.Name,
		})
	}
	return all
}
