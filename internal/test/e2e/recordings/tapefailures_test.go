package recordings

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genai"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// failing is how a model fails that is recorded.
type failing struct {
	// serve has the model answer.
	serve func(f *harness.Faulty)
	// agent changes the agent; may be nil.
	agent func(a *agentdv1.Agent)
	// turns is how many turns its session has, 0 for one.
	turns int
	// tells is what has to be among the messages.
	tells func(got *harness.Dialogue) bool
}

// fails tells of a turn that has failed.
func fails(code agentdv1.ErrorCode, retries int) func(*harness.Dialogue) bool {
	return func(got *harness.Dialogue) bool {
		return len(got.Errors) == 1 && got.Errors[0].GetCode() == code && len(got.Retries) == retries
	}
}

func failings(wire providertest.Wire) map[string]failing {
	const unavailable = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
	answered := func(retries int) func(*harness.Dialogue) bool {
		return func(got *harness.Dialogue) bool { return got.End.GetCompleted() && len(got.Retries) == retries }
	}
	long := providertest.Answer{Text: "This goes on and on.", Usage: harness.Hello.Usage}
	// A call of which something was shown is not made again; who is slow may not be told of it.
	shown := func(got *harness.Dialogue) bool {
		return strings.HasPrefix(long.Text, got.Text["root"]) && fails(unavailable, 0)(got)
	}
	serve := func(faults map[int]providertest.Fault, answers ...providertest.Answer) func(*harness.Faulty) {
		return func(f *harness.Faulty) { f.Serve(faults, answers...) }
	}
	compacted := func(got *harness.Dialogue) bool {
		for _, m := range got.Msgs {
			if m.GetHistoryCompacted() != nil {
				return true
			}
		}
		return false
	}
	windowed := func(f *harness.Faulty) { f.Use((&harness.Windowed{T: f.T, Wire: wire, Window: 2000}).Reply) }
	out := map[string]failing{
		"slow down, then ok": {
			serve: func(f *harness.Faulty) {
				f.Serve(map[int]providertest.Fault{
					0: f.Refusal(429, http.Header{"Retry-After": {"0.01"}}), 1: harness.Refused(wire, 503),
				}, harness.Hello)
			},
			tells: answered(2),
		},
		"overloaded": {serve: func(f *harness.Faulty) { f.Serve(harness.Always(f.Refusal(503, nil)), harness.Hello) }, tells: fails(unavailable, 2)},
		"refused":    {serve: func(f *harness.Faulty) { f.Serve(harness.Always(f.Refusal(400, nil)), harness.Hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, 0)},
		"key":        {serve: func(f *harness.Faulty) { f.Serve(harness.Always(f.Refusal(401, nil)), harness.Hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, 0)},
		"too long":   {serve: func(f *harness.Faulty) { f.Serve(harness.Always(f.Refusal(413, nil)), harness.Hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG, 0)},
		"wait of an hour": {serve: func(f *harness.Faulty) {
			f.Serve(harness.Always(f.Refusal(429, http.Header{"Retry-After": {"3600"}})), harness.Hello)
		}, tells: fails(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, 0)},
		"broken, then ok":  {serve: serve(map[int]providertest.Fault{0: {Action: providertest.Abort, Again: true}}, harness.Look, harness.Hello), tells: answered(1)},
		"broken in a text": {serve: func(f *harness.Faulty) { f.Use(cutAfter(f.T, wire, long)) }, tells: shown},
		"compacted ahead": {
			serve: windowed, turns: 20, tells: compacted,
			agent: func(a *agentdv1.Agent) {
				a.GetLlm().Compaction = &agentdv1.Compaction{AtShare: 0.8, ContextTokens: 2000}
			},
		},
		"compacted when refused": {
			serve: windowed, turns: 20, tells: compacted,
			agent: func(a *agentdv1.Agent) { a.GetLlm().Compaction = &agentdv1.Compaction{} },
		},
	}
	for name, b := range harness.BlockedAnswers {
		if b.Wire == wire {
			out["blocked: "+name] = failing{
				serve: func(f *harness.Faulty) { f.Use(b.Script()) },
				tells: fails(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, 0),
			}
		}
	}
	return out
}

// cutAfter streams an answer without its end, but with all of its text.
func cutAfter(t *testing.T, wire providertest.Wire, a providertest.Answer) fakeprovider.Script {
	t.Helper()
	text := harness.EventStreams(t, wire, a)[0]
	return fakeprovider.Answer(fakeprovider.Reply{Events: []string{text[:len(text)*3/5]}})
}

// TestTapesOfFailures records models that fail, and plays them: the turns are the
// same, and the log of neither daemon tells what was said.
func TestTapesOfFailures(t *testing.T) {
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		for name, c := range failings(wire) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				retry := testdaemon.WithRetry(modelcall.Retry{Tries: 3, Base: 1})
				f := harness.NewFaultyWith(t, wire, agentdtest.Config{RecordTo: filepath.Join(dir, "calls.jsonl")}, retry)
				c.serve(f)
				agent := f.Agent("look")
				if c.agent != nil {
					c.agent(agent)
				}
				recorded := turnsOf(t, f.D, agent, max(c.turns, 1))
				told := false
				for _, got := range recorded {
					told = told || c.tells(got)
				}
				if !told {
					t.Fatalf("recorded %v", recorded[len(recorded)-1].Msgs)
				}
				if err := f.D.Close(); err != nil {
					t.Error(err)
				}
				for _, tape := range tapes {
					played := harness.NewFaultyWith(t, wire, agentdtest.Config{ScriptsDir: dir}, retry)
					again := proto.CloneOf(agent)
					again.GetLlm().Model = tape
					for i, got := range turnsOf(t, played.D, again, max(c.turns, 1)) {
						if got, want := harness.PlainStream(t, unnamed(got.Msgs)), harness.PlainStream(t, unnamed(recorded[i].Msgs)); got != want {
							t.Fatalf("%s: turn %d was played as\n%s\nand recorded as\n%s", tape, i, got, want)
						}
					}
				}
			})
		}
	})
}

// TestTapeOfFallback records a call that another model has answered, in place of one
// whose answer broke off. Played, it is that answer, and all that was taken counts.
func TestTapeOfFallback(t *testing.T) {
	dir := t.TempDir()
	first := providertest.NewServer(t, providertest.Invent(providertest.Anthropic, harness.Hello), map[int]providertest.Fault{0: {Action: providertest.Cut, AfterEvents: 1}})
	second := providertest.NewServer(t, providertest.Invent(providertest.Gemini, harness.Hello), nil)
	d := harness.StartDaemon(t, agentdtest.Config{
		RecordTo: filepath.Join(dir, "calls.jsonl"),
		Providers: []model.Provider{
			harness.ProviderAt(providertest.Anthropic, strings.TrimSuffix(first.BaseURL(providertest.Anthropic), "/"), nil),
			harness.ProviderAt(providertest.Gemini, strings.TrimSuffix(second.BaseURL(providertest.Gemini), "/"), nil),
		},
	}, testdaemon.WithRetry(modelcall.Retry{Tries: 1}))
	agent := harness.Backed([]providertest.Wire{providertest.Anthropic, providertest.Gemini})
	recorded := harness.FaultyTurn(t, d, agent, "")
	if u := recorded.End.GetUsageSummary(); len(recorded.Fallbacks) != 1 || u.GetLlmCalls() != 2 || int64(u.GetTotalUsage().GetTotalTokens()) <= harness.Hello.Usage.Total {
		t.Fatalf("%v", recorded.Msgs)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, tape := range tapes {
		again := harness.LLMAgent("root", tape, "")
		got := harness.FaultyTurn(t, tapeDaemon(t, dir), again, "")
		if got, want := harness.PlainStream(t, unnamed(got.Msgs)), harness.PlainStream(t, unnamed(recorded.Msgs)); got != want {
			t.Errorf("%s was played as\n%s\nand recorded as\n%s", tape, got, want)
		}
	}
}

// TestTapeOfParallelAgents records agents that run side by side, turn after turn, of
// several sessions into one file, and plays them side by side too: each agent says
// what it has said, in whatever order they come to their ends.
func TestTapeOfParallelAgents(t *testing.T) {
	const sessions, agents, turns = 4, 5, 3
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls.jsonl")
	var count atomic.Int64
	counts := harness.Provider{Name: "counts", Model: func(agent string) harness.Generate {
		return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			_, said := words.LastUser(req)
			if err := harness.Wait(ctx, rand.N(2*time.Millisecond)); err != nil {
				return nil, err
			}
			b := &adapter.Builder{Provider: "counts", Emit: emit}
			b.Text(fmt.Sprint(agent, " hears ", said, " as number ", count.Add(1), strings.Repeat(" word", 2000)))
			return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop}, nil
		}
	}}
	hold := func(d *agentdtest.Daemon, name func(agent string) string) map[string]string {
		var mu sync.Mutex // protects said
		said := map[string]string{}
		var all sync.WaitGroup
		for s := range sessions {
			all.Go(func() {
				var below []*agentdv1.Agent
				for a := range agents {
					below = append(below, harness.LLMAgent(fmt.Sprint("a", a), name(fmt.Sprint("a", a)), ""))
				}
				id := ""
				for n := range turns {
					m := harness.StartTurn(harness.SequentialAgent("root", harness.LoopAgent("rounds", 2, harness.ParallelAgent("all", below...)), harness.LLMAgent("sum", name("sum"), "")))
					m.GetExecute().UserPrompt = fmt.Sprint("prompt ", n, " of ", s)
					if id != "" {
						m.GetExecute().SessionId = &id
					}
					got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(m, nil)
					if id = got.Session; !got.End.GetCompleted() {
						t.Errorf("%v", got.Errors)
					}
					mu.Lock()
					for agent, text := range got.Text {
						said[fmt.Sprint(s, " ", n, " ", agent)] = text
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return said
	}
	d := harness.StartDaemon(t, agentdtest.Config{Providers: []model.Provider{counts}, RecordTo: calls})
	recorded := hold(d, func(agent string) string { return "counts/" + agent })
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if len(recorded) != sessions*(agents+1)*turns || count.Load() != sessions*(2*agents+1)*turns {
		t.Fatalf("%d texts of %d calls", len(recorded), count.Load())
	}
	for range 2 {
		played := hold(tapeDaemon(t, dir), func(string) string { return "scripted/calls:strict" })
		if !maps.Equal(played, recorded) {
			t.Errorf("%d texts were played that are not those %d", len(played), len(recorded))
		}
	}
}

// turnsOf runs turns of one session.
func turnsOf(t *testing.T, d *agentdtest.Daemon, agent *agentdv1.Agent, n int) []*harness.Dialogue {
	t.Helper()
	var out []*harness.Dialogue
	session := ""
	for range n {
		got := harness.FaultyTurn(t, d, agent, session)
		session = got.Session
		out = append(out, got)
	}
	return out
}
