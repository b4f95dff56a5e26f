package adkbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it is a sixth of the tests' work
	goleak.VerifyTestMain(m)
}

// step is one response of a scripted model.
type step struct {
	thought, text string
	looks         string // said before the provider runs a tool and text is said
	calls         []call
	err           error
	finish        genai.FinishReason // STOP if left out
	panics        bool
	// hang waits for the context's end; early is what the call is said to have taken
	// by then.
	hang  bool
	early model.Usage
	// gate, if set, is received from before each response.
	gate <-chan struct{}
}

// call is a tool call of a scripted response.
type call struct{ id, name, args string }

func say(text string) step { return step{text: text} }

func use(names ...string) step {
	var s step
	for _, n := range names {
		s.calls = append(s.calls, call{name: n, args: `{"q":1}`})
	}
	return s
}

func transfer(to string) step {
	return step{calls: []call{{name: "transfer_to_agent", args: fmt.Sprintf(`{"agent_name":%q}`, to)}}}
}

func inquire(text string, choices ...string) step {
	args, err := json.Marshal(map[string]any{"question": text, "choices": append([]string{}, choices...)})
	if err != nil {
		panic(err)
	}
	return step{calls: []call{{name: "ask_user", args: string(args)}}}
}

// consult calls agents as tools: names and requests in turn.
func consult(namesAndRequests ...string) step {
	var s step
	for pair := range slices.Chunk(namesAndRequests, 2) {
		s.calls = append(s.calls, call{name: pair[0], args: fmt.Sprintf(`{"request":%q}`, pair[1])})
	}
	return s
}

func exit() step { return step{calls: []call{{name: "exit_loop", args: `{"reason":"done"}`}}} }

// request is what a model was sent.
type request struct {
	agent    string
	contents []*genai.Content
	system   string
	tools    []string
	raw      *model.Request
	info     modelcall.Info
}

// script responds for all agents of a tree: each agent's model has the agent's name and
// takes that agent's steps in order, over all turns.
type script struct {
	mu       sync.Mutex
	steps    map[string][]step
	requests []request
	// bad names models that cannot be resolved.
	bad map[string]error
	// fail, if set, is called before each response.
	fail func(agent string, n int) error
	// always is the response for agents without steps left.
	always func(agent string) step
}

func (s *script) Resolve(name string, _ map[string]string) (Model, error) {
	if err := s.bad[name]; err != nil {
		return Model{}, err
	}
	return Model{
		LLM:      scripted{s, name},
		Provider: "fake",
		Builtins: []string{"google_search", "tool_search"},
		Cost:     func(u model.Usage) record.NanoUSD { return record.NanoUSD(u.Total) * 1_000_000 },
	}, nil
}

type scripted struct {
	s    *script
	name string
}

func (m scripted) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	s := m.s
	s.mu.Lock()
	n := len(s.requests)
	r := request{agent: m.name, contents: req.Contents, system: adapter.Text(req.Config.SystemInstruction), raw: req, info: modelcall.From(ctx)}
	for _, f := range req.Functions() {
		r.tools = append(r.tools, f.Name)
	}
	s.requests = append(s.requests, r)
	var st step
	switch steps := s.steps[m.name]; {
	case len(steps) > 0:
		st, s.steps[m.name] = steps[0], steps[1:]
	case s.always != nil:
		st = s.always(m.name)
	default:
		st.err = fmt.Errorf("script of %s has ended", m.name)
	}
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if err := fail(m.name, n); err != nil {
			return nil, err
		}
	}
	return st.respond(ctx, emit)
}

func (st step) respond(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
	if st.gate != nil {
		select {
		case <-st.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	resp := &model.Response{
		Content:      &genai.Content{Role: "model"},
		FinishReason: genai.FinishReasonStop,
		Usage:        model.Usage{Prompt: 7, Completion: 3, Total: 10},
		Model:        "fake-1",
	}
	if st.finish != "" {
		resp.FinishReason = st.finish
	}
	if st.thought != "" {
		emit(model.Delta{Text: st.thought, Thought: true})
		resp.Content.Parts = append(resp.Content.Parts, &genai.Part{Text: st.thought, Thought: true})
	}
	if st.looks != "" {
		emit(model.Delta{Text: st.looks})
		ran := map[string]any{seam.MetaProvider: "fake", seam.MetaOpaque: `{"type":"search"}`}
		resp.Content.Parts = append(resp.Content.Parts, &genai.Part{Text: st.looks}, &genai.Part{PartMetadata: ran})
	}
	if st.text != "" {
		for w := range words.Split(st.text) {
			emit(model.Delta{Text: w})
		}
		resp.Content.Parts = append(resp.Content.Parts, &genai.Part{Text: st.text})
	}
	if st.hang {
		<-ctx.Done()
		return nil, st.early.Spent(ctx.Err())
	}
	if st.panics {
		panic("scripted panic")
	}
	if st.err != nil {
		return nil, st.err
	}
	for _, c := range st.calls {
		resp.Content.Parts = append(resp.Content.Parts, adapter.NewCall(c.id, c.name, c.args))
	}
	return resp, nil
}

// seen returns the requests of one agent.
func (s *script) seen(agent string) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r request) bool { return r.agent != agent })
}

// world is a bridge below a real session manager and store.
type world struct {
	t       testing.TB
	script  *script
	store   store.Store
	runner  *Runner
	manager *session.Manager
	session string
	tools   []*agentdv1.Tool
	state   map[string]any
	limits  limits.Limits
	// result is the client's tools; nil returns {"ok":<name>}.
	result func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult
	// watch sees each message before it is handled.
	watch func(turn *session.Turn, m *agentdv1.RunResponse)
}

func newWorld(t testing.TB, steps map[string][]step, limits ...Limits) *world {
	t.Helper()
	w := &world{
		t:      t,
		script: &script{steps: steps},
		store:  newMemStore(),
		tools:  []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")},
	}
	cfg := Config{Resolve: w.script.Resolve}
	if len(limits) > 0 {
		cfg.Limits = limits[0]
	}
	w.runner = New(cfg)
	w.restart()
	return w
}

// onDisk keeps the sessions in a real store.
func (w *world) onDisk() {
	w.t.Helper()
	store, err := sqlite.Open(w.t.Context(), filepath.Join(w.t.TempDir(), "db"), sqlite.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = store.Close() })
	w.store = store
	w.restart()
}

// restart forgets all that is not in the store.
func (w *world) restart() {
	w.t.Helper()
	m, err := session.NewManager(session.Config{Store: w.store, Runner: w.runner, Limits: w.limits})
	if err != nil {
		w.t.Fatal(err)
	}
	w.manager = m
}

// result is what a client has seen of a turn.
type result struct {
	text    map[string]string // by agent path
	order   []string          // agent paths, by their first text
	last    map[string]int
	tools   []*agentdv1.RunResponse_ToolCallRequest
	state   map[string]any
	err     *agentdv1.RunResponse_ErrorResponse
	end     *agentdv1.RunResponse_EndResponse
	thought string
	replies []error
}

// start begins a turn.
func (w *world) start(agent *agentdv1.Agent, prompt string) *session.Turn {
	w.t.Helper()
	turn, err := w.manager.Start(w.t.Context(), session.Request{
		SessionID: w.session, Agent: agent, Tools: w.tools, Prompt: prompt, InitialState: w.state,
	})
	if err != nil {
		w.t.Fatalf("start: %v", err)
	}
	w.session = turn.SessionID()
	return turn
}

// run plays a turn to its end.
func (w *world) run(agent *agentdv1.Agent, prompt string) *result {
	w.t.Helper()
	return w.follow(w.start(agent, prompt))
}

// follow plays the client of a turn.
func (w *world) follow(turn *session.Turn) *result {
	w.t.Helper()
	return w.followOn(turn, turn.Watch())
}

// followOn plays the client of a turn that watches it already.
func (w *world) followOn(turn *session.Turn, watcher *session.Watcher) *result {
	w.t.Helper()
	defer watcher.Close()
	res := &result{text: map[string]string{}, last: map[string]int{}, state: map[string]any{}}
	stuck := time.NewTimer(2 * time.Minute)
	defer stuck.Stop()
	for {
		select {
		case <-watcher.Ready():
		case <-stuck.C:
			w.t.Fatal("the turn is stuck")
		}
		msgs, err := watcher.Next(w.t.Context())
		for _, m := range msgs {
			if w.watch != nil {
				w.watch(turn, m)
			}
			w.see(turn, m, res)
		}
		if errors.Is(err, io.EOF) {
			<-turn.Done()
			return res
		}
		if err != nil {
			w.t.Fatalf("watch: %v", err)
		}
	}
}

func (w *world) see(turn *session.Turn, m *agentdv1.RunResponse, res *result) {
	switch {
	case m.GetOutputChunk() != nil:
		c := m.GetOutputChunk()
		path := strings.Join(c.GetAgentPath(), "/")
		if c.GetIsThought() {
			res.thought += c.GetContent()
		} else if _, ok := res.text[path]; !ok {
			res.order = append(res.order, path)
		}
		if !c.GetIsThought() {
			res.text[path] += c.GetContent()
		}
		if c.GetLast() {
			res.last[path]++
		}
	case m.GetToolCall() != nil:
		tc := m.GetToolCall()
		res.tools = append(res.tools, tc)
		a := session.ClientResult{Output: new(fmt.Sprintf(`{"ok":%q}`, tc.GetToolName()))}
		if w.result != nil {
			a = w.result(tc)
		}
		if a.CallID == "-" { // no result
			return
		}
		a.CallID = tc.GetToolCallId()
		if err := turn.SubmitResult(w.t.Context(), a); err != nil {
			res.replies = append(res.replies, err)
		}
	case m.GetStateUpdate() != nil:
		maps.Copy(res.state, m.GetStateUpdate().GetStateDelta().AsMap())
	case m.GetError() != nil:
		res.err = m.GetError()
	case m.GetEnd() != nil:
		res.end = m.GetEnd()
	}
}

// ok fails the test unless the turn has finished naturally.
func (r *result) ok(t testing.TB) *result {
	t.Helper()
	if r.err != nil {
		t.Fatalf("turn failed: %v %s", r.err.GetCode(), r.err.GetMessage())
	}
	if r.end == nil || !r.end.GetCompleted() {
		t.Fatalf("turn did not complete: %v", r.end)
	}
	return r
}

func offer(name string) *agentdv1.Tool {
	return &agentdv1.Tool{Name: name, Description: "tool " + name, InputSchema: new(`{"type":"object","properties":{"q":{"type":"integer"}}}`)}
}

// The trees of the tests. Each LLM agent's model has the agent's name.

type option func(*agentdv1.LlmAgent)

func llm(name string, opts ...option) *agentdv1.Agent {
	a := &agentdv1.LlmAgent{Model: name, Instruction: "you are " + name, ToolNames: []string{"search", "fetch", "calc"}}
	for _, o := range opts {
		o(a)
	}
	return &agentdv1.Agent{Name: name, Description: "agent " + name, AgentType: &agentdv1.Agent_Llm{Llm: a}}
}

func subs(agents ...*agentdv1.Agent) option {
	return func(a *agentdv1.LlmAgent) { a.SubAgents = agents }
}

// agents are those that an agent calls as tools.
func agents(as ...*agentdv1.Agent) option {
	return func(a *agentdv1.LlmAgent) {
		for _, one := range as {
			a.AgentTools = append(a.AgentTools, &agentdv1.AgentTool{Agent: one, Description: "agent " + one.GetName()})
		}
	}
}

// forked are agents that see what their caller has seen.
func forked(as ...*agentdv1.Agent) option {
	return func(a *agentdv1.LlmAgent) {
		agents(as...)(a)
		for _, t := range a.AgentTools[len(a.AgentTools)-len(as):] {
			t.History = agentdv1.AgentTool_HISTORY_FORK
		}
	}
}

func builtin(names ...string) option {
	return func(a *agentdv1.LlmAgent) { a.BuiltinTools = names }
}

func instruct(text string) option { return func(a *agentdv1.LlmAgent) { a.Instruction = text } }
func output(key string) option    { return func(a *agentdv1.LlmAgent) { a.OutputKey = key } }
func tools(names ...string) option {
	return func(a *agentdv1.LlmAgent) { a.ToolNames = names }
}

func seq(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: agents}}}
}

func par(name string, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: agents}}}
}

func rounds(name string, n uint32, agents ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: agents, MaxIterations: n}}}
}

// transcript renders contents compactly: one line each.
func transcript(contents []*genai.Content) string {
	var b strings.Builder
	for _, c := range contents {
		fmt.Fprintf(&b, "%s:", c.Role)
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				fmt.Fprintf(&b, " call %s%s", p.FunctionCall.Name, compact(p.FunctionCall.Args))
			case p.FunctionResponse != nil:
				fmt.Fprintf(&b, " result %s%s", p.FunctionResponse.Name, compact(p.FunctionResponse.Response))
			case p.Thought:
				fmt.Fprintf(&b, " (%s)", p.Text)
			default:
				fmt.Fprintf(&b, " %s", p.Text)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// checkValid fails the test unless every provider would take the contents: each
// call has exactly one result, in the content that follows, ids are unique, no
// message is empty, and the last one is the user's.
func checkValid(t failer, contents []*genai.Content) {
	t.Helper()
	ids := map[string]bool{}
	bad := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("invalid prompt: "+format+"\n%s", append(args, transcript(contents))...)
	}
	for i, c := range contents {
		if c.Role != "user" && c.Role != "model" {
			bad("content %d has role %q", i, c.Role)
		}
		if len(c.Parts) == 0 {
			bad("content %d is empty", i)
		}
		var want, got []string
		for _, p := range c.Parts {
			if fc := p.FunctionCall; fc != nil {
				if fc.ID == "" || len(fc.ID) > 40 || ids[fc.ID] {
					bad("content %d: call id %q", i, fc.ID)
				}
				ids[fc.ID] = true
				want = append(want, fc.ID)
			}
			if p.FunctionResponse != nil && (i == 0 || len(calls(contents[i-1])) == 0) {
				bad("content %d holds a result without a call before it", i)
			}
		}
		if len(want) == 0 {
			continue
		}
		if i+1 == len(contents) {
			bad("content %d has calls without results", i)
		}
		for _, p := range contents[i+1].Parts {
			if p.FunctionResponse != nil {
				got = append(got, p.FunctionResponse.ID)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			bad("content %d: calls %v, results %v", i, want, got)
		}
	}
	if n := len(contents); n == 0 || contents[n-1].Role != "user" {
		bad("the last content is not the user's")
	}
}

func calls(c *genai.Content) []*genai.FunctionCall {
	var out []*genai.FunctionCall
	for _, p := range c.Parts {
		if p.FunctionCall != nil {
			out = append(out, p.FunctionCall)
		}
	}
	return out
}

// checkAll checks every request that was made.
func (w *world) checkAll() {
	w.t.Helper()
	w.script.mu.Lock()
	defer w.script.mu.Unlock()
	for _, r := range w.script.requests {
		checkValid(w.t, r.contents)
	}
}

// failer is a test of package testing or of rapid.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}
