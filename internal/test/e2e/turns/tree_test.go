package turns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// treeRuns is how often the tree runs, and treeAtOnce how many of the runs go on
// at a time.
const treeRuns, treeAtOnce = 24, 4

// TestTree runs a tree of depth 7 of all agent types many times, with models and
// tools that take their time at random: each agent says and does the same in
// every run, and what one has to wait for comes before it.
func TestTree(t *testing.T) {
	disk, err := harness.OpenStore(t.Context(), filepath.Join(t.TempDir(), "agentd.db"))
	if err != nil {
		t.Fatal(err)
	}
	d := harness.StartDaemon(t, agentdtest.Config{
		LeakCheck: true,
		Providers: []model.Provider{treeModel()},
		Logger:    slog.New(harness.Alarm{T: t}),
	}, testdaemon.WithStore(disk))
	tree, edges := bigTree(), treeOrder(bigTree())
	traces := make([]*treeTrace, treeRuns)
	var workers sync.WaitGroup
	for w := range treeAtOnce {
		workers.Go(func() {
			for i := w; i < treeRuns; i += treeAtOnce {
				if traces[i] = runTree(t, d, tree); traces[i] == nil {
					return
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		return
	}
	ops := map[op]bool{}
	for _, e := range edges {
		ops[e.before], ops[e.after] = true, true
	}
	orders := map[string]bool{}
	for i, tr := range traces {
		tr.readLog(t, disk)
		if len(tr.spans) != len(ops) {
			t.Errorf("run %d: %d answers, want %d", i, len(tr.spans), len(ops))
		}
		tr.check(t, fmt.Sprint("run ", i), edges)
		orders[strings.Join(tr.order, " ")] = true
		for agent := range traces[0].log {
			if got, want := tr.log[agent], traces[0].log[agent]; !slices.Equal(got, want) {
				t.Errorf("run %d: the log holds of %s\n%s\nwhat it held in the first run was\n%s", i, agent, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if len(tr.log) != len(traces[0].log) || !maps.Equal(tr.wire, traces[0].wire) || tr.usage != traces[0].usage {
			t.Errorf("run %d: the client saw %v, usage %s\nin the first run it was %v, usage %s", i, tr.wire, tr.usage, traces[0].wire, traces[0].usage)
		}
	}
	if len(orders) < 2 {
		t.Error("all runs came in one order: nothing ran side by side")
	}
	t.Logf("%d agents, %d rules of order, %d different orders in %d runs", len(traces[0].log), len(edges), len(orders), treeRuns)
}

// treeTrace is what is seen of a run.
type treeTrace struct {
	session string
	wire    map[string]string   // what each agent said and called, in its order
	log     map[string][]string // the events of each author, without ids and times
	order   []string            // the authors of the log's events
	usage   string
	spans   map[op][2]int // where in the stream an answer begins and ends
	seqs    map[op]int64  // where in the log it is
}

// runTree runs the tree over a stream of its own. Tools are answered after
// random times.
func runTree(t *testing.T, d *agentdtest.Daemon, tree *agentdv1.Agent) *treeTrace {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	bidi := agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL).Run(ctx)
	err := bidi.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
		Agent: tree, UserPrompt: "go", Tools: []*agentdv1.Tool{harness.Tool("look"), harness.Tool("fetch")},
	}}})
	if err != nil {
		t.Error(err)
		return nil
	}
	answers := make(chan *agentdv1.RunRequest)
	var tools, sender sync.WaitGroup
	sender.Go(func() {
		for m := range answers {
			if err := bidi.Send(m); err != nil && ctx.Err() == nil {
				t.Errorf("answer: %v", err)
			}
		}
		_ = bidi.CloseRequest()
	})
	tr := &treeTrace{wire: map[string]string{}, spans: map[op][2]int{}}
	o := harness.NewObserver(1) // at least
	for at := 0; ; at++ {
		m, err := bidi.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("receive: %v", err)
			break
		}
		o.See(m)
		tr.see(m, at)
		if call := m.GetToolCall(); call != nil {
			delay := time.Duration(rand.IntN(4000)) * time.Microsecond
			tools.Go(func() {
				_ = harness.Wait(ctx, delay)
				answers <- &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
					ToolCallId: call.GetToolCallId(),
					Result:     &agentdv1.RunRequest_ToolCallResponse_Output{Output: fmt.Sprintf(`{%q:%s}`, call.GetToolName(), call.GetToolInput())},
				}}}
			})
		}
		if m.GetEnd() != nil {
			tools.Wait()
			close(answers)
			sender.Wait()
		}
	}
	_ = bidi.CloseResponse()
	for _, f := range o.Faults {
		t.Error(f)
	}
	if !o.End.GetCompleted() {
		t.Errorf("the tree did not finish: %v, errors %v", o.End, o.Errors)
		return nil
	}
	tr.session, tr.usage = o.Session, fmt.Sprint(o.End.GetUsageSummary().GetLlmCalls(), o.End.GetUsageSummary().GetTotalUsage().GetTotalTokens())
	return tr
}

// see takes in the message at a place of the stream.
func (tr *treeTrace) see(m *agentdv1.RunResponse, at int) {
	path, text := m.GetOutputChunk().GetAgentPath(), m.GetOutputChunk().GetContent()
	if call := m.GetToolCall(); call != nil {
		path, text = call.GetAgentPath(), " calls "+call.GetToolName()+call.GetToolInput()+" "
	}
	if len(path) == 0 {
		return
	}
	agent := strings.Join(path, "/")
	before := tr.wire[agent]
	tr.wire[agent] = before + text
	// An answer begins with the first of its marks and ends with the last one, its
	// calls included.
	for _, found := range treeMark.FindAllStringSubmatchIndex(tr.wire[agent], -1) {
		if found[1] <= len(before) {
			continue
		}
		o := markedOp(tr.wire[agent], found)
		span, seen := tr.spans[o]
		if !seen {
			span[0] = at
		}
		span[1] = at
		tr.spans[o] = span
	}
}

// readLog reads what the log has of the run.
func (tr *treeTrace) readLog(t *testing.T, store store.Store) {
	turns := harness.ReadLog(t.Context(), t, store, tr.session)
	recs, err := store.Read(t.Context(), tr.session, 0, 10_000)
	if err != nil || len(turns) != 1 {
		t.Errorf("%d turns: %v", len(turns), err)
		return
	}
	tr.log, tr.seqs = map[string][]string{}, map[op]int64{}
	counts := map[string]int{}
	for _, a := range turns[0].Answers {
		o := op{a.Author, counts[a.Author]}
		counts[a.Author]++
		tr.seqs[o] = a.Seq
		for _, call := range a.Calls {
			res, resultAt := turns[0].Responses[call], turns[0].ResultAt[call]
			if res.Seq < a.Seq || resultAt != 0 && (resultAt < a.Seq || resultAt > res.Seq) {
				t.Errorf("%v: call in record %d, result in %d, response in %d", o, a.Seq, resultAt, res.Seq)
			}
			tr.seqs[op{a.Author, -1 - o.n}] = res.Seq
		}
	}
	for _, rec := range recs {
		if rec.Kind == record.KindEvent {
			author, line := scrubbed(t, rec.Data)
			tr.log[author] = append(tr.log[author], line)
			tr.order = append(tr.order, author)
		}
	}
}

// check holds the order of a run, in the stream and in the log, against the
// tree's.
func (tr *treeTrace) check(t *testing.T, run string, edges []edge) {
	for _, e := range edges {
		before, ok1 := tr.spans[e.before]
		after, ok2 := tr.spans[e.after]
		if !ok1 || !ok2 || before[1] >= after[0] {
			t.Errorf("%s: in the stream %v is at %v (%v), %v, which has to follow, is at %v (%v)", run, e.before, before, ok1, e.after, after, ok2)
		}
		seq := tr.seqs[e.before]
		if results, called := tr.seqs[op{e.before.agent, -1 - e.before.n}]; called {
			seq = results
		}
		if seq == 0 || seq >= tr.seqs[e.after] {
			t.Errorf("%s: in the log %v is over in record %d, %v, which has to follow, is record %d", run, e.before, seq, e.after, tr.seqs[e.after])
		}
	}
}
