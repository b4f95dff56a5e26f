package traces

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/heldaddr"
	"github.com/apzuk3/agentd/server"
)

var scripts = map[string]string{
	"asks": `answers:
  - {when: {step: 1, try: 1}, error: {kind: unavailable, message: down}}
  - {when: {step: 1}, text: let me see, calls: [{name: find, args: {what: canary-argument}}], usage: {prompt: 7, completion: 2}}
  - {when: {}, text: canary-text}`,
	"tells":    "answers: [{when: {}, text: canary-text}]",
	"inquires": `answers: [{when: {step: 1}, calls: [{name: ask_user, args: {question: canary-question}}]}, {when: {}, text: canary-text}]`,
}

// up starts a daemon that exports to a collector.
func up(t *testing.T, c *collector, addr, dir string, share float64, log ...io.Writer) *daemon.Daemon {
	t.Helper()
	d, err := daemon.New(daemon.Config{
		Addr: addr, DataDir: dir, Scripts: scripts, Version: "v1.2.3",
		Collector: daemon.Collector{
			Endpoint: c.URL + "/below", Headers: "x-team=a%20b,authorization=Bearer canary-header", TraceShare: share,
			Client: &http.Client{Transport: below{}},
		},
		ModelRetry: modelcall.Retry{Base: time.Millisecond}, Faces: []server.Face{managed.Face{}},
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(log...), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t, d) })
	return d
}

// below sends what is for paths below /below to the same paths without it: the endpoint may have a path of its own.
type below struct{}

func (below) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/below")
	return http.DefaultTransport.RoundTrip(r)
}

// down stops a daemon at once.
func down(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestOneTrace: a turn whose server is restarted while its tool works is one trace, from the caller to the tool.
func TestOneTrace(t *testing.T) {
	ours.Reset()
	c := newCollector(t)
	addr, dir := heldaddr.New(t), t.TempDir()
	d := up(t, c, addr, dir, 0) // the caller has sampled it

	cl := client.New("http://" + addr)
	defer cl.CloseIdleConnections()
	called, restarted := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var inTool trace.SpanContext
	if err := client.AddTool(cl, "find", "finds", func(ctx context.Context, in struct {
		What string `json:"what"`
	}) (string, error) {
		inTool = trace.SpanContextFromContext(ctx)
		once.Do(func() { close(called) })
		<-restarted
		return "canary-result", nil
	}); err != nil {
		t.Fatal(err)
	}
	second := make(chan *daemon.Daemon, 1)
	go func() {
		<-called
		down(t, d)
		second <- up(t, c, addr, dir, 0)
		close(restarted)
	}()
	ctx, caller := otel.Tracer("user").Start(t.Context(), "caller")
	asker := client.LLM("asker", "scripted/asks", client.Tools("find"))
	res, err := cl.Do(ctx, client.Sequential("root", asker, client.LLM("teller", "scripted/tells")), "canary-prompt")
	if err != nil {
		t.Fatal(err)
	}
	caller.End()
	down(t, <-second)

	spans := c.all()
	one := func(name, scope string) span {
		t.Helper()
		var found []span
		for _, s := range spans {
			if s.name == name && (scope == "") == !strings.HasSuffix(s.scope, scope+"client") {
				found = append(found, s)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%d spans %q of %q, want one of %+v", len(found), name, scope, spans)
		}
		return found[0]
	}
	const server, own = "", "/"
	run, turn := one("agentd.v1.Agentd/Run", own), one("turn root", server)
	root, asked, told := one("invoke_agent root", server), one("invoke_agent asker", server), one("invoke_agent teller", server)
	call, tool := one("execute_tool find", server), one("execute_tool find", own)
	for _, below := range []struct{ s, above span }{
		{root, turn}, {asked, root}, {told, root}, {call, asked}, {tool, call}, {one("chat tells", server), told},
	} {
		if below.s.above != below.above.id {
			t.Errorf("%s is below %s, want %s (%s)", below.s.name, below.s.above, below.above.name, below.above.id)
		}
		if of := below.s; of.scope == below.above.scope && (of.began < below.above.began || of.ended > below.above.ended) {
			t.Errorf("%s is from %d to %d, beyond %s, %d to %d", of.name, of.began, of.ended, below.above.name, below.above.began, below.above.ended)
		}
	}
	if run.above != caller.SpanContext().SpanID().String() || inTool.SpanID().String() != tool.id {
		t.Errorf("the run is below %s, the tool sees %s", run.above, inTool.SpanID())
	}
	calls, tries, id := map[string]bool{}, 0, caller.SpanContext().TraceID().String()
	for _, s := range spans {
		if s.trace != id {
			t.Errorf("%s is of trace %s", s.name, s.trace)
		}
		switch {
		case strings.HasPrefix(s.scope, "gcp."):
			t.Errorf("the engine's own span %s", s.name)
		case s.name == "agentd.v1.Agentd/Run" && s.id != run.id:
			calls[s.id] = true
			if s.above != run.id {
				t.Errorf("a call is below %s", s.above)
			}
		case s.name == "chat asks":
			tries++
			if s.above != asked.id || s.failed != (s.attributes["error.type"] == "unavailable") {
				t.Errorf("a model call is %+v", s)
			}
		}
	}
	if len(calls) < 2 || !calls[turn.above] || tries < 3 {
		t.Errorf("%d calls, the turn is below %s, %d tries", len(calls), turn.above, tries)
	}
	if !slices.Equal(turn.events, []string{"agentd.turn.resumed"}) || turn.attributes["agentd.turn.status"] != "succeeded" ||
		turn.attributes["gen_ai.conversation.id"] != res.SessionID {
		t.Errorf("the turn is %+v", turn)
	}
	if call.attributes["agentd.tool.outcome"] != "answered" || call.attributes["gen_ai.tool.call.id"] == "" {
		t.Errorf("the call is %+v", call)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(c.raw.Bytes(), []byte("canary")) {
		t.Error("what is said is exported")
	}
	for _, want := range []string{"agentd_turns_ended_total", "agentd_store_append_duration_seconds", "gen_ai.client.operation.duration", "gen_ai.client.token.usage"} {
		if !c.metrics[want] {
			t.Errorf("no metric %s", want)
		}
	}
	for _, h := range c.headers {
		if h.Get("X-Team") != "a b" || h.Get("Authorization") != "Bearer canary-header" {
			t.Errorf("headers %v", h)
		}
	}
}

// TestNotSampled: a turn that is not sampled has no spans, and its trace is passed on to the tool as it came.
func TestNotSampled(t *testing.T) {
	ours.Reset()
	c := newCollector(t)
	addr := heldaddr.New(t)
	d := up(t, c, addr, daemon.Memory, 0)
	cl := client.New("http://" + addr)
	defer cl.CloseIdleConnections()
	var inTool trace.SpanContext
	if err := client.AddTool(cl, "find", "finds", func(ctx context.Context, in struct {
		What string `json:"what"`
	}) (string, error) {
		inTool = trace.SpanContextFromContext(ctx)
		return "found", nil
	}); err != nil {
		t.Fatal(err)
	}
	from := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{8}, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), from)
	if _, err := cl.Do(ctx, client.LLM("asker", "scripted/asks", client.Tools("find")), "go"); err != nil {
		t.Fatal(err)
	}
	down(t, d)
	if all := c.all(); len(all) > 0 {
		t.Errorf("spans %+v", all)
	}
	if inTool.TraceID() != from.TraceID() || inTool.IsSampled() {
		t.Errorf("the tool is of %+v", inTool)
	}
}

// TestCollectorAway: a collector that takes nothing is said once, and holds nothing up.
func TestCollectorAway(t *testing.T) {
	c := newCollector(t)
	c.refusals = 1 << 30
	addr := heldaddr.New(t)
	var log bytes.Buffer // read after the daemon has stopped
	d := up(t, c, addr, daemon.Memory, 1, &log)
	cl := client.New("http://" + addr)
	defer cl.CloseIdleConnections()
	if _, err := cl.Do(t.Context(), client.LLM("teller", "scripted/tells"), "go"); err != nil {
		t.Fatal(err)
	}
	down(t, d)
	if n := strings.Count(log.String(), "the collector takes no spans and metrics"); n != 1 || len(c.spans) > 0 {
		t.Errorf("said %d times, %d spans:\n%s", n, len(c.spans), log.String())
	}
	if strings.Contains(log.String(), "canary") || !strings.Contains(log.String(), "trace_id=") {
		t.Errorf("the log:\n%s", log.String())
	}
}

// TestAnswered: a question has a span that ends with its answer, not with the turn.
func TestAnswered(t *testing.T) {
	c := newCollector(t)
	addr := heldaddr.New(t)
	d := up(t, c, addr, daemon.Memory, 1)
	cl := client.New("http://" + addr)
	defer cl.CloseIdleConnections()
	answers := client.PrompterFunc(func(context.Context, *client.Interaction) (*client.Resolution, error) {
		return client.Answer("canary-answer"), nil
	})
	agent := client.LLM("asker", "scripted/inquires", client.BuiltinTools("ask_user"))
	if _, err := client.Collect(cl.Run(t.Context(), agent, "go", client.WithPrompter(answers))); err != nil {
		t.Fatal(err)
	}
	down(t, d)
	i := slices.IndexFunc(c.spans, func(s span) bool { return s.name == "execute_tool ask_user" })
	if i < 0 || c.spans[i].attributes["agentd.tool.outcome"] != "answered" || c.spans[i].failed {
		t.Errorf("spans %+v", c.spans)
	}
	if bytes.Contains(c.raw.Bytes(), []byte("canary")) {
		t.Error("what is said is exported")
	}
}

// TestFace: a request on a route of a face is in the trace of its caller, and so is the turn that it starts.
func TestFace(t *testing.T) {
	ours.Reset()
	c := newCollector(t)
	addr := heldaddr.New(t)
	d := up(t, c, addr, daemon.Memory, 0) // the caller has sampled it
	ask := func(method, path, body, traceparent string) (out struct {
		ID   string `json:"id"`
		Data []struct {
			Type string `json:"type"`
		} `json:"data"`
	},
	) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if traceparent != "" {
			req.Header.Set("Traceparent", traceparent)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, json.Unmarshal(text, &out)); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, text, err)
		}
		return out
	}
	agent := ask("POST", "/v1/agents", `{"name": "a", "model": {"id": "scripted/tells"}}`, "").ID
	env := ask("POST", "/v1/environments", `{"name": "e"}`, "").ID
	session := "/v1/sessions/" + ask("POST", "/v1/sessions", `{"agent": "`+agent+`", "environment_id": "`+env+`"}`, "").ID
	const id, above = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	ask("POST", session+"/events", `{"events": [{"type": "user.message", "content": [{"type": "text", "text": "canary-prompt"}]}]}`,
		"00-"+id+"-"+above+"-01")
	for len(ask("GET", session+"/events?types[]=session.status_idle", "", "").Data) == 0 {
		time.Sleep(time.Millisecond)
	}
	down(t, d)
	spans := map[string]span{}
	for _, s := range c.all() {
		name, _, _ := strings.Cut(s.name, " ")
		if _, twice := spans[name]; twice || s.trace != id {
			t.Errorf("one more span: %+v", s)
		}
		spans[name] = s
	}
	for name, above := range map[string]string{
		"face/managed-agents": above, "turn": spans["face/managed-agents"].id, "invoke_agent": spans["turn"].id, "chat": spans["invoke_agent"].id,
	} {
		if s := spans[name]; s.above != above || above == "" {
			t.Errorf("%s is %+v, want it below %q", name, s, above)
		}
	}
	if len(spans) != 4 || bytes.Contains(c.raw.Bytes(), []byte("canary")) {
		t.Errorf("spans %+v", spans)
	}
}
