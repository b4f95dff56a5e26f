// Package collector_test has the OpenTelemetry collector's own receiver take what the binary exports, which
// scripts/collector builds.
package collector_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

var binary = flag.String("agentd", "", "path of the agentd binary; scripts/collector sets it")

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

// free finds an address of 127.0.0.1 that is free.
func free(t *testing.T) string {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// received is what the receiver has taken.
type received struct {
	spans   consumertest.TracesSink
	metrics consumertest.MetricsSink
}

// receive starts the receiver at an address.
func receive(t *testing.T, addr string) *received {
	factory, r := otlpreceiver.NewFactory(), &received{}
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = addr
	settings := receivertest.NewNopSettings(factory.Type())
	traces, err := factory.CreateTraces(t.Context(), settings, cfg, &r.spans)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := factory.CreateMetrics(t.Context(), settings, cfg, &r.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []component.Component{traces, metrics} {
		if err := c.Start(context.Background(), componenttest.NewNopHost()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	}
	return r
}

// text is the output of a process.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *text) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *text) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process starts the binary, and ends it with the test.
func process(t *testing.T, env []string, args ...string) (*exec.Cmd, *text) {
	cmd, out := exec.Command(*binary, args...), &text{}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%v:\n%s", args, out)
		}
	})
	return cmd, out
}

// until waits until a file is there, or a text is in an output.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// TestCollector: a turn whose server is killed while a tool works is one trace of the caller's, in a real collector.
func TestCollector(t *testing.T) {
	if *binary == "" {
		t.Fatal("-agentd names no binary: run scripts/collector")
	}
	to, addr, dir := free(t), free(t), t.TempDir()
	got := receive(t, to)
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("scripts/asks.yaml", "answers:\n  - {when: {step: 1}, calls: [{name: find, args: {}}]}\n  - {when: {}, text: found it}\n")
	wait := filepath.Join(dir, "wait.sh")
	write("wait.sh", fmt.Sprintf("cat > /dev/null\necho \"$TRACEPARENT\" > %[1]s/asked\nuntil [ -e %[1]s/go ]; do sleep 0.05; done\necho there\n", dir))
	tree := write("tree.yaml", "agent: {name: root, llm: {model: scripted/asks, tool_names: [find]}}\n"+
		"tools: [{name: find, description: finds, input_schema: {type: object}, command: [sh, "+wait+"]}]\n")

	serve := func() *exec.Cmd {
		cmd, out := process(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + to}, "serve", "--addr", addr, "--admin-addr", "off",
			"--data", filepath.Join(dir, "data"), "--scripts", filepath.Join(dir, "scripts"), "--trace-share", "0")
		until(t, "the server serves", func() bool { return strings.Contains(out.String(), "msg=serving") })
		return cmd
	}
	server := serve()
	run, out := process(t, []string{"TRACEPARENT=00-" + traceID + "-" + spanID + "-01", "TRACESTATE=acme=1"}, "run", "--url", "http://"+addr, tree, "go")
	asked := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "asked"))
		return strings.TrimSpace(string(text))
	}
	until(t, "the tool is asked", func() bool { return asked() != "" })
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	server = serve()
	write("go", "")
	if err := run.Wait(); err != nil || !strings.Contains(out.String(), "found it") {
		t.Fatalf("the run: %v\n%s", err, out)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Fatal(err)
	}

	check(t, got, asked())
}

// check compares what the receiver has with what has happened. asked is the traceparent of the tool.
func check(t *testing.T, got *received, asked string) {
	var turns, agents, calls, tools []ptrace.Span
	for _, s := range spansOf(got) {
		if s.TraceID().String() != traceID || s.TraceState().AsRaw() != "acme=1" {
			t.Errorf("%s is of trace %s, %q", s.Name(), s.TraceID(), s.TraceState().AsRaw())
		}
		switch s.Name() {
		case "turn root":
			turns = append(turns, s)
		case "invoke_agent root":
			agents = append(agents, s)
		case "chat asks":
			calls = append(calls, s)
		case "execute_tool find":
			tools = append(tools, s)
		}
	}
	if len(turns) != 1 || len(agents) != 1 || len(tools) != 1 || len(calls) == 0 {
		t.Fatalf("%d turns, %d agents, %d tool calls, %d model calls", len(turns), len(agents), len(tools), len(calls))
	}
	turn, agent, tool := turns[0], agents[0], tools[0]
	if turn.Events().Len() != 1 || turn.Events().At(0).Name() != "agentd.turn.resumed" {
		t.Errorf("the turn was resumed %d times, want once", turn.Events().Len())
	}
	if agent.ParentSpanID() != turn.SpanID() || tool.ParentSpanID() != agent.SpanID() || calls[len(calls)-1].ParentSpanID() != agent.SpanID() {
		t.Error("the spans are not below each other")
	}
	if want := "00-" + traceID + "-" + tool.SpanID().String() + "-01"; asked != want {
		t.Errorf("the tool was asked with %s, want %s", asked, want)
	}
	var names []string
	for _, m := range metricsOf(got) {
		names = append(names, m.Name())
	}
	for _, want := range []string{
		"agentd_turns_ended_total", "agentd_model_call_duration_seconds", "agentd_model_tokens_total", "agentd_model_breaker_state",
		"agentd_tool_call_duration_seconds", "agentd_store_append_duration_seconds", "gen_ai.client.operation.duration",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no metric %s in %v", want, names)
		}
	}
}

func spansOf(got *received) (all []ptrace.Span) {
	for _, td := range got.spans.AllTraces() {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func metricsOf(got *received) (all []pmetric.Metric) {
	for _, md := range got.metrics.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					all = append(all, m)
				}
			}
		}
	}
	return all
}
