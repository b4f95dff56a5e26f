package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const deskKey = "AKID:canary-secret"

// backend is a backend of a test.
type backend struct {
	name   string
	seen   *seenBy
	file   string
	closed func() bool
	any    any
}

// kind is a kind of backend, of which a test makes one that does its steps.
type kind struct {
	name string
	make func(t *testing.T, steps []step) *backend
}

var kinds = []kind{
	{"managed", func(t *testing.T, steps []step) *backend {
		m := newManaged(t, steps)
		return &backend{"managed", m.seenBy, m.file(), m.interrupted, m}
	}},
	{"agentcore", func(t *testing.T, steps []step) *backend {
		h := newHarness(t, steps)
		return &backend{"agentcore", h.seenBy, h.file(), nil, h}
	}},
	{"agentd", func(t *testing.T, steps []step) *backend { return newOther(t, "agentd", steps).backend("agentd") }},
	// agentd's own face for the protocol of managed.
	{"face", func(t *testing.T, steps []step) *backend { return newOther(t, "managed-agents", steps).backend("face") }},
}

// backends tests with one of each kind, but of those named.
func backends(t *testing.T, steps []step, test func(t *testing.T, b *backend), but ...string) {
	for _, k := range kinds {
		if !slices.Contains(but, k.name) {
			t.Run(k.name, func(t *testing.T) { test(t, k.make(t, steps)) })
		}
	}
}

// world is a daemon with a backend, and a client of it.
type world struct {
	t    *testing.T
	db   store.Store
	stub agentdv1connect.SessionServiceClient
	d    *agentdtest.Daemon

	mu      sync.Mutex
	ran     map[string]int // tools that have run, by the id of the call
	results map[string]string
	atOnce  int
	most    int
	tool    func(c *agentdv1.RunResponse_ToolCallRequest) (output, failure string)
	onEvent func(m *agentdv1.RunResponse)
}

func newWorld(t *testing.T, b *backend, opts ...testdaemon.Option) *world {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := &world{t: t, db: db, ran: map[string]int{}, results: map[string]string{}}
	w.start(b, db, opts...)
	return w
}

// start starts a daemon on a store.
func (w *world) start(b *backend, db store.Store, opts ...testdaemon.Option) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "backends.yaml")
	if err := os.WriteFile(file, []byte(b.file), 0o600); err != nil {
		w.t.Fatal(err)
	}
	opts = append([]testdaemon.Option{testdaemon.WithStore(kept{db}), func(c *testdaemon.Config) { c.Daemon.Backends = file }}, opts...)
	d, err := agentdtest.New(agentdtest.Config{Scripts: scripts, Getenv: func(name string) string {
		if name == "DESK_KEY" {
			return deskKey
		}
		return ""
	}}, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = d.Close() })
	w.d = d
	w.stub = agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
}

// scripts are models of agents that run here.
var scripts = map[string]string{
	"writer": `answers: [{when: {system: "found"}, text: "I read that it was found."}, {when: {}, text: "ahem"}]`,
	"boss":   `answers: [{when: {}, text: "over to you. ", calls: [{name: transfer_to_agent, args: {agent_name: far}}]}]`,
}

// local is an agent that runs here.
func local(name, instruction string, subs ...*agentdv1.Agent) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, Description: "an agent", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
		Model: "scripted/" + name, Instruction: instruction, SubAgents: subs,
	}}}
}

// kept is a store that outlives its daemon.
type kept struct{ store.Store }

func (kept) Close() error { return nil }

// remoteAgent is an agent of the backend.
func remoteAgent(change ...func(*agentdv1.RemoteAgent)) *agentdv1.Agent {
	r := &agentdv1.RemoteAgent{Backend: "desk", Instruction: "be brief", Model: "steps", ToolNames: []string{"search", "fetch"}, OutputKey: "answer"}
	for _, f := range change {
		f(r)
	}
	return &agentdv1.Agent{Name: "far", AgentType: &agentdv1.Agent_Remote{Remote: r}}
}

func offers() []*agentdv1.Tool {
	schema := `{"type":"object","properties":{"q":{"type":"integer"}}}`
	return []*agentdv1.Tool{
		{Name: "search", Description: "searches", InputSchema: &schema}, {Name: "fetch", Description: "fetches", InputSchema: &schema},
		{Name: "submit", Description: "takes the answer", InputSchema: &schema},
	}
}

// outcome is what a client sees of a turn.
type outcome struct {
	Text     string
	Tools    []string
	State    any
	Code     string
	Ended    bool
	Output   string
	Calls    int // ModelCallEnded
	Tokens   int64
	Uses     []string
	Terminal []string
	remote   []*agentdv1.RemoteSession
	raw      int
	message  string
	end      *agentdv1.RunResponse_EndResponse
}

// begin starts a turn.
func (w *world) begin(tree *agentdv1.Agent, change ...func(*agentdv1.RunRequest_ExecuteRequest)) (session, turn string) {
	w.t.Helper()
	req := &agentdv1.RunRequest_ExecuteRequest{Agent: tree, UserPrompt: "go", Tools: offers(), OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE}
	for _, f := range change {
		f(req)
	}
	resp, err := w.stub.CreateTurn(w.t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: req}))
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Msg.GetTurn().GetSessionId(), resp.Msg.GetTurn().GetId()
}

// follow plays the client until the turn is over, or the daemon.
func (w *world) follow(ctx context.Context, session, turn string) (*outcome, error) {
	out := &outcome{}
	stream, err := w.stub.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: session, TurnId: turn, ToolNames: []string{"search", "fetch", "submit"}, AfterSeq: new(int64),
	}))
	if err != nil {
		return out, err
	}
	defer stream.Close()
	var tools sync.WaitGroup
	defer tools.Wait()
	for stream.Receive() {
		m := stream.Msg().GetEvent()
		if w.onEvent != nil {
			w.onEvent(m)
		}
		switch r := m.GetResponse().(type) {
		case *agentdv1.RunResponse_OutputChunk_:
			out.Text += r.OutputChunk.GetContent()
		case *agentdv1.RunResponse_MessageRetracted:
			out.Text = ""
		case *agentdv1.RunResponse_ToolCall:
			out.Tools = append(out.Tools, r.ToolCall.GetToolName()+" "+r.ToolCall.GetToolInput())
			tools.Go(func() { w.run(ctx, session, turn, r.ToolCall) })
		case *agentdv1.RunResponse_StateUpdate_:
			if v, ok := r.StateUpdate.GetStateDelta().AsMap()["answer"]; ok {
				out.State = v
			}
		case *agentdv1.RunResponse_ModelCallEnded:
			out.Calls++
			out.Tokens += r.ModelCallEnded.GetUsage().GetTotalTokens()
		case *agentdv1.RunResponse_ProviderToolsUsed:
			for _, u := range r.ProviderToolsUsed.GetUses() {
				out.Uses = append(out.Uses, u.GetToolName()+" "+u.GetInput()+" "+u.GetOutput())
			}
		case *agentdv1.RunResponse_RawPayloadReceived:
			out.raw++
		case *agentdv1.RunResponse_RemoteSession:
			out.remote = append(out.remote, r.RemoteSession)
			if r.RemoteSession.GetTerminal() != 0 {
				out.Terminal = append(out.Terminal, strings.TrimPrefix(r.RemoteSession.GetTerminal().String(), "TERMINAL_"))
			}
		case *agentdv1.RunResponse_Error:
			out.Code, out.message = strings.TrimPrefix(r.Error.GetCode().String(), "ERROR_CODE_"), r.Error.GetMessage()
		case *agentdv1.RunResponse_End:
			out.Ended, out.Output, out.end = r.End.GetCompleted(), r.End.GetStructuredOutput(), r.End
			return out, nil
		}
	}
	if stream.Err() == nil {
		return out, errors.New("the stream has ended")
	}
	return out, stream.Err()
}

// run runs a tool, once for each id: what is asked again gets the same result.
func (w *world) run(ctx context.Context, session, turn string, c *agentdv1.RunResponse_ToolCallRequest) {
	w.mu.Lock()
	output, known := w.results[c.GetToolCallId()]
	w.atOnce++
	w.most = max(w.most, w.atOnce)
	w.mu.Unlock()
	failure := ""
	if !known {
		output = c.GetToolName() + " did"
		if w.tool != nil {
			output, failure = w.tool(c)
		}
	}
	w.mu.Lock()
	w.atOnce--
	if !known {
		w.ran[c.GetToolCallId()]++
		w.results[c.GetToolCallId()] = output
	}
	w.mu.Unlock()
	res := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}}
	if failure != "" {
		res.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: failure}
	}
	_, _ = w.stub.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
		SessionId: session, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{res},
	}))
}

// play plays a turn to its end.
func (w *world) play(tree *agentdv1.Agent, change ...func(*agentdv1.RunRequest_ExecuteRequest)) *outcome {
	w.t.Helper()
	session, turn := w.begin(tree, change...)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	out, err := w.follow(ctx, session, turn)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func text(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestScenarios has each kind of backend do the same, with the same outcome.
func TestScenarios(t *testing.T) {
	two := []step{{say: "looking", calls: []string{"search", "fetch"}}, {say: "done"}}
	for _, tc := range []struct {
		name   string
		steps  []step
		agent  func(*agentdv1.RemoteAgent)
		tool   func(c *agentdv1.RunResponse_ToolCallRequest) (string, string)
		turn   func(*agentdv1.RunRequest_ExecuteRequest)
		want   outcome
		not    []string // kinds of backends that cannot do it
		check  func(t *testing.T, b *backend, w *world, out *outcome)
		reason string // in the error
	}{
		{name: "text", steps: []step{{say: "hello there"}}, want: outcome{
			Text: "hello there", State: "hello there", Ended: true, Calls: 1, Tokens: 10, Terminal: []string{"END_TURN"},
		}, check: func(t *testing.T, b *backend, _ *world, out *outcome) {
			if !slices.Equal(b.seen.messages, []string{"go"}) || len(b.seen.specs) != 1 || !strings.Contains(b.seen.specs[0], "be brief") {
				t.Errorf("messages %q, specs %q", b.seen.messages, b.seen.specs)
			}
			last := out.remote[len(out.remote)-1]
			if len(out.remote) != 4 || last.GetSpecHash() == "" || last.GetRemoteSessionId() == "" || last.GetRemoteAgentId() == "" {
				t.Errorf("remote sessions %v", out.remote)
			}
		}},
		{name: "two calls at once", steps: two, want: outcome{
			Text: "lookingdone", Tools: []string{`search {"q":1}`, `fetch {"q":2}`}, State: "done", Ended: true, Calls: 2, Tokens: 20,
			Terminal: []string{"REQUIRES_ACTION", "END_TURN"},
		}, check: func(t *testing.T, b *backend, _ *world, _ *outcome) {
			var texts []string
			for _, text := range b.seen.texts {
				texts = append(texts, text)
			}
			slices.Sort(texts)
			if !slices.Equal(texts, []string{"fetch did", "search did"}) {
				t.Errorf("results %q", texts)
			}
		}},
		{name: "tool error", steps: two, tool: func(c *agentdv1.RunResponse_ToolCallRequest) (string, string) {
			if c.GetToolName() == "fetch" {
				return "", "no such page"
			}
			return "ok", ""
		}, want: outcome{
			Text: "lookingdone", Tools: []string{`search {"q":1}`, `fetch {"q":2}`}, State: "done", Ended: true, Calls: 2, Tokens: 20,
			Terminal: []string{"REQUIRES_ACTION", "END_TURN"},
		}, check: func(t *testing.T, b *backend, _ *world, _ *outcome) {
			failed := 0
			for id, bad := range b.seen.errors {
				if bad {
					failed++
					if !strings.Contains(b.seen.texts[id], "no such page") {
						t.Errorf("the error is %q", b.seen.texts[id])
					}
				}
			}
			if failed != 1 {
				t.Errorf("%d results are errors: %v", failed, b.seen.errors)
			}
		}},
		{name: "unknown tool", steps: []step{{calls: []string{"nonsense"}}, {say: "done"}}, want: outcome{
			Text: "done", State: "done", Ended: true, Calls: 2, Tokens: 20, Terminal: []string{"REQUIRES_ACTION", "END_TURN"},
		}, not: []string{"agentd", "face"}},
		{name: "own tool", steps: []step{{uses: "web_search", say: "found it"}}, want: outcome{
			Text: "found it", State: "found it", Ended: true, Calls: 1, Tokens: 10, Uses: []string{`web_search {"x":1} "found"`}, Terminal: []string{"END_TURN"},
		}},
		{name: "own tool that asks", steps: []step{{say: "may I", asks: "bash"}, {say: "then not"}}, want: outcome{
			Text: "may I\nthen not", State: "may I\nthen not", Ended: true, Calls: 1, Tokens: 20, Uses: []string{`bash {} `}, Terminal: []string{"END_TURN"},
		}, not: []string{"agentcore", "agentd", "face"}, check: func(t *testing.T, b *backend, _ *world, _ *outcome) {
			if !slices.Equal(b.seen.denied, []string{"deny"}) {
				t.Errorf("denied %q", b.seen.denied)
			}
		}},
		{name: "terminal tool", steps: []step{{say: "here", calls: []string{"submit", "search"}}},
			agent: func(r *agentdv1.RemoteAgent) { r.TerminalTool = "submit" }, want: outcome{
				Text: "here\n" + `{"q":1}`, State: `{"q":1}`, Output: `{"q":1}`, Ended: true, Calls: 1, Tokens: 10, Terminal: []string{"END_TURN"},
			}},
		{name: "max turns", steps: slices.Repeat([]step{{calls: []string{"search"}}}, 9), agent: func(r *agentdv1.RemoteAgent) { r.MaxTurns = 2 }, want: outcome{
			Tools: []string{`search {"q":1}`}, Code: "LIMIT_EXCEEDED", Calls: 2, Tokens: 20, Terminal: []string{"REQUIRES_ACTION", "TERMINATED"},
		}, reason: "max_turns"},
		{name: "failure", steps: []step{{fails: "it is broken"}}, want: outcome{
			Code: "MODEL_UNAVAILABLE", Terminal: []string{"TERMINATED"},
		}, reason: "it is broken"},
		{name: "unknown stop", steps: []step{{say: "hm", stop: "coffee_break"}}, want: outcome{
			Text: "hm", Code: "MODEL_UNAVAILABLE", Calls: 1, Tokens: 10, Terminal: []string{"TERMINATED"},
		}, not: []string{"agentd", "face"}, reason: "coffee_break"},
		{name: "cut", steps: []step{{say: "hello there, this takes some time", cut: true}}, want: outcome{
			Text: "hello there, this takes some time", State: "hello there, this takes some time", Ended: true, Calls: 1, Tokens: 10, Terminal: []string{"END_TURN"},
		}},
		{name: "cut behind calls", steps: []step{{say: "looking", calls: []string{"search", "fetch"}}, {say: "done", cut: true}}, want: outcome{
			Text: "lookingdone", Tools: []string{`search {"q":1}`, `fetch {"q":2}`}, State: "done", Ended: true, Calls: 2, Tokens: 20,
			Terminal: []string{"REQUIRES_ACTION", "END_TURN"},
		}},
		{name: "raw", steps: two, turn: func(r *agentdv1.RunRequest_ExecuteRequest) { r.RawPayloads = true }, want: outcome{
			Text: "lookingdone", Tools: []string{`search {"q":1}`, `fetch {"q":2}`}, State: "done", Ended: true, Calls: 2, Tokens: 20,
			Terminal: []string{"REQUIRES_ACTION", "END_TURN"},
		}, check: func(t *testing.T, _ *backend, _ *world, out *outcome) {
			if out.raw != 2 {
				t.Errorf("%d raw payloads", out.raw)
			}
		}},
		{name: "timeout", steps: []step{{say: "wait", hangs: true}}, agent: seconds(1), want: outcome{
			Code: "TIMEOUT", Terminal: []string{"TERMINATED"},
		}, reason: "within 1s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			backends(t, tc.steps, func(t *testing.T, b *backend) {
				w := newWorld(t, b)
				w.tool = tc.tool
				var agents []func(*agentdv1.RemoteAgent)
				if tc.agent != nil {
					agents = append(agents, tc.agent)
				}
				var turns []func(*agentdv1.RunRequest_ExecuteRequest)
				if tc.turn != nil {
					turns = append(turns, tc.turn)
				}
				out := w.play(remoteAgent(agents...), turns...)
				got, want := *out, tc.want
				if tc.name == "timeout" { // what it has said before depends on the kind
					got.Text = ""
				}
				slices.Sort(got.Tools)
				slices.Sort(want.Tools)
				if text(got) != text(want) {
					t.Errorf("%s\nwant %s\n%s", text(got), text(want), out.message)
				}
				if !strings.Contains(out.message, tc.reason) {
					t.Errorf("the error is %q", out.message)
				}
				if m, ok := b.any.(*managed); ok && tc.want.Ended {
					await(t, m.archived) // the end of the turn closes it
				}
				b.seen.mu.Lock()
				defer b.seen.mu.Unlock()
				b.once(t)
				if tc.check != nil {
					tc.check(t, b, w, out)
				}
				for _, auth := range b.seen.auth {
					if !strings.Contains(auth, map[string]string{"managed": deskKey + " 2023-06-01 true", "agentcore": "Credential=AKID/", "agentd": "Bearer " + deskKey, "face": deskKey}[b.name]) {
						t.Fatalf("a request says %q", auth)
					}
				}
			}, tc.not...)
		})
	}
}

func seconds(n int64) func(*agentdv1.RemoteAgent) {
	return func(r *agentdv1.RemoteAgent) { r.Timeout = durationOf(n) }
}

// once fails the test if the backend was asked for something twice.
func (b *backend) once(t *testing.T) {
	t.Helper()
	if b.seen.sessions != 1 {
		t.Errorf("%d sessions", b.seen.sessions)
	}
	for id, n := range b.seen.answers {
		if n != 1 {
			t.Errorf("call %s was answered %d times", id, n)
		}
	}
	if len(b.seen.specs) != 1 {
		t.Errorf("agents %q", b.seen.specs)
	}
}

// TestCancel has a cancel end what runs on the backend.
func TestCancel(t *testing.T) {
	for name, steps := range map[string][]step{
		"while it works": {{say: "wait", hangs: true}},
		"while it waits": {{calls: []string{"search"}}},
	} {
		t.Run(name, func(t *testing.T) {
			backends(t, steps, func(t *testing.T, b *backend) {
				w := newWorld(t, b)
				w.tool = func(*agentdv1.RunResponse_ToolCallRequest) (string, string) { <-t.Context().Done(); return "", "" }
				session, turn := w.begin(remoteAgent())
				opened := make(chan struct{})
				var once sync.Once
				w.onEvent = func(m *agentdv1.RunResponse) {
					if name == "while it waits" && m.GetToolCall() != nil ||
						name == "while it works" && (m.GetOutputChunk() != nil || b.name != "managed" && m.GetRemoteSession().GetRemoteSessionId() != "") {
						once.Do(func() { close(opened) })
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan *outcome, 1)
				w.tool = func(*agentdv1.RunResponse_ToolCallRequest) (string, string) { <-ctx.Done(); return "", "" }
				go func() {
					out, _ := w.follow(ctx, session, turn)
					done <- out
				}()
				<-opened
				if b.name != "managed" { // the request is on its way
					await(t, func() bool { b.seen.mu.Lock(); defer b.seen.mu.Unlock(); return len(b.seen.messages) == 1 })
				}
				if _, err := w.stub.CancelTurn(t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: session, TurnId: turn})); err != nil {
					t.Fatal(err)
				}
				cancel2 := time.AfterFunc(20*time.Second, cancel)
				defer cancel2.Stop()
				if name == "while it waits" {
					defer func() { cancel(); <-done }()
				} else if out := <-done; out.end == nil || out.Ended {
					t.Errorf("the turn ended with %v", out.end)
				}
				if b.closed != nil {
					await(t, b.closed)
				}
			})
		})
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not come")
}
