package adkbridge

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session/record"
)

// BenchmarkEngine is a turn of 20 tool calls, one after the other, and a text, whose model and tool take no time, after
// so many rounds of history, and with tool results of so many bytes. engine=adk is the bridge with ADK, engine=none the
// bridge alone: a loop calls the model, keeps the response, runs the tool, and keeps its result. Between them is what ADK takes: adk-µs/step, adk-allocs/step and
// adk-B/step for each model call with its tool call.
func BenchmarkEngine(b *testing.B) {
	const steps = 20
	engines := []struct {
		name string
		run  func(r *Runner, ctx context.Context, run handle) error
	}{{"none", (*Runner).runBare}, {"adk", (*Runner).runTurn}}
	for _, c := range []struct{ rounds, result int }{{10, 10}, {100, 10}, {1000, 10}, {10, 64 << 10}} {
		var bare took
		for _, engine := range engines {
			b.Run(fmt.Sprintf("rounds=%d/result=%d/engine=%s", c.rounds, c.result, engine.name), func(b *testing.B) {
				calls := 0
				s := &script{always: func(string) step {
					if calls++; calls%(steps+1) == 0 {
						return say("done")
					}
					return use("search")
				}}
				root := llm("root")
				run := quickRun{newFakeRun(b, root, "")}
				run.recs = nil
				result := resultWith(fmt.Sprintf(`{"ok":%q}`, strings.Repeat("x", c.result)))
				run.client = func(record.ToolCall) record.ToolResult { return result }
				n := 5 * c.rounds // a round is a prompt, a call, its result, and two texts
				hist := benchHistory(b, run.fakeRun, n, "root")
				hist.prompt("root", "", 0)
				saved, items := *hist.prompts[promptKey{"root", ""}], len(hist.items)
				r := New(Config{Resolve: s.Resolve})
				b.ReportAllocs()
				before := now()
				for b.Loop() {
					s.requests, run.recs = nil, run.recs[:n]
					clear(run.calls)
					clear(run.result)
					run.begin("go on")
					r.cache.put(cacheKey{id: run.SessionID()}, hist)
					if err := engine.run(r, b.Context(), run); err != nil {
						b.Fatal(err)
					}
					if got := len(s.requests[steps].contents); got != n+1+2*steps {
						b.Fatalf("the last request has %d contents, want %d", got, n+1+2*steps)
					}
					p := saved // back to n events
					hist.items, hist.upto = hist.items[:items], int64(n)
					hist.prompts[promptKey{"root", ""}] = &p
				}
				each := now().since(before, float64(b.N*(steps+1)))
				b.ReportMetric(each.micros, "µs/step")
				if engine.name == "none" || bare.allocs == 0 {
					bare = each
					return
				}
				b.ReportMetric(each.micros-bare.micros, "adk-µs/step")
				b.ReportMetric(each.allocs-bare.allocs, "adk-allocs/step")
				b.ReportMetric(each.bytes-bare.bytes, "adk-B/step")
			})
		}
	}
}

// took is what something takes.
type took struct{ micros, allocs, bytes float64 }

func now() took {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return took{float64(time.Now().UnixNano()) / 1e3, float64(m.Mallocs), float64(m.TotalAlloc)}
}

// since is what each of n things took.
func (t took) since(before took, n float64) took {
	return took{(t.micros - before.micros) / n, (t.allocs - before.allocs) / n, (t.bytes - before.bytes) / n}
}

// quickRun is a fake run that does not compare what it appends.
type quickRun struct{ *fakeRun }

func (q quickRun) Append(_ context.Context, data []byte, ev *record.Event) (record.Record, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec, err := q.store(record.KindEvent, data)
	for _, c := range ev.Calls {
		q.calls[c.ID] = c
	}
	return rec, err
}

func (q quickRun) AppendLater(ctx context.Context, data []byte, ev *record.Event) (record.Record, error) {
	return q.Append(ctx, data, ev)
}

func (q quickRun) AppendAtEnd(ctx context.Context, data []byte, ev *record.Event) error {
	_, err := q.Append(ctx, data, ev)
	return err
}

// runBare is runTurn of a tree of one agent without ADK.
func (r *Runner) runBare(ctx context.Context, run handle) error {
	key := cacheKey{run.Spec().Tenant, run.SessionID()}
	hist := r.cache.take(key, run.StartSeq())
	logged, err := hist.load(ctx, run)
	if err != nil {
		return err
	}
	t := newTurn(run, hist, r, logged)
	if t.tree, err = r.planFor(run.Spec(), run.Keys()); err != nil {
		return err
	}
	t.applyLoggedState()
	hist.prune(func(name string) bool { return t.tree.byName[name] != nil })
	n := t.tree.root
	t.agents.start(n, "")
	for more := true; more; {
		if more, err = t.bareStep(ctx, n); err != nil {
			return err
		}
	}
	if err := t.agentCompleted(ctx, n, ""); err != nil {
		return err
	}
	if err := t.close(ctx, nil); err != nil {
		return err
	}
	hist.seal(run.StartSeq())
	r.cache.put(key, hist)
	return nil
}

// bareStep makes one model call and runs its tools. more is false for an answer without any.
func (t *turn) bareStep(ctx context.Context, n *node) (more bool, err error) {
	req := &adkmodel.LLMRequest{Config: &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(instructionMark, genai.RoleUser),
	}}
	tools := map[string]*remoteTool{}
	for _, d := range n.tools {
		tools[d.name] = &remoteTool{baseTool{t: t, name: d.name, decl: d.decl}}
		if err := toolutils.PackTool(req, tools[d.name]); err != nil {
			return false, err
		}
	}
	journal, m := &journal{t: t}, &agentModel{t: t, n: n}
	for resp, err := range m.GenerateContent(bareContext{ctx: ctx}, req, false) {
		if err != nil {
			return false, err
		}
		ev := bareEvent(n)
		ev.LLMResponse = *resp
		if err := journal.AppendEvent(ctx, nil, ev); err != nil {
			return false, err
		}
		results := bareEvent(n)
		results.Content = &genai.Content{Role: genai.RoleUser}
		for _, p := range callsOf(resp.Content) {
			c := p.FunctionCall
			out, err := tools[c.Name].Run(bareContext{ctx: ctx, call: c.ID, actions: &results.Actions}, c.Args)
			if err != nil {
				return false, err
			}
			results.Content.Parts = append(results.Content.Parts, responsePart(c, out))
		}
		if more = len(results.Content.Parts) > 0; more {
			if err := journal.AppendEvent(ctx, nil, results); err != nil {
				return false, err
			}
		}
	}
	return more, nil
}

func bareEvent(n *node) *adksession.Event {
	return &adksession.Event{
		ID: uuid.NewString(), Timestamp: time.Now(), Author: n.name,
		Actions: adksession.EventActions{StateDelta: map[string]any{}, ArtifactDelta: map[string]int64{}},
	}
}

// bareContext is what the bridge uses of ADK's contexts.
type bareContext struct {
	agent.Context // nil
	ctx           context.Context
	call          string
	actions       *adksession.EventActions
}

func (c bareContext) Deadline() (time.Time, bool)       { return c.ctx.Deadline() }
func (c bareContext) Done() <-chan struct{}             { return c.ctx.Done() }
func (c bareContext) Err() error                        { return c.ctx.Err() }
func (c bareContext) Value(key any) any                 { return c.ctx.Value(key) }
func (bareContext) Branch() string                      { return "" }
func (c bareContext) FunctionCallID() string            { return c.call }
func (c bareContext) Actions() *adksession.EventActions { return c.actions }
