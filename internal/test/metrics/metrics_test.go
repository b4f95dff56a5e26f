package metrics

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/natsserver"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestMetrics: metrics tell what has happened.
func TestMetrics(t *testing.T) {
	b := start(t)
	b.traffic()
	type labels = map[string]string
	for _, want := range []struct {
		name   string
		labels labels
		value  float64
	}{
		{"agentd_turns_ended_total", labels{"status": "succeeded"}, 2},
		{"agentd_turns_ended_total", labels{"status": "failed"}, 1},
		{"agentd_turns_ended_total", labels{"status": "canceled"}, 1},
		{"agentd_turns", labels{"status": "running"}, 0},
		{"agentd_turns", labels{"status": "queued"}, 0},
		{"agentd_model_call_duration_seconds", labels{"model": "scripted/looks", "outcome": "ok"}, 4},
		{"agentd_model_call_duration_seconds", labels{"model": "scripted/fails", "outcome": "unavailable"}, 2},
		{"agentd_model_retries_total", labels{"model": "scripted/fails"}, 1},
		{"agentd_model_cost_dollars_total", labels{"model": "scripted/looks"}, 0},
		{"agentd_model_unpriced_calls_total", labels{"model": "acme/m"}, 1},
		{"agentd_model_tokens_total", labels{"model": "acme/m", "kind": "prompt"}, 7},
		{"agentd_model_tokens_total", labels{"model": "acme/m", "kind": "output"}, 2},
		{"agentd_model_breaker_state", labels{"model": "scripted/looks", "key": "server"}, 0},
		{"agentd_tool_call_duration_seconds", labels{"outcome": "answered"}, 1},
		{"agentd_limits_hit_total", labels{"limit": "prompt_bytes"}, 1},
		{"agentd_auth_refusals_total", labels{"reason": "key"}, 1},
		{"agentd_requests_total", labels{"method": "SessionService/CreateTurn", "code": "ok"}, 4},
		{"agentd_requests_total", labels{"method": "SessionService/CreateTurn", "code": "resource_exhausted"}, 1},
		{"agentd_requests_total", labels{"method": "SessionService/ListModels", "code": "unauthenticated"}, 1},
		{"agentd_requests_total", labels{"method": "Agentd/Run", "code": "ok"}, 1},
		{"agentd_request_duration_seconds", labels{"method": "Agentd/Run"}, 1},
		{"agentd_requests_open", labels{"method": "Agentd/Run"}, 0},
		{"agentd_streams_open", labels{}, 0},
		{"agentd_build_info", labels{"version": "v1.2.3", "commit": "unknown"}, 1},
	} {
		families := b.scrape()
		got, ok := value(families, want.name, want.labels)
		for deadline := time.Now().Add(10 * time.Second); got != want.value && time.Now().Before(deadline); { // a line ends after its reply
			time.Sleep(50 * time.Millisecond)
			families = b.scrape()
			got, ok = value(families, want.name, want.labels)
		}
		if !ok || got != want.value {
			t.Errorf("%s%v is %v, want %v: %v", want.name, want.labels, got, want.value, families[want.name])
		}
	}
	families := b.scrape()
	for _, kind := range []string{"prompt", "output"} {
		if got, _ := value(families, "agentd_model_tokens_total", labels{"model": "scripted/looks", "kind": kind}); got <= 0 {
			t.Errorf("%v tokens of %s", got, kind)
		}
	}
	if got, _ := value(families, "agentd_store_append_duration_seconds", labels{"outcome": "ok"}); got < 10 {
		t.Errorf("%v appends", got)
	}
}

// TestSuspendedTurns: a turn that waits for its client is counted as waiting, and once it is suspended as that.
func TestSuspendedTurns(t *testing.T) {
	b := start(t)
	b.turn("scripted/looks", "go")
	for range 1000 {
		if n, _ := value(b.scrape(), "agentd_turns", map[string]string{"status": "suspended"}); n == 1 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the turn is never counted as suspended")
}

// TestModelsAreBounded: names that callers make up get no metrics of their own.
func TestModelsAreBounded(t *testing.T) {
	b := start(t)
	for _, name := range []string{"no-such/model", "openai/made-up"} {
		if resp, err := b.sessions.CreateTurn(t.Context(), connectRequest(name)); err == nil {
			t.Errorf("%s: %v", name, resp)
		}
	}
	for name, f := range b.scrape() {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), "made-up") || strings.Contains(l.GetValue(), "no-such") {
					t.Errorf("%s has %s", name, l)
				}
			}
		}
	}
}

// TestPageOfMetrics: docs/operations.md has a row for each metric of agentd's own, with its labels.
func TestPageOfMetrics(t *testing.T) {
	b := start(t)
	b.traffic()
	b.untilTold()
	b.samePage(false)
}

// TestPageOfReplicas: so it has for what a replica serves besides.
func TestPageOfReplicas(t *testing.T) {
	b := startWith(t, func(cfg *daemon.Config) {
		cfg.StoreURL = daemon.Secret(pgserver.URL(t))
		cfg.Cluster = daemon.Cluster{
			Advertise: "http://127.0.0.1:1", // nobody calls it
			Secret:    "a secret of replicas, of a test alone",
			BusURL:    daemon.Secret(natsserver.Start(t, nil).URL()),
		}
	})
	b.traffic()
	b.untilTold()
	b.samePage(true)
}

// samePage compares the page with what is served.
func (b *busy) samePage(replica bool) {
	b.t.Helper()
	want := map[string]string{}
	for name, f := range b.scrape() {
		if strings.HasPrefix(name, "agentd_") {
			want[name] = strings.Join(labelsOf(f), ", ")
		}
	}
	page, err := os.Open("../../../docs/operations.md")
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = page.Close() }()
	got, ofReplicas := map[string]string{}, map[string]bool{}
	for lines := bufio.NewScanner(page); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) == 5 && strings.HasPrefix(cells[1], " `agentd_") {
			name := strings.Trim(cells[1], " `")
			got[name] = strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", "")
			ofReplicas[name] = strings.HasPrefix(cells[3], " Of replicas") || strings.HasPrefix(cells[3], " Of [replicas]")
		}
	}
	for name := range maps.Keys(want) {
		if row, ok := got[name]; !ok || row != want[name] {
			b.t.Errorf("docs/operations.md has %s with the labels %q (%v), want %q", name, row, ok, want[name])
		}
		if ofReplicas[name] && !replica {
			b.t.Errorf("docs/operations.md has %s as one of replicas, and a server alone has it", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && (replica || !ofReplicas[name]) {
			b.t.Errorf("docs/operations.md has %s, which is not served", name)
		}
	}
}

// labelsOf are the names of the labels of a family, in alphabetical order.
func labelsOf(f *dto.MetricFamily) (out []string) {
	for _, l := range f.GetMetric()[0].GetLabel() {
		out = append(out, l.GetName())
	}
	slices.Sort(out)
	return out
}

// TestQueriesNameWhatIsThere: the dashboard and the alerts use metrics that are served.
func TestQueriesNameWhatIsThere(t *testing.T) {
	b := start(t)
	b.traffic()
	there := allSeries(b.scrape())
	queries := append(dashboard(t), alerts(t)...)
	if len(queries) < 40 {
		t.Fatalf("%d queries", len(queries))
	}
	used := 0
	for _, q := range queries {
		for _, name := range metricsIn(q) {
			used++
			if !slices.Contains(there, name) {
				t.Errorf("%s is not served: %s", name, q)
			}
		}
	}
	if used < len(queries) {
		t.Errorf("%d names in %d queries", used, len(queries))
	}
}

// dashboard returns the queries of the dashboard.
func dashboard(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/grafana/agentd.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}

// exprs are the expressions of alerts: on the line, or below it and deeper.
var exprs = regexp.MustCompile(`(?m)^        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)`)

// alerts returns the expressions of the alerts.
func alerts(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range exprs.FindAllStringSubmatch(string(text), -1) {
		queries = append(queries, m[1]+m[2])
	}
	if n := strings.Count(string(text), "- alert:"); n != len(queries) {
		t.Fatalf("%d expressions of %d alerts", len(queries), n)
	}
	return queries
}

// Parts of a query that hold no name of a metric, and what is left: names, with what follows.
var (
	notMetrics = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)`)
	names      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// metricsIn returns the names of metrics in a query.
func metricsIn(query string) (out []string) {
	for notMetrics.MatchString(query) {
		query = notMetrics.ReplaceAllString(query, " ")
	}
	for _, name := range names.FindAllString(query, -1) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, "(") || slices.Contains([]string{"or", "and", "unless", "bool", "offset"}, name) {
			continue
		}
		out = append(out, name)
	}
	return out
}

// TestMetricsIn tests the reader of queries itself.
func TestMetricsIn(t *testing.T) {
	q := `sum by (le, model) (rate(a_total{x="y(z)",k=~"b|c"}[$__rate_interval])) * 3600 > 0.5 or histogram_quantile(0.9, b_bucket)`
	if got := metricsIn(q); !slices.Equal(got, []string{"a_total", "b_bucket"}) {
		t.Errorf("got %v", got)
	}
}
