package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
)

// scraped returns what is served of metrics.
func scraped(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	return string(text)
}

func newMetrics(breakers func(func(modelcall.Circuit, modelcall.State))) *Metrics {
	return New(Config{
		Version: "v", Counts: func(context.Context) Counts { return Counts{} }, Breakers: breakers,
		Logger: slog.New(slog.DiscardHandler),
	})
}

func noBreakers(func(modelcall.Circuit, modelcall.State)) {}

func tried(name, outcome string, known bool) modelcall.Tried {
	return modelcall.Tried{
		Circuit: modelcall.Circuit{Provider: "p", Model: name}, Try: 1, Outcome: outcome, Took: time.Second, Known: known,
		Usage: model.Usage{Prompt: 3, Completion: 2, Total: 5}, Nanos: 2_000_000_000, Priced: true,
	}
}

// TestLabelsOfModels: a name that callers made up is "other", and so is one beyond the bound.
func TestLabelsOfModels(t *testing.T) {
	m := newMetrics(noBreakers)
	m.ModelTried(t.Context(), tried("made-up", "unavailable", false))
	m.ModelTried(t.Context(), tried("known", "unavailable", true))
	for i := range 2 * maxModels {
		m.ModelTried(t.Context(), tried(fmt.Sprintf("m%d", i), modelcall.OutcomeOK, false))
	}
	text := scraped(m)
	if strings.Contains(text, "made-up") || !strings.Contains(text, `model="p/known"`) {
		t.Errorf("the wrong names:\n%s", text)
	}
	if n := strings.Count(text, "agentd_model_cost_dollars_total{"); n != maxModels+1 {
		t.Errorf("%d models, want %d and other", n, maxModels)
	}
	if want := fmt.Sprintf(`agentd_model_cost_dollars_total{model="other"} %d`, 2*(2*maxModels+2-maxModels)); !strings.Contains(text, want) {
		t.Errorf("want %s", want)
	}
	for i := range 2 * maxLimits {
		m.LimitHit(fmt.Sprintf("limit%d", i))
	}
	if n := strings.Count(scraped(m), "agentd_limits_hit_total{"); n != maxLimits+1 {
		t.Errorf("%d limits, want %d and other", n, maxLimits)
	}
}

// TestBreakerStates: the worst circuit of a model counts, callers' keys apart.
func TestBreakerStates(t *testing.T) {
	own := modelcall.Circuit{Provider: "p", Model: "a", Account: modelcall.AccountOf("secret")}
	other := own
	other.Account = modelcall.AccountOf("another")
	m := newMetrics(func(f func(modelcall.Circuit, modelcall.State)) {
		f(own, modelcall.Open)
		f(other, modelcall.HalfOpen)
		f(modelcall.Circuit{Provider: "p", Model: "b"}, modelcall.HalfOpen)
		f(modelcall.Circuit{Provider: "p", Model: "made-up"}, modelcall.Open)
	})
	m.ModelTried(t.Context(), tried("a", modelcall.OutcomeOK, false))
	m.ModelTried(t.Context(), tried("b", modelcall.OutcomeOK, false))
	text := scraped(m)
	for _, want := range []string{
		`agentd_model_breaker_state{key="server",model="p/a"} 0`, `agentd_model_breaker_state{key="caller",model="p/a"} 2`,
		`agentd_model_breaker_state{key="server",model="p/b"} 1`, `agentd_model_breaker_state{key="server",model="other"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "made-up") {
		t.Error("a name that a caller made up")
	}
}

// TestCountsUnknown: what cannot be counted is left out.
func TestCountsUnknown(t *testing.T) {
	if text := scraped(newMetrics(noBreakers)); strings.Contains(text, "agentd_turns{") {
		t.Errorf("turns of a daemon that cannot count them:\n%s", text)
	}
}

// TestReplicas: one that is alone tells nothing of replicas, and what cannot be counted is left out.
func TestReplicas(t *testing.T) {
	for what, tt := range map[string]struct {
		now    Replicas
		is     bool
		want   []string
		absent string
	}{
		"alone": {absent: "agentd_replicas"},
		"several": {
			Replicas{Alive: 2, Dead: 1, Takeovers: 5, DueKnown: true, Due: 7, OldestDue: 1500 * time.Millisecond}, true,
			[]string{
				`agentd_replicas{state="alive"} 2`, `agentd_replicas{state="dead"} 1`, `agentd_replicas{state="draining"} 0`,
				"agentd_takeovers_total 5", "agentd_due_sessions 7", "agentd_due_oldest_seconds 1.5",
			}, "agentd_bus",
		},
		"no database": {Replicas{Alive: 1}, true, []string{`agentd_replicas{state="alive"} 1`}, "agentd_due"},
	} {
		m := newMetrics(noBreakers)
		m.cfg.Replicas = func(context.Context) (Replicas, bool) { return tt.now, tt.is }
		text := scraped(m)
		for _, want := range tt.want {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("%s: no %s in\n%s", what, want, text)
			}
		}
		if strings.Contains(text, tt.absent) {
			t.Errorf("%s: %s in\n%s", what, tt.absent, text)
		}
	}
}

// BenchmarkHooks says what the hooks of a model call and of an RPC cost.
func BenchmarkHooks(b *testing.B) {
	m := newMetrics(noBreakers)
	b.Run("model", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.ModelTried(b.Context(), tried("m", modelcall.OutcomeOK, true))
		}
	})
	b.Run("call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, ended := m.Call(b.Context(), "Agentd/Run")
			ended("ok")
		}
	})
}
