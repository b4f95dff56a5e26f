package e2e

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
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// failing is how a model fails that is recorded.
type failing struct {
	// serve has the model answer.
	serve func(f *faulty)
	// agent changes the agent; may be nil.
	agent func(a *agentdv1.Agent)
	// turns is how many turns its session has, 0 for one.
	turns int
	// tells is what has to be among the messages.
	tells func(got *dialogue) bool
}

// fails tells of a turn that has failed.
func fails(code agentdv1.ErrorCode, retries int) func(*dialogue) bool {
	return func(got *dialogue) bool {
		return len(got.errors) == 1 && got.errors[0].GetCode() == code && len(got.retries) == retries
	}
}

func failings(wire providertest.Wire) map[string]failing {
	const unavailable = agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
	answered := func(retries int) func(*dialogue) bool {
		return func(got *dialogue) bool { return got.end.GetCompleted() && len(got.retries) == retries }
	}
	long := providertest.Answer{Text: "This goes on and on.", Usage: hello.Usage}
	// A call of which something was shown is not made again; who is slow may not be told of it.
	shown := func(got *dialogue) bool {
		return strings.HasPrefix(long.Text, got.text["root"]) && fails(unavailable, 0)(got)
	}
	serve := func(faults map[int]providertest.Fault, answers ...providertest.Answer) func(*faulty) {
		return func(f *faulty) { f.serve(faults, answers...) }
	}
	compacted := func(got *dialogue) bool {
		for _, m := range got.msgs {
			if m.GetHistoryCompacted() != nil {
				return true
			}
		}
		return false
	}
	windowed := func(f *faulty) { f.handle(&windowed{t: f.t, wire: wire, window: 2000}) }
	out := map[string]failing{
		"slow down, then ok": {
			serve: func(f *faulty) {
				f.serve(map[int]providertest.Fault{
					0: f.refusal(429, http.Header{"Retry-After": {"0.01"}}), 1: refused(wire, 503),
				}, hello)
			},
			tells: answered(2),
		},
		"overloaded":       {serve: func(f *faulty) { f.serve(always(f.refusal(503, nil)), hello) }, tells: fails(unavailable, 2)},
		"refused":          {serve: func(f *faulty) { f.serve(always(f.refusal(400, nil)), hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, 0)},
		"key":              {serve: func(f *faulty) { f.serve(always(f.refusal(401, nil)), hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, 0)},
		"too long":         {serve: func(f *faulty) { f.serve(always(f.refusal(413, nil)), hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG, 0)},
		"wait of an hour":  {serve: func(f *faulty) { f.serve(always(f.refusal(429, http.Header{"Retry-After": {"3600"}})), hello) }, tells: fails(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, 0)},
		"broken, then ok":  {serve: serve(map[int]providertest.Fault{0: {Action: providertest.Abort, Again: true}}, look, hello), tells: answered(1)},
		"broken in a text": {serve: func(f *faulty) { f.handle(cutAfter(f.t, wire, long)) }, tells: shown},
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
	for name, b := range blockedAnswers {
		if b.wire == wire {
			out["blocked: "+name] = failing{
				serve: func(f *faulty) { f.handle(http.HandlerFunc(b.serve)) },
				tells: fails(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, 0),
			}
		}
	}
	return out
}

// cutAfter streams an answer without its end, but with all of its text.
func cutAfter(t *testing.T, wire providertest.Wire, a providertest.Answer) http.Handler {
	t.Helper()
	text := eventStreams(t, wire, a)[0]
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text[:len(text)*3/5]))
	})
}

// TestTapesOfFailures records models that fail, and plays them: the turns are the
// same, and the log of neither daemon tells what was said.
func TestTapesOfFailures(t *testing.T) {
	onEachWire(t, func(t *testing.T, wire providertest.Wire) {
		for name, c := range failings(wire) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				retry := testdaemon.WithRetry(models.Retry{Tries: 3, Base: 1})
				f := newFaulty(t, wire, retry, agentdtest.WithRecordTo(filepath.Join(dir, "calls.jsonl")))
				c.serve(f)
				agent := f.agent("look")
				if c.agent != nil {
					c.agent(agent)
				}
				recorded := turnsOf(t, f.d, agent, max(c.turns, 1))
				told := false
				for _, got := range recorded {
					told = told || c.tells(got)
				}
				if !told {
					t.Fatalf("recorded %v", recorded[len(recorded)-1].msgs)
				}
				if err := f.d.Close(); err != nil {
					t.Error(err)
				}
				for _, tape := range tapes {
					played := newFaulty(t, wire, retry, agentdtest.WithScriptsDir(dir))
					again := proto.CloneOf(agent)
					again.GetLlm().Model = tape
					for i, got := range turnsOf(t, played.d, again, max(c.turns, 1)) {
						if got, want := plainStream(t, unnamed(got.msgs)), plainStream(t, unnamed(recorded[i].msgs)); got != want {
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
	first := providertest.NewServer(t, providertest.Invent(providertest.Anthropic, hello), map[int]providertest.Fault{0: {Action: providertest.Cut, AfterEvents: 1}})
	second := providertest.NewServer(t, providertest.Invent(providertest.Gemini, hello), nil)
	d := startDaemon(t, testdaemon.WithRetry(models.Retry{Tries: 1}), agentdtest.WithRecordTo(filepath.Join(dir, "calls.jsonl")),
		agentdtest.WithProvider(providerAt(providertest.Anthropic, strings.TrimSuffix(first.BaseURL(providertest.Anthropic), "/"), nil)),
		agentdtest.WithProvider(providerAt(providertest.Gemini, strings.TrimSuffix(second.BaseURL(providertest.Gemini), "/"), nil)))
	agent := backed([]providertest.Wire{providertest.Anthropic, providertest.Gemini})
	recorded := faultyTurn(t, d, agent, "")
	if u := recorded.end.GetUsageSummary(); len(recorded.fallbacks) != 1 || u.GetLlmCalls() != 2 || int64(u.GetTotalUsage().GetTotalTokens()) <= hello.Usage.Total {
		t.Fatalf("%v", recorded.msgs)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, tape := range tapes {
		again := llmAgent("root", tape, "")
		got := faultyTurn(t, tapeDaemon(t, dir), again, "")
		if got, want := plainStream(t, unnamed(got.msgs)), plainStream(t, unnamed(recorded.msgs)); got != want {
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
	counts := provider{name: "counts", open: func(agent string) generate {
		return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			_, said := req.LastUser()
			if err := rest(ctx, rand.N(2*time.Millisecond)); err != nil {
				return nil, err
			}
			b := model.NewBuilder("counts", emit)
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
					below = append(below, llmAgent(fmt.Sprint("a", a), name(fmt.Sprint("a", a)), ""))
				}
				id := ""
				for n := range turns {
					m := start(sequentialAgent("root", loopAgent("rounds", 2, parallelAgent("all", below...)), llmAgent("sum", name("sum"), "")))
					m.GetExecute().UserPrompt = fmt.Sprint("prompt ", n, " of ", s)
					if id != "" {
						m.GetExecute().SessionId = &id
					}
					got := rule{t, agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.talk(m, nil)
					if id = got.session; !got.end.GetCompleted() {
						t.Errorf("%v", got.errors)
					}
					mu.Lock()
					for agent, text := range got.text {
						said[fmt.Sprint(s, " ", n, " ", agent)] = text
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return said
	}
	d := startDaemon(t, agentdtest.WithProvider(counts), agentdtest.WithRecordTo(calls))
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
func turnsOf(t *testing.T, d *agentdtest.Daemon, agent *agentdv1.Agent, n int) []*dialogue {
	t.Helper()
	var out []*dialogue
	session := ""
	for range n {
		got := faultyTurn(t, d, agent, session)
		session = got.session
		out = append(out, got)
	}
	return out
}
