package metrics

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	modelpkg "github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Models of a daemon whose metrics a test reads.
var scripts = map[string]string{
	"looks": "answers:\n  - {when: {step: 1}, text: let me see, calls: [{name: look, args: {}}]}\n  - {when: {}, text: done}",
	"fails": "answers: [{when: {}, error: {kind: unavailable, message: down}}]",
}

// says is a model whose price nobody knows.
func says(_ context.Context, _ *modelpkg.Request, emit func(modelpkg.Delta)) (*modelpkg.Response, error) {
	b := &adapter.Builder{Provider: "acme", Emit: emit}
	b.Text("I see.")
	return &modelpkg.Response{
		Content: b.Content(), FinishReason: genai.FinishReasonStop, Model: "m", Usage: modelpkg.Usage{Prompt: 7, Completion: 2, Total: 9},
	}, nil
}

// wrongKey has the form of an API key.
const wrongKey = "agentd_key_aaaaaaaaaaaa_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// busy is a daemon in which everything has happened that metrics tell of.
type busy struct {
	t        *testing.T
	d        *daemon.Daemon
	http     *http.Client
	sessions agentdv1connect.SessionServiceClient
}

// start starts a daemon that has done nothing yet.
func start(t *testing.T) *busy {
	t.Helper()
	return startWith(t, func(*daemon.Config) {})
}

// startWith is start with a configuration that set changes.
func startWith(t *testing.T, set func(*daemon.Config)) *busy {
	t.Helper()
	cfg := daemon.Config{
		Addr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Scripts: scripts, Version: "v1.2.3",
		ExtraProviders: []modelpkg.Provider{harness.Provider{Name: "acme", Model: func(string) harness.Generate { return says }}},
		ModelRetry:     modelcall.Retry{Tries: 2, Base: time.Millisecond},
		Turns:          limits.Limits{MaxPromptBytes: 1000, IdleTurn: 200 * time.Millisecond},
	}
	cfg.Webhooks = webhooks(t)
	set(&cfg)
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	b := &busy{t: t, d: d, http: &http.Client{Transport: tr}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sessions = agentdv1connect.NewSessionServiceClient(b.http, d.URL())
	return b
}

// webhooks is a file with a webhook that is told of the ends of turns.
func webhooks(t *testing.T) string {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "webhooks.yaml")
	text := fmt.Sprintf("webhooks: {ends: {url: %q, secret: whsec_%s, events: [turn.ended], allow: [127.0.0.1]}}",
		receiver.URL, base64.StdEncoding.EncodeToString(make([]byte, 24)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// untilTold waits until the webhook was told of something.
func (b *busy) untilTold() {
	b.t.Helper()
	for range 1000 {
		if n, _ := value(b.scrape(), "agentd_webhook_requests_total", map[string]string{"hook": "ends", "outcome": "ok"}); n > 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatal("the webhook is told of nothing")
}

// traffic has clients call the daemon: turns succeed, fail, are canceled, run, and are suspended; a limit is met,
// and a caller refused.
func (b *busy) traffic() {
	b.t.Helper()
	b.run()
	b.until(b.turn("acme/m", "go"), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	b.until(b.turn("scripted/fails", "go"), agentdv1.TurnStatus_TURN_STATUS_FAILED)
	canceled := b.turn("scripted/looks", "go")
	b.until(canceled, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	if _, err := b.sessions.CancelTurn(b.t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{
		SessionId: canceled.GetSessionId(), TurnId: canceled.GetId(),
	})); err != nil {
		b.t.Fatal(err)
	}
	b.until(b.turn("scripted/looks", "go"), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	_, err := b.sessions.CreateTurn(b.t.Context(), connect.NewRequest(request("echo", strings.Repeat("long ", 1000))))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		b.t.Fatalf("a prompt above the limit: %v", err)
	}
	refused := connect.NewRequest(&agentdv1.ListModelsRequest{})
	refused.Header().Set("Authorization", "Bearer "+wrongKey)
	if _, err = b.sessions.ListModels(b.t.Context(), refused); connect.CodeOf(err) != connect.CodeUnauthenticated {
		b.t.Fatalf("a wrong key: %v", err)
	}
}

// run has a client run a turn with a tool to its end.
func (b *busy) run() {
	b.t.Helper()
	c := client.New(b.d.URL())
	look := func(context.Context, struct{}) (string, error) { return "a hill", nil }
	if err := client.AddTool(c, "look", "looks", look); err != nil {
		b.t.Fatal(err)
	}
	for event, err := range c.Run(b.t.Context(), client.LLM("root", "scripted/looks", client.Tools("look")), "go") {
		if err != nil {
			b.t.Fatal(err)
		}
		_ = event
	}
}

func connectRequest(model string) *connect.Request[agentdv1.CreateTurnRequest] {
	return connect.NewRequest(request(model, "go"))
}

func request(model, prompt string) *agentdv1.CreateTurnRequest {
	schema := `{"type":"object"}`
	agent := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model, ToolNames: []string{"look"}}}}
	return &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
		Agent: agent, UserPrompt: prompt, Tools: []*agentdv1.Tool{{Name: "look", Description: "looks", InputSchema: &schema}},
	}}
}

// turn starts a turn that nobody attends.
func (b *busy) turn(model, prompt string) *agentdv1.Turn {
	b.t.Helper()
	resp, err := b.sessions.CreateTurn(b.t.Context(), connect.NewRequest(request(model, prompt)))
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Msg.GetTurn()
}

// until waits for a turn to have a status.
func (b *busy) until(turn *agentdv1.Turn, want agentdv1.TurnStatus) {
	b.t.Helper()
	for {
		resp, err := b.sessions.GetTurn(b.t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{
			SessionId: turn.GetSessionId(), TurnId: turn.GetId(),
		}))
		if err != nil {
			b.t.Fatal(err)
		}
		if resp.Msg.GetTurn().GetStatus() == want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// scrape returns the metrics by name.
func (b *busy) scrape() map[string]*dto.MetricFamily {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.d.AdminAddr().String()+"/metrics", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.NopCloser(resp.Body))
	if err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	return families
}

// value returns the value, or the count, of the one metric of a family that has all these labels.
func value(families map[string]*dto.MetricFamily, name string, labels map[string]string) (float64, bool) {
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		if !maps.Equal(has, labels) {
			continue
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
	}
	return 0, false
}

// series are the names that queries use for a family.
func series(name string, f *dto.MetricFamily) []string {
	if f.GetType() != dto.MetricType_HISTOGRAM {
		return []string{name}
	}
	return []string{name + "_bucket", name + "_count", name + "_sum"}
}

// allSeries are those of all families.
func allSeries(families map[string]*dto.MetricFamily) []string {
	out := []string{"up"} // Prometheus makes it
	for name, f := range families {
		out = append(out, series(name, f)...)
	}
	slices.Sort(out)
	return out
}
