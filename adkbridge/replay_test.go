package adkbridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// pureModels is a model whose response depends only on the request: the number of the
// agent's responses since the prompt chooses the step, and texts hold a hash of the
// whole prompt, so equal transcripts mean equal prompts.
type pureModels struct {
	steps map[string][]step
	// loose agents see siblings in an order that is free: their hash ignores it.
	loose bool
	calls func(messageID string)
}

func (p pureModels) Resolve(name string, _ map[string]string) (Model, error) {
	return Model{LLM: pureModel{p, name}, Provider: "fake"}, nil
}

type pureModel struct {
	p    pureModels
	name string
}

func (m pureModel) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	n := 0
	var lines []string
	for _, c := range req.Contents {
		if c.Role == "model" {
			n++
		} else if strings.HasPrefix(c.Parts[0].Text, "turn ") {
			n = 0
		}
		lines = append(lines, transcript([]*genai.Content{c}))
	}
	if m.p.loose {
		sort.Strings(lines)
	}
	if m.p.calls != nil {
		m.p.calls(modelcall.From(ctx).MessageID)
	}
	steps := m.p.steps[m.name]
	if n >= len(steps) {
		return nil, fmt.Errorf("%s has no step %d", m.name, n)
	}
	sum := sha256.Sum256([]byte(adapter.Text(req.Config.SystemInstruction) + strings.Join(lines, "")))
	st := steps[n]
	if st.text != "" {
		st.text += " " + hex.EncodeToString(sum[:4])
	}
	return st.respond(ctx, emit)
}

// replayTree is a turn to be killed.
type replayTree struct {
	name     string
	tree     *agentdv1.Agent
	steps    map[string][]step
	turns    int
	ask      bool
	injectAt []int // see fakeRun
	leave    bool  // calls of calc and loop_continue need approval
}

func replayTrees() []replayTree {
	return []replayTree{
		{name: "sequential", tree: seq("root", llm("a"), llm("b")), turns: 2, steps: map[string][]step{
			"a": {use("search"), say("A")}, "b": {use("fetch", "calc"), say("B")},
		}},
		{name: "told", tree: seq("root", llm("a"), llm("b", subs(llm("c")))), turns: 2, injectAt: []int{1, 3, 3, 5}, steps: map[string][]step{
			"a": {use("search"), say("A")}, "b": {use("fetch", "calc"), transfer("c")}, "c": {use("search"), say("C")},
		}},
		{name: "parallel", tree: par("root", llm("a"), llm("b"), llm("c")), turns: 2, steps: map[string][]step{
			"a": {use("search"), say("A")}, "b": {use("search", "fetch", "calc"), say("B")}, "c": {use("calc"), use("fetch"), say("C")},
		}},
		{name: "loop", tree: rounds("root", 5, llm("a"), llm("b", builtin("exit_loop"))), turns: 1, ask: true, steps: map[string][]step{
			"a": {use("search"), say("1"), say("2"), say("3")}, "b": {say("x"), say("y"), exit()},
		}},
		{name: "transfer", tree: llm("root", subs(llm("a"), llm("b", subs(llm("c"))))), turns: 1, steps: map[string][]step{
			"root": {transfer("a"), use("ghost"), say("bye")}, "a": {use("search"), transfer("b")}, "b": {transfer("c"), transfer("root")}, "c": {{thought: "hm"}, use("calc", "fetch"), transfer("b")},
		}},
		{name: "asking", turns: 2, ask: true, leave: true,
			tree: seq("root", llm("a", builtin("ask_user")), par("fan", llm("b", builtin("ask_user")), llm("c")), rounds("l", 3, llm("d"))),
			steps: map[string][]step{
				"a": {inquire("1"), use("calc", "search", "calc"), say("A")}, "b": {step{calls: append(inquire("2", "x", "y").calls, use("calc").calls...)}, say("B")},
				"c": {use("calc"), use("calc"), say("C")}, "d": {use("calc"), say("D"), say("E"), say("F")},
			}},
		{name: "keys of a turn", turns: 2, ask: true,
			tree: seq("root", llm("a", output("temp:a")), llm("b", instruct("{temp:a}"), output("temp:b")),
				rounds("l", 3, llm("c", instruct("{temp:a} {temp:b} {temp:round?} {temp:t?}"), output("temp:a"))), llm("d", instruct("{temp:a} {temp:round?} {temp:t?}"))),
			steps: map[string][]step{
				"a": {say("A")}, "b": {use("search"), say("B")}, "c": {use("calc"), say("1"), use("fetch"), say("2"), say("3")}, "d": {use("search", "calc"), say("D")},
			}},
		{name: "agents as tools", turns: 2, ask: true,
			tree: par("fan",
				llm("root", agents(llm("a", agents(llm("c"))), seq("s", par("p", llm("e"), rounds("l", 2, llm("f"))), llm("d", output("d")))), forked(llm("g"))),
				seq("other", llm("h", agents(llm("i"))))),
			steps: map[string][]step{
				"root": {
					{text: "ask", calls: append(consult("a", "one", "s", "two", "a", "three", "g", "four").calls, use("calc").calls...)},
					consult("g", "five", "a", " "), say("done"),
				},
				// Called twice in a turn: scripts that count by themselves need the steps of both.
				"a": {use("search"), consult("c", "deep"), say("A"), use("search"), consult("c", "deep"), say("A")},
				"c": {use("calc", "fetch"), say("C"), use("calc", "fetch"), say("C")},
				"e": {use("fetch"), say("E")}, "f": {say("1"), say("2")}, "d": {{thought: "hm"}, say("D")}, "g": {use("search"), say("G"), use("search"), say("G")},
				"h": {consult("i", "x", "i", "y"), say("H")}, "i": {use("calc", "calc"), say("I"), use("calc", "calc"), say("I")},
			}},
		{name: "nested", turns: 2, ask: true,
			tree: seq("root", llm("plan", output("plan")), par("fan", rounds("l", 3, llm("w", instruct("plan {plan}")), llm("x", builtin("exit_loop"))), llm("r", subs(llm("y"))), seq("s", llm("q"), llm("v"))), llm("z", instruct("{plan} {seen} {temp:t?}"), output("out"))),
			steps: map[string][]step{
				"plan": {use("search"), say("plan")}, "w": {use("search", "fetch"), say("1"), say("2")}, "x": {say("no"), exit()},
				"r": {use("calc"), transfer("y")}, "y": {use("fetch"), say("yes")},
				"q": {use("calc", "calc"), say("Q")}, "v": {use("search"), say("V")}, "z": {use("calc"), say("Z")},
			}},
	}
}

// killed is a session whose process dies now and then.
type killed struct {
	t     *testing.T
	tc    replayTree
	fatal func(format string, args ...any)
}

// first is the session before it has run.
func (k *killed) first() *fakeRun {
	run := newFakeRun(k.t, k.tc.tree, "turn 0")
	if k.tc.ask {
		run.spec.Tools = append(run.spec.Tools, offer("loop_continue"))
	}
	for _, tool := range run.spec.Tools {
		tool.NeedsApproval = k.tc.leave && (tool.GetName() == "calc" || tool.GetName() == "loop_continue")
	}
	run.person = func(c record.ToolCall) record.Resolution {
		switch {
		case c.Name == "ask_user":
			return record.Resolution{Decision: record.Reply, Answer: "re: " + c.Asks.Text + strings.Join(c.Asks.Choices, ",")}
		case c.Name == "loop_continue":
			return record.Resolution{Decision: record.Approve}
		case c.Path[len(c.Path)-1] == "c":
			return record.Resolution{Decision: record.Deny, Reason: "not today"}
		default:
			return record.Resolution{Decision: record.Approve, Input: []byte(`{"q":2}`)}
		}
	}
	run.injectAt = k.tc.injectAt
	run.client = func(c record.ToolCall) record.ToolResult {
		res := resultWith(fmt.Sprintf(`{"did":%q,"with":%s,"n":12345678901234567890}`, c.Name, c.Input))
		if c.Name == "calc" {
			res.State = map[string]any{"seen": "s", "temp:t": "t"}
		}
		if c.Name == "loop_continue" { // of scope temp alone: its event says nothing
			res.State = map[string]any{"temp:round": string(c.Input)}
		}
		return res
	}
	return run
}

// finish runs the session from its log to the end of its turns, with a fresh
// process. It fails when something that the log holds is repeated.
func (k *killed) finish(run *fakeRun, limit int) (*fakeRun, error) {
	done := map[string]bool{}
	for _, rec := range run.recs {
		if rec.Kind == record.KindEvent {
			s, err := decode(rec.Data)
			run.must(err)
			if llm := s.CustomMetadata.Agentd.LLM; llm != "" && rec.TurnID == run.turnID {
				done[messageID(run.turnID, llm)] = true
			}
		}
	}
	resultsBefore, saidBefore := maps.Clone(run.result), maps.Clone(run.said)
	person := run.person
	run.person = func(c record.ToolCall) record.Resolution {
		if _, ok := saidBefore[c.ID]; ok {
			k.fatal("a person is asked about %s again", c.ID)
		}
		return person(c)
	}
	defer func() { run.person = person }()
	turn := run.turnID
	models := pureModels{steps: k.tc.steps, loose: true, calls: func(messageID string) {
		if turn == run.turnID && done[messageID] {
			k.t.Errorf("model call %s made again", messageID)
		}
	}}
	r := New(Config{Resolve: models.Resolve})
	for {
		ctx, cancel := context.WithCancelCause(k.t.Context())
		run.limit, run.crash = limit, cancel
		err := r.runTurn(ctx, run)
		cancel(nil)
		if err != nil {
			return run, err
		}
		for id := range run.asked {
			if _, ok := resultsBefore[id]; ok {
				k.fatal("call %s asked again", id)
			}
		}
		var n int
		if _, err := fmt.Sscanf(run.spec.Prompt, "turn %d", &n); err != nil || n+1 == k.tc.turns {
			return run, err
		}
		if limit >= 0 && len(run.recs) >= limit {
			return run, errCrashed
		}
		run.begin(fmt.Sprintf("turn %d", n+1))
	}
}

// streams is what each agent said and did, and when it started and ended, in its own order.
func (k *killed) streams(run *fakeRun) map[string][]string {
	out := map[string][]string{}
	ids := map[string]string{}
	requests := map[string]string{} // by room: ids of calls differ from run to run
	for _, rec := range run.recs {
		if rec.Kind == record.KindAgentsChanged {
			for _, c := range changesOf(run, rec) {
				key := rec.TurnID + " at work: " + strings.Join(c.Path, "/") + requests[c.Room]
				out[key] = append(out[key], fmt.Sprint(c.Kind, c.Ended))
			}
		}
		if rec.Kind != record.KindEvent {
			continue
		}
		s, err := decode(rec.Data)
		run.must(err)
		if s.Content == nil {
			s.Content = &genai.Content{}
		}
		for _, p := range s.Content.Parts {
			if p.FunctionCall != nil {
				ids[p.FunctionCall.ID] = fmt.Sprintf("call%d", len(ids))
			}
		}
		if s.CustomMetadata.Agentd.Request != "" {
			requests[s.Branch] = requests[outside(s.Branch)] + "/" + s.Content.Parts[0].Text
		}
		key := rec.TurnID + " " + s.Author + "|" + lineage.Shown(s.Branch) + requests[lineage.Room(s.Branch)]
		out[key] = append(out[key], transcript([]*genai.Content{s.Content})+compact(s.Actions)+compact(s.CustomMetadata.Agentd.Path))
	}
	return out
}

// differs shows the streams that are not as they should be.
func differs(got, want map[string][]string) string {
	var b strings.Builder
	for key := range maps.Keys(want) {
		if !slices.Equal(got[key], want[key]) {
			fmt.Fprintf(&b, "%s\ngot  %s\nwant %s\n", key, compact(got[key]), compact(want[key]))
		}
	}
	for key := range got {
		if want[key] == nil {
			fmt.Fprintf(&b, "%s\ngot  %s\nwant none\n", key, compact(got[key]))
		}
	}
	return b.String()
}

// TestReplayPrefixes cuts the log after each record; the turn then takes the same way
// to the same end, and repeats nothing that the log holds.
func TestReplayPrefixes(t *testing.T) {
	for _, tc := range replayTrees() {
		t.Run(tc.name, func(t *testing.T) {
			k := &killed{t: t, tc: tc, fatal: t.Fatalf}
			full, err := k.finish(k.first(), -1)
			if err != nil {
				t.Fatal(err)
			}
			want := k.streams(full)
			for n := 1; n <= len(full.recs); n++ {
				pre := full.recs[:n]
				got, err := k.finish(full.restarted(n), -1)
				if err != nil {
					t.Fatalf("%d records: %v", n, err)
				}
				if s := k.streams(got); !maps.EqualFunc(s, want, slices.Equal) {
					t.Fatalf("%d records: another transcript\n%s", n, differs(s, want))
				}
				for i := range pre {
					if !bytes.Equal(pre[i].Data, got.recs[i].Data) {
						t.Fatalf("%d records: record %d was rewritten", n, i+1)
					}
				}
			}
		})
	}
}

// TestReplayCrashes kills the process at random records, as often as needed, until
// the turns are done.
func TestReplayCrashes(t *testing.T) {
	for _, tc := range replayTrees() {
		t.Run(tc.name, func(t *testing.T) {
			k := &killed{t: t, tc: tc, fatal: t.Fatalf}
			full, err := k.finish(k.first(), -1)
			if err != nil {
				t.Fatal(err)
			}
			want := k.streams(full)
			for seed := range uint64(8) {
				random := rand.New(rand.NewPCG(seed, 1))
				run := k.first()
				for {
					got, err := k.finish(run, len(run.recs)+1+random.IntN(8))
					if err == nil {
						if s := k.streams(got); !maps.EqualFunc(s, want, slices.Equal) {
							t.Fatalf("seed %d: another transcript\n%s", seed, differs(s, want))
						}
						break
					}
					if !errors.Is(err, errCrashed) {
						t.Fatalf("seed %d: %v", seed, err)
					}
					run = got.restarted(len(got.recs))
				}
			}
		})
	}
}

// TestReplayDiverged fails a turn whose tree does not reach what the log holds,
// and leaves a valid history.
func TestReplayDiverged(t *testing.T) {
	k := &killed{t: t, tc: replayTrees()[0], fatal: t.Fatalf}
	full, err := k.finish(k.first(), -1)
	if err != nil {
		t.Fatal(err)
	}
	run := full.restarted(3) // root and a have started, a has called a tool
	run.spec.Agent = seq("root", llm("b"))
	r := New(Config{Resolve: pureModels{steps: k.tc.steps}.Resolve})
	if err := r.runTurn(t.Context(), run); err == nil || !strings.Contains(err.Error(), "did not reach") || fault.As(err).Message != err.Error() {
		t.Fatalf("error %v, want one that clients see", err)
	}
	run.start = int64(len(run.recs)) // all of it is history now
	hist := newHistory()
	if _, err := hist.load(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	got := hist.prompt("a", "", 0)
	checkValid(t, got)
	if len(got) < 3 || compact(got[2].Parts[0].FunctionResponse.Response) != `{"error":"cancelled: the turn was stopped before this call was over"}` {
		t.Errorf("prompt of a:\n%s", transcript(got))
	}
}
