package managed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// The runner of these tests is that of anthropic-sdk-go, unchanged.

// tool is a tool of a runner.
type tool struct {
	name string
	do   func(ctx context.Context, input string) (string, error)
}

func (t tool) Name() string        { return t.name }
func (t tool) Description() string { return "a tool of a test" }
func (t tool) InputSchema() anthropic.BetaToolInputSchemaParam {
	return anthropic.BetaToolInputSchemaParam{}
}

func (t tool) Execute(ctx context.Context, input json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	text, err := t.do(ctx, string(input))
	if err != nil {
		return nil, err
	}
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: text}}}, nil
}

// greeter greets, and counts how often.
func greeter(runs *atomic.Int64) tool {
	return tool{"greet", func(_ context.Context, input string) (string, error) {
		runs.Add(1)
		var in struct{ Name string }
		if err := json.Unmarshal([]byte(input), &in); err != nil {
			return "", err
		}
		return "hi " + in.Name, nil
	}}
}

// idle is how long the runners of these tests stay when a turn is over.
const idle = 300 * time.Millisecond

// run has a runner work until it stops.
func (d *desk) run(session string, opts anthropic.SessionToolRunnerOptions, tools ...anthropic.BetaTool) (calls []anthropic.DispatchedToolCall, err error) {
	d.t.Helper()
	wait := idle
	if opts.MaxIdle == nil {
		opts.MaxIdle = &wait
	}
	opts.Tools = tools
	r := d.sdk.Beta.Sessions.Events.NewToolRunner(d.t.Context(), session, opts)
	defer r.Close()
	for r.Next() {
		calls = append(calls, r.Current())
	}
	return calls, r.Err()
}

// lastText is what the agent said last.
func lastText(events []object) string {
	for _, e := range slices.Backward(events) {
		if e.text("type") == "agent.message" {
			return e.text("content", 0, "text")
		}
	}
	return ""
}

const (
	// greets calls the tool once and then says what it returned.
	greets = `
answers:
  - {when: {after_tool: greet}, text: 'done: {{tool_result "greet"}}'}
  - {when: {step: 1}, text: calling, calls: [{name: greet, args: {name: Ada}}]}
`
	// twice calls the tool twice in one response, and once more.
	twice = `
answers:
  - {when: {step: 1}, text: calling, calls: [{name: greet, args: {name: Ada}}, {name: greet, args: {name: Bob}}]}
  - {when: {step: 2}, calls: [{name: greet, args: {name: Eve}}]}
  - {when: {step: 3}, text: 'done: {{tool_result "greet"}}'}
`
)

func TestRunner(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"twice": twice}})
	id := d.session("scripted/twice")
	d.post(id, said("go"))
	var runs atomic.Int64
	calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs))
	if !errors.Is(err, anthropic.ErrIdleTimeout) || len(calls) != 3 || runs.Load() != 3 {
		t.Fatalf("%d calls, %d runs, %v", len(calls), runs.Load(), err)
	}
	for _, c := range calls {
		if !c.Custom || !c.Posted || c.IsError {
			t.Errorf("call %+v", c)
		}
	}
	events := d.events(id)
	if got := lastText(events); got != "done: hi Eve" {
		t.Errorf("the agent said %q", got)
	}
	want := []string{
		"user.message", "session.status_running", "span.model_request_start", "agent.message", "agent.custom_tool_use",
		"agent.custom_tool_use", "span.model_request_end", "session.status_idle", "user.custom_tool_result",
		"user.custom_tool_result", "session.status_running", "span.model_request_start", "agent.custom_tool_use",
		"span.model_request_end", "session.status_idle", "user.custom_tool_result", "session.status_running",
		"span.model_request_start", "agent.message", "span.model_request_end", "session.status_idle",
	}
	if got := kinds(events); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	asked := events[7]
	if ids := []any{events[4].text("id"), events[5].text("id")}; !slices.Equal(asked.at("stop_reason", "event_ids").([]any), ids) {
		t.Errorf("stop reason %v, want %v", asked, ids)
	}
	// A follow-up continues the same conversation, and a new runner finds nothing to do before it.
	if calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs)); !errors.Is(err, anthropic.ErrIdleTimeout) || len(calls) != 0 {
		t.Errorf("a second runner: %d calls, %v", len(calls), err)
	}
}

// The typed client reads every event as what it is.
func TestTypedEvents(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	ctx := t.Context()
	sent, err := d.sdk.Beta.Sessions.Events.Send(ctx, id, anthropic.BetaSessionEventSendParams{Events: []anthropic.BetaManagedAgentsEventParamsUnion{{
		OfUserMessage: &anthropic.BetaManagedAgentsUserMessageEventParams{
			Type:    anthropic.BetaManagedAgentsUserMessageEventParamsTypeUserMessage,
			Content: []anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: "go", Type: "text"}}},
		},
	}}})
	if err != nil || len(sent.Data) != 1 || sent.Data[0].ID == "" {
		t.Fatal(sent, err)
	}
	d.untilIdle(id, "requires_action")
	pager := d.sdk.Beta.Sessions.Events.ListAutoPaging(ctx, id, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(2)})
	seen := map[string]string{}
	for pager.Next() {
		ev := pager.Current()
		if ev.ID == "" || ev.ProcessedAt.IsZero() {
			t.Errorf("event %+v", ev)
		}
		seen[ev.Type] = ev.ID
		switch ev.Type {
		case "user.message":
			if ev.ID != sent.Data[0].ID {
				t.Errorf("the message is %s, was posted as %s", ev.ID, sent.Data[0].ID)
			}
		case "agent.custom_tool_use":
			if use := ev.AsAgentCustomToolUse(); use.Name != "greet" || use.Input["name"] != "Ada" || use.SessionThreadID != "" {
				t.Errorf("call %+v", use)
			}
		case "span.model_request_end":
			end := ev.AsSpanModelRequestEnd()
			if end.ModelRequestStartID != seen["span.model_request_start"] || end.IsError || end.ModelUsage.OutputTokens == 0 {
				t.Errorf("span %+v", end)
			}
		case "session.status_idle":
			if stop := ev.AsSessionStatusIdle().StopReason; stop.Type != "requires_action" || stop.EventIDs[0] != seen["agent.custom_tool_use"] {
				t.Errorf("stop reason %+v", stop)
			}
		}
	}
	if pager.Err() != nil || len(seen) != 7 {
		t.Errorf("%v, %v", seen, pager.Err())
	}
	got, err := d.sdk.Beta.Sessions.Get(ctx, id, anthropic.BetaSessionGetParams{})
	if err != nil || got.Status != "idle" || got.Agent.Model.ID != "scripted/greets" || got.Usage.InputTokens == 0 {
		t.Errorf("session %+v, %v", got, err)
	}
}

// gated registers an agent whose tool needs an approval, which only SessionService can.
func (d *desk) gated(name, model string) {
	d.t.Helper()
	schema := `{"type":"object"}`
	call(d.t, d.native.ApplyAgent, &agentdv1.ApplyAgentRequest{
		Name: name, Agent: &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model, ToolNames: []string{"greet"}}}},
		Tools: []*agentdv1.Tool{{Name: "greet", Description: "greets", InputSchema: &schema, NeedsApproval: true}},
	})
}

// A call that needs an approval waits for a confirmation; only then the runner runs it, and a denial reaches the model.
func TestRunnerConfirmation(t *testing.T) {
	for _, verdict := range []string{"allow", "deny"} {
		t.Run(verdict, func(t *testing.T) {
			d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
			d.gated("desk", "scripted/greets")
			id := d.sessionOf("desk")
			d.post(id, said("go"))
			events := d.untilIdle(id, "requires_action")
			use := events[slices.Index(kinds(events), "agent.tool_use")]
			if use["evaluated_permission"] != "ask" || use["name"] != "greet" {
				t.Errorf("call %v", use)
			}
			var runs atomic.Int64
			confirmed := make(chan []object, 1)
			go func() {
				confirmation := object{"type": "user.tool_confirmation", "tool_use_id": use.text("id"), "result": verdict}
				if verdict == "deny" {
					confirmation["deny_message"] = "not today"
				}
				first := d.post(id, confirmation)
				confirmed <- append(first, d.post(id, confirmation)...)
			}()
			calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs))
			if !errors.Is(err, anthropic.ErrIdleTimeout) {
				t.Fatalf("%+v, %v", calls, err)
			}
			both := <-confirmed
			if both[0].text("id") != both[1].text("id") {
				t.Errorf("the same confirmation twice: %v", both)
			}
			events = d.events(id)
			got := kinds(events[slices.Index(kinds(events), "session.status_idle")+1:])
			want := []string{"user.tool_confirmation", "user.tool_result", "session.status_running", "span.model_request_start", "agent.message", "span.model_request_end", "session.status_idle"}
			said := "done: hi Ada"
			if verdict == "deny" {
				want = slices.Delete(want, 1, 2)
				said = "not today"
			}
			if !slices.Equal(got, want) || !strings.Contains(lastText(events), said) {
				t.Errorf("%q, the agent said %q", got, lastText(events))
			}
			other := object{"type": "user.tool_confirmation", "tool_use_id": use.text("id"), "result": map[string]string{"allow": "deny", "deny": "allow"}[verdict]}
			if status, refusal, _ := d.send("POST", "/v1/sessions/"+id+"/events", object{"events": []object{other}}); status != 400 {
				t.Errorf("the other verdict: %d %v", status, refusal)
			}
			if ran := runs.Load(); verdict == "allow" && ran != 1 || verdict == "deny" && ran != 0 {
				t.Errorf("the tool ran %d times", ran)
			}
			if verdict == "allow" && (len(calls) != 1 || calls[0].Confirmation != "allow" || !calls[0].Posted) {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

// cutter cuts the first streams after some frames.
type cutter struct {
	next  http.RoundTripper
	after []int // frames of the first stream, of the second, …
	mu    sync.Mutex
	seen  int
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
		return resp, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen < len(c.after) {
		resp.Body = &cutBody{ReadCloser: resp.Body, left: c.after[c.seen]}
	}
	c.seen++
	return resp, nil
}

// cutBody ends with an error behind some frames.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the connection is cut")
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), 1)])
	if n == 1 && p[0] == '\n' {
		b.left -= bytes.Count(p[:n], []byte("\n"))
	}
	return n, err
}

// A stream that is cut costs nothing: each call is run once.
func TestRunnerCut(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"twice": twice}})
	id := d.session("scripted/twice")
	cut := &cutter{next: d.http.Transport, after: []int{2 + 4*5, 2 + 4*2}} // lines: a comment, then frames of three and an empty one
	d.sdk = anthropic.NewClient(option.WithBaseURL(d.url), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: cut}))
	var runs atomic.Int64
	done := make(chan error, 1)
	go func() {
		_, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs))
		done <- err
	}()
	for cut.streams() == 0 {
		time.Sleep(time.Millisecond)
	}
	d.post(id, said("go"))
	if err := <-done; !errors.Is(err, anthropic.ErrIdleTimeout) {
		t.Fatal(err)
	}
	if runs.Load() != 3 || cut.streams() < 2 || lastText(d.events(id)) != "done: hi Eve" {
		t.Errorf("%d runs over %d streams, the agent said %q", runs.Load(), cut.streams(), lastText(d.events(id)))
	}
}

func (c *cutter) streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// An interrupt ends the turn and its open calls; what comes next has calls of its own.
func TestRunnerInterrupt(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	d.post(id, said("go"))
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	var second atomic.Bool
	greet := tool{"greet", func(ctx context.Context, _ string) (string, error) {
		if second.Load() {
			return "hi again", nil
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	}}
	done := make(chan []anthropic.DispatchedToolCall, 1)
	go func() {
		calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greet)
		if !errors.Is(err, anthropic.ErrIdleTimeout) {
			t.Error(err)
		}
		done <- calls
	}()
	<-began
	use := d.untilIdle(id, "requires_action")[4]
	second.Store(true)
	sent := d.post(id, object{"type": "user.interrupt"}, said("once more"))
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the tool ended with %v", err)
	}
	calls := <-done
	if len(calls) != 2 || calls[0].Posted || !calls[1].Posted {
		t.Errorf("calls %+v", calls)
	}
	events := d.events(id)
	want := []string{
		"user.message", "session.status_running", "span.model_request_start", "agent.message", "agent.custom_tool_use",
		"span.model_request_end", "session.status_idle", "user.interrupt", "session.status_idle",
		"user.message", "session.status_running", "span.model_request_start", "agent.message", "agent.custom_tool_use",
		"span.model_request_end", "session.status_idle", "user.custom_tool_result", "session.status_running",
		"span.model_request_start", "agent.message", "span.model_request_end", "session.status_idle",
	}
	if got := kinds(events); !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
	if events[7].text("id") != sent[0].text("id") || events[9].text("id") != sent[1].text("id") {
		t.Errorf("posted %v, listed %v and %v", sent, events[7], events[9])
	}
	if events[7].text("processed_at") < use.text("processed_at") || events[13].text("processed_at") <= events[7].text("processed_at") {
		t.Errorf("the interrupt was at %s, calls at %s and %s", events[7].text("processed_at"), use.text("processed_at"), events[13].text("processed_at"))
	}
	late := object{"type": "user.custom_tool_result", "custom_tool_use_id": use.text("id"), "content": []object{}}
	if status, refusal, _ := d.send("POST", "/v1/sessions/"+id+"/events", object{"events": []object{late}}); status != 400 || !strings.Contains(refusal.text("error", "message"), use.text("id")) {
		t.Errorf("a late result: %d %v", status, refusal)
	}
	// Nothing runs: there is nothing to interrupt, and that is no error.
	if now := d.post(id, object{"type": "user.interrupt"}); now[0].text("type") != "user.interrupt" || len(d.events(id)) != len(events) {
		t.Errorf("an idle interrupt: %v", now)
	}
}

// A runner that comes late reads a long session over several pages and finds what is open.
func TestRunnerLongSession(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"long": `
answers:
  - {when: {after_tool: greet}, text: 'done: {{tool_result "greet"}}'}
  - {when: {user: ^go$}, calls: [{name: greet, args: {name: Ada}}]}
  - {when: {step: 1}, text: one}
`}})
	id := d.session("scripted/long")
	const turns = 500 // each with six events
	for range turns {
		d.post(id, said("hello"))
	}
	d.untilIdleAll(id, turns)
	if n := len(d.events(id)); n < 3000 {
		t.Fatalf("only %d events", n)
	}
	d.post(id, said("go"))
	d.untilIdle(id, "requires_action")
	var runs atomic.Int64
	calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs))
	if !errors.Is(err, anthropic.ErrIdleTimeout) || len(calls) != 1 || !calls[0].Posted || lastText(d.events(id)) != "done: hi Ada" {
		t.Errorf("calls %+v, %v", calls, err)
	}
	a := d.must("GET", "/v1/sessions/"+id, nil)
	if a.at("stats", "active_seconds").(float64) <= 0 {
		t.Errorf("session %v", a)
	}
}

// untilIdleAll waits until that many turns of a session have ended.
func (d *desk) untilIdleAll(session string, turns int) {
	d.t.Helper()
	s := d.follow("/v1/sessions/"+session+"/events/stream", "0")
	defer s.close()
	for ended := 0; ended < turns; {
		if f := s.next(); f.name == "session.status_idle" && f.data.text("stop_reason", "type") == "end_turn" {
			ended++
		}
	}
}

// Of many runners on one session each call is answered once: an equal answer is the first one, another one is refused.
func TestManyRunners(t *testing.T) {
	for _, equal := range []bool{true, false} {
		t.Run(fmt.Sprint("equal ", equal), func(t *testing.T) {
			d := open(t, daemon.Config{Scripts: map[string]string{"twice": twice}})
			for range 5 {
				d.manyRunners(d.session("scripted/twice"), equal)
			}
		})
	}
}

func (d *desk) manyRunners(id string, equal bool) {
	d.t.Helper()
	d.post(id, said("go"))
	d.untilIdle(id, "requires_action")
	var runs, posted atomic.Int64
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			greet := greeter(&runs)
			if !equal {
				greet.do = func(context.Context, string) (string, error) { return strconv.Itoa(n), nil }
			}
			calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greet)
			if !errors.Is(err, anthropic.ErrIdleTimeout) {
				d.t.Errorf("runner %d: %v", n, err)
			}
			for _, c := range calls {
				if c.Posted {
					posted.Add(1)
				} else if equal {
					d.t.Errorf("an equal result was refused: %+v", c)
				}
			}
		})
	}
	wg.Wait()
	events := d.events(id)
	answered := map[string]int{}
	for _, e := range events {
		if e.text("type") == "user.custom_tool_result" {
			answered[e.text("custom_tool_use_id")]++
		}
	}
	if len(answered) != 3 || posted.Load() < 3 || !equal && posted.Load() != 3 {
		d.t.Errorf("answered %v, %d posted", answered, posted.Load())
	}
	for use, n := range answered {
		if n != 1 {
			d.t.Errorf("call %s has %d results", use, n)
		}
	}
	if !strings.HasPrefix(lastText(events), "done: ") {
		d.t.Errorf("the agent said %q", lastText(events))
	}
}

// A runner that is away for longer than turns stay in memory finds its calls open, and what was said meanwhile waits.
func TestRunnerAway(t *testing.T) {
	d := open(t, daemon.Config{
		Scripts: map[string]string{"greets": greets},
		Turns:   limits.Limits{IdleTurn: 20 * time.Millisecond, TurnTimeout: 10 * time.Second, ToolTimeout: 20 * time.Millisecond},
	})
	id := d.session("scripted/greets")
	d.post(id, said("go"))
	d.untilIdle(id, "requires_action")
	for range 2 { // before the turn is suspended, and behind it
		queued := d.post(id, said("and then"))
		if queued[0]["processed_at"] != nil {
			t.Errorf("a message that waits: %v", queued)
		}
		time.Sleep(100 * time.Millisecond) // several times IdleTurn
	}
	if now := d.must("GET", "/v1/sessions/"+id, nil); now.text("status") != "idle" {
		t.Fatalf("the session is %v", now)
	}
	var runs atomic.Int64
	if calls, err := d.run(id, anthropic.SessionToolRunnerOptions{}, greeter(&runs)); !errors.Is(err, anthropic.ErrIdleTimeout) || len(calls) != 3 || !calls[0].Posted {
		t.Errorf("calls %+v, %v", calls, err)
	}
	events := d.events(id)
	if i := slices.Index(kinds(events), "user.interrupt"); i >= 0 {
		t.Errorf("the turn gave way: %q", kinds(events))
	}
}

// An archived session takes no messages and can be read; a deleted one ends its streams.
func TestArchiveAndDelete(t *testing.T) {
	d := open(t, daemon.Config{})
	id := d.session("echo")
	d.post(id, said("hello"))
	d.untilIdle(id, "end_turn")
	if s := d.must("POST", "/v1/sessions/"+id+"/archive", nil); s["archived_at"] == nil || s["status"] != "idle" {
		t.Errorf("archived: %v", s)
	}
	if status, refusal, _ := d.send("POST", "/v1/sessions/"+id+"/events", object{"events": []object{said("more")}}); status != 400 || refusal.text("error", "type") != "invalid_request_error" {
		t.Errorf("a message to an archived session: %d %v", status, refusal)
	}
	if n := len(d.events(id)); n != 6 {
		t.Errorf("%d events", n)
	}
	s := d.follow("/v1/sessions/"+id+"/events/stream", "")
	done := make(chan error, 1)
	never := time.Duration(0)
	go func() {
		_, err := d.run(id, anthropic.SessionToolRunnerOptions{MaxIdle: &never})
		done <- err
	}()
	if gone := d.must("DELETE", "/v1/sessions/"+id, nil); gone["type"] != "session_deleted" || gone["id"] != id {
		t.Errorf("deleted: %v", gone)
	}
	if f := s.next(); f.name != "session.deleted" || f.id != "" {
		t.Errorf("the last frame is %+v", f)
	}
	if err := <-done; err == nil || !errors.Is(err, anthropic.ErrSessionTerminated) && !strings.Contains(err.Error(), "404") {
		t.Errorf("the runner ended with %v", err)
	}
	if status, _, _ := d.send("GET", "/v1/sessions/"+id, nil); status != 404 {
		t.Errorf("a deleted session: %d", status)
	}
}
