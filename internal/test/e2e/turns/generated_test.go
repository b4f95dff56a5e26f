package turns

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genai"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/internal/test/sessionfront"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// script is what a client does with a session.
type script struct {
	tree   *agentdv1.Agent
	beside bool // agents run side by side
	turns  []playedTurn
}

// playedTurn is what it does in a turn.
type playedTurn struct {
	prompt string
	salt   string          // of what it says to calls
	drops  []int           // numbers of messages after which it drops the stream and comes back
	stopAt int             // number of the call at which it stops the turn; 0 is none
	reason string          // of the stop; "" cancels
	busy   agentdv1.OnBusy // of another prompt that comes with the first call; 0 is none
}

func (p script) String() string {
	return fmt.Sprintf("%v: %+v", p.tree, p.turns)
}

// scripts generates them.
func scripts() *rapid.Generator[script] {
	return rapid.Custom(func(t *rapid.T) script {
		b := &treeBuilder{t: t}
		p := script{tree: b.agent(3, 1)}
		p.beside = b.beside
		for i := range rapid.IntRange(1, 3).Draw(t, "turns") {
			turn := playedTurn{prompt: fmt.Sprint("prompt ", i), salt: rapid.StringMatching(`[a-z]{3}`).Draw(t, "salt")}
			turn.drops = rapid.SliceOfN(rapid.IntRange(1, 12), 0, 3).Draw(t, "drops")
			// Where a turn is stopped must not depend on time, nor on what is asked again
			// first.
			if !p.beside && len(turn.drops) == 0 {
				turn.stopAt = rapid.IntRange(0, 6).Draw(t, "stop at")
				turn.reason = rapid.SampledFrom([]string{"", "enough"}).Draw(t, "reason")
			}
			if turn.stopAt == 0 {
				kinds := []agentdv1.OnBusy{0, 0, agentdv1.OnBusy_ON_BUSY_ENQUEUE}
				if !p.beside && len(turn.drops) == 0 { // who is asked meanwhile depends on time
					kinds = append(kinds, agentdv1.OnBusy_ON_BUSY_INJECT)
				}
				turn.busy = rapid.SampledFrom(kinds).Draw(t, "busy")
			}
			p.turns = append(p.turns, turn)
		}
		return p
	})
}

// treeBuilder makes trees of at most so many levels.
type treeBuilder struct {
	t      *rapid.T
	n      int // agents so far
	beside bool
}

func (b *treeBuilder) agent(levels, width int) *agentdv1.Agent {
	b.n++
	name := fmt.Sprint("a", b.n)
	kind := 0
	if levels > 1 && b.n < 8 {
		kind = rapid.IntRange(0, 3).Draw(b.t, "kind")
	}
	kids := func() (out []*agentdv1.Agent) {
		for range rapid.IntRange(1, 2+width).Draw(b.t, "kids") {
			out = append(out, b.agent(levels-1, 0))
		}
		return out
	}
	switch kind {
	case 1:
		return harness.SequentialAgent(name, kids()...)
	case 2:
		b.beside = true
		return harness.ParallelAgent(name, kids()...)
	case 3:
		return harness.LoopAgent(name, uint32(rapid.IntRange(1, 2).Draw(b.t, "most")), kids()...)
	default: // its model calls so many tools in its answers, one after the other
		return harness.LLMAgent(name, "steps/"+rapid.StringMatching(`[0-3]?[0-2]?0`).Draw(b.t, "steps"), "", "look", "fetch")
	}
}

// stepsModel calls tools as its name says, again and again.
func stepsModel() harness.Provider {
	return harness.Provider{Name: "steps", Model: func(steps string) harness.Generate {
		return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			n := 0
			for _, c := range req.Contents {
				if c.Role == genai.RoleModel {
					n++
				}
			}
			b := &adapter.Builder{Provider: "steps", Emit: emit}
			for word := range words.Split(fmt.Sprintf("Answer %d was told %s", n, digest("sum", req))) {
				b.Text(word)
			}
			for i := range int(steps[n%len(steps)] - '0') {
				b.Part(adapter.NewCall("", []string{"look", "fetch"}[i%2], fmt.Sprintf(`{"n":%d,"i":%d}`, n, i)))
			}
			return &model.Response{
				Content: b.Content(), FinishReason: genai.FinishReasonStop,
				Usage: model.Usage{Prompt: 3, Completion: 2, Total: 5}, Model: "steps",
			}, nil
		}
	}}
}

// runner is a daemon that runs scripts over one service.
type runner struct {
	over  harness.Service
	runs  agentdv1connect.AgentdClient
	store *queueTeller
}

// queueTeller tells when a prompt has been recorded that waits.
type queueTeller struct {
	store.Store
	told chan string // sessions; has room for those of one script
}

func (q *queueTeller) Append(ctx context.Context, b store.Batch) error {
	err := q.Store.Append(ctx, b)
	if err == nil && slices.ContainsFunc(b.Records, func(r record.Record) bool { return r.Kind == record.KindTurnQueued }) {
		q.told <- b.SessionID
	}
	return err
}

func newRunner(t *testing.T, over harness.Service) *runner {
	t.Helper()
	disk, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	th := &runner{over: over, store: &queueTeller{Store: disk, told: make(chan string, 16)}}
	cfg := agentdtest.Config{Providers: []model.Provider{stepsModel()}}
	opts := []testdaemon.Option{
		testdaemon.WithStore(th.store), testdaemon.WithTurnLimits(limits.Limits{HandoverGrace: 5 * time.Millisecond}),
	}
	if over == harness.OverRun { // whose daemon is the first to begin and the last to end
		cfg.LeakCheck = true
	} else {
		opts = append(opts, testdaemon.WithFront(func(hc *http.Client, url string) http.Handler {
			f, err := sessionfront.New(hc, url)
			if err != nil {
				t.Fatal(err)
			}
			return f.Handler()
		}))
	}
	d := agentdtest.Start(t, cfg, opts...)
	th.runs = agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)
	return th
}

// outcome is what a script left behind.
type outcome struct {
	log     string
	streams []string
	refused int // answers that did not count; not known where streams were dropped
}

// run runs a script in a session of its own.
func (th *runner) run(t testing.TB, p script) outcome {
	t.Helper()
	var out outcome
	id := ""
	for i, turn := range p.turns {
		a := &actor{th: th, p: p, turn: turn, session: id}
		ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: turn.prompt, OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE}
		if i == 0 {
			ex.Agent, ex.Tools = p.tree, a.tools()
		} else {
			ex.SessionId = &id
		}
		others := a.act(t, ex)
		id = a.session
		for _, actor := range append([]*actor{a}, others...) {
			out.streams = append(out.streams, actor.story(t))
			out.refused += actor.refused
		}
		if len(turn.drops) > 0 {
			out.refused = 0
		}
	}
	recs, err := th.store.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	out.log = harness.PlainLog(t, recs)
	return out
}

// actor is the client of one turn. One goroutine uses it.
type actor struct {
	th      *runner
	p       script
	turn    playedTurn
	session string
	id      string // of the turn that has begun last

	cursor  int64
	got     []*agentdv1.RunResponse
	calls   map[string]bool
	stopped bool
	refused int
	bidi    *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	drop    func()
}

// act has the turn to its end and returns the clients of the prompts that came in
// between.
func (a *actor) act(t testing.TB, ex *agentdv1.RunRequest_ExecuteRequest) (others []*actor) {
	t.Helper()
	a.calls = map[string]bool{}
	var beside sync.WaitGroup
	defer beside.Wait()
	a.open(t, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
	defer func() { a.drop() }()
	for n := 1; ; n++ {
		m, err := a.bidi.Receive()
		if errors.Is(err, io.EOF) {
			return others
		}
		if err != nil {
			t.Errorf("%v: %v after %v", a.th.over, err, a.got)
			return others
		}
		if m.GetExecute() != nil {
			a.session, a.id = m.GetExecute().GetSessionId(), m.GetTurnId()
		}
		if e := m.GetError(); m.GetSeq() == 0 && e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
			a.drop() // the next turn is just starting
			a.id = cmp.Or(a.id, m.GetTurnId())
			a.comeBack(t)
			continue
		} else if m.GetSeq() == 0 && e != nil {
			a.refused++
		}
		a.cursor = max(a.cursor, m.GetSeq())
		a.got = append(a.got, m)
		switch {
		case m.GetEnd() != nil:
			_ = a.bidi.CloseRequest()
			continue
		case m.GetToolCall() != nil:
			if other := a.asked(t, m.GetToolCall()); other != nil {
				others = append(others, other)
				beside.Go(func() {
					prompt := &agentdv1.RunRequest_ExecuteRequest{SessionId: &a.session, UserPrompt: "meanwhile", OnBusy: a.turn.busy}
					other.act(t, prompt)
				})
				<-a.th.store.told
			}
			a.answer(t, m.GetToolCall())
		}
		if slices.Contains(a.turn.drops, n) && !a.stopped && a.session != "" {
			a.drop()
			a.comeBack(t)
		}
	}
}

func (a *actor) tools() []*agentdv1.Tool {
	return []*agentdv1.Tool{harness.Tool("look"), harness.Tool("fetch")}
}

// comeBack follows the turn from where the client is.
func (a *actor) comeBack(t testing.TB) {
	var after *int64 // from the beginning of the turn
	if a.cursor > 0 {
		after = &a.cursor
	}
	a.open(t, harness.Attach(a.session, a.id, after, a.tools()...))
}

func (a *actor) open(t testing.TB, first *agentdv1.RunRequest) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	bidi := a.th.runs.Run(ctx)
	a.bidi, a.drop = bidi, func() {
		cancel()
		_ = bidi.CloseRequest()
		_ = bidi.CloseResponse()
	}
	a.say(t, first)
}

func (a *actor) say(t testing.TB, m *agentdv1.RunRequest) {
	if err := a.bidi.Send(m); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("%v: send: %v", a.th.over, err)
	}
}

// asked takes note of a call and returns the client of a prompt that is to come
// now.
func (a *actor) asked(t testing.TB, call *agentdv1.RunResponse_ToolCallRequest) (other *actor) {
	if a.calls[call.GetToolCallId()] {
		return nil // asked again
	}
	a.calls[call.GetToolCallId()] = true
	if len(a.calls) == 1 && a.turn.busy != 0 {
		return &actor{th: a.th, p: a.p, turn: playedTurn{salt: a.turn.salt}, session: a.session}
	}
	return nil
}

// answer says about a call what belongs to it, whichever run it is of.
func (a *actor) answer(t testing.TB, call *agentdv1.RunResponse_ToolCallRequest) {
	if a.stopped || len(a.calls) == a.turn.stopAt {
		if !a.stopped {
			a.stopped = true
			stop := harness.Cancel(nil)
			if reason := a.turn.reason; reason != "" {
				stop = &agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &reason}}}
			}
			a.say(t, stop)
		}
		return
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, a.turn.salt, call.GetAgentPath(), call.GetToolName(), call.GetToolInput())
	result := &agentdv1.RunRequest_ToolCallResponse{}
	switch kind := h.Sum32() % 6; kind {
	case 0:
		result.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: fmt.Sprint("no luck ", h.Sum32())}
	case 1: // neither
	case 2: // a call that nobody has made
		a.say(t, harness.ToolResult("call_of_nobody", "x"))
		fallthrough
	default:
		result.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: fmt.Sprintf(`{"found":%d}`, h.Sum32())}
	}
	for range 1 + h.Sum32()%2 { // the same again is silent
		a.say(t, harness.ToolResponse(call.GetToolCallId(), proto.CloneOf(result)))
	}
}

// story is what the turn's streams told, each thing once.
func (a *actor) story(t testing.TB) string {
	t.Helper()
	var once []*agentdv1.RunResponse
	told := map[string]bool{} // calls
	at := int64(0)
	for _, m := range a.got {
		if m.GetSeq() <= at || m.GetTurnQueued() != nil && m.GetTurnId() != a.id {
			continue // who comes back is not told of other turns
		}
		at = m.GetSeq()
		m = proto.CloneOf(m)
		if c := m.GetToolCall(); c != nil {
			if told[c.GetToolCallId()] {
				continue // asked again
			}
			m.Response = &agentdv1.RunResponse_ToolCallAnnounced{ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
				SessionId: c.GetSessionId(), ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), ToolInput: c.GetToolInput(), AgentPath: c.GetAgentPath(),
			}}
		}
		if c := m.GetToolCallAnnounced(); c != nil {
			told[c.GetToolCallId()] = true
		}
		once = append(once, m)
	}
	if !a.p.beside {
		return harness.PlainStream(t, once)
	}
	var paths []string
	byPath := map[string][]*agentdv1.RunResponse{}
	for _, m := range once {
		path := strings.Join(slices.Concat(m.GetOutputChunk().GetAgentPath(), m.GetToolCallAnnounced().GetAgentPath(), m.GetToolCallAnswered().GetAgentPath(), m.GetModelCallEnded().GetAgentPath(), m.GetMessageCompleted().GetAgentPath(), m.GetTransferred().GetAgentPath(), m.GetAgentStarted().GetAgentPath(), m.GetAgentEnded().GetAgentPath()), "/")
		if byPath[path] == nil {
			paths = append(paths, path)
		}
		byPath[path] = append(byPath[path], m)
	}
	slices.Sort(paths)
	var out []string
	for _, path := range paths {
		if path == "" {
			out = append(out, harness.PlainStream(t, byPath[path]))
			continue
		}
		out = append(out, harness.PlainStream(t, append(byPath[path], &agentdv1.RunResponse{
			TurnId: a.id, Response: &agentdv1.RunResponse_End{End: &agentdv1.RunResponse_EndResponse{Completed: true}},
		})))
	}
	return strings.Join(out, "\n")
}

// TestGeneratedTurns runs generated scripts over both services: they leave equal
// logs and equal streams. -rapid.checks says how many; its default, 100, becomes
// 30 here.
func TestGeneratedTurns(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "30"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set("rapid.checks", f.DefValue) }()
	}
	run, sessions := newRunner(t, harness.OverRun), newRunner(t, harness.OverSessions)
	rapid.Check(t, func(rt *rapid.T) {
		p := scripts().Draw(rt, "script")
		a, b := run.run(t, p), sessions.run(t, p)
		if t.Failed() {
			rt.Fatalf("a client was let down")
		}
		if a.log != b.log {
			rt.Errorf("the logs differ %s", plainlog.Difference(a.log, b.log))
		}
		if !slices.Equal(a.streams, b.streams) {
			rt.Errorf("the streams differ %s", plainlog.Difference(strings.Join(a.streams, "\n\n"), strings.Join(b.streams, "\n\n")))
		}
		if a.refused != b.refused {
			rt.Errorf("%d refusals over Run, %d over SessionService", a.refused, b.refused)
		}
	})
}
