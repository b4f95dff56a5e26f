package adkbridge

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// TestReplaySiblingKey: once the log holds the key that an agent's instruction needs,
// the turn continues, even if the key is of a sibling that reaches it later now.
func TestReplaySiblingKey(t *testing.T) {
	for _, key := range []string{"k", "temp:k", "app:k"} {
		t.Run(key, func(t *testing.T) {
			written := make(chan struct{})
			k := &killed{t: t, fatal: t.Fatalf, tc: replayTree{
				turns: 1,
				tree:  par("root", seq("s", llm("a"), llm("b", instruct("use {"+key+"}"))), seq("u", llm("c", output(key)), llm("d"))),
				steps: map[string][]step{
					"a": {say("A")}, "b": {use("search"), say("B")}, "c": {{text: "C"}}, "d": {use("fetch"), say("D")},
				},
			}}
			run := k.first()
			run.appending = func(ev *record.Event) {
				if slices.Contains(ev.Path, "c") {
					close(written)
				}
			}
			steps := maps.Clone(k.tc.steps)
			steps["a"] = []step{{text: "A", gate: written}} // so that b runs behind c
			if err := New(Config{Resolve: pureModels{steps: steps, loose: true}.Resolve}).runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			logged := false
			for n := 1; n <= len(run.recs); n++ {
				rec := run.recs[n-1]
				logged = logged || rec.Kind == record.KindEvent && bytes.Contains(rec.Data, []byte(`"author":"c"`))
				for range 5 {
					if !logged {
						continue
					}
					if _, err := k.finish(run.restarted(n), -1); err != nil {
						t.Fatalf("%d of %d records: %v", n, len(run.recs), err)
					}
				}
			}
		})
	}
}

// TestReplayTempListed: a replay recovers the keys of the turn alone that calls
// received.
func TestReplayTempListed(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"a": {say("A")}, "b": {use("calc"), say("B1"), say("B2")}, "c": {say("C")},
	})
	w.tools = append(w.tools, offer("loop_continue"))
	w.state = map[string]any{"temp:first": "F"}
	rounded := 0
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if tc.GetToolName() == "loop_continue" {
			rounded++
			return session.ClientResult{Output: new(`{"continue":true}`), State: map[string]any{"temp:round": rounded}}
		}
		return session.ClientResult{Output: new("ok"), State: map[string]any{"temp:tool": "T"}}
	}
	all := instruct("{temp:first} {temp:a?} {temp:b?} {temp:tool?} {temp:round?}|")
	turn := w.start(seq("root", llm("a", all, output("temp:a")), rounds("l", 2, llm("b", all, output("temp:b"))), llm("c", all)), "go")
	w.follow(turn).ok(t)
	var got []string
	for _, c := range w.sameAsSent(turn.ID(), 5) {
		text, _, _ := strings.Cut(c.GetInstruction(), "|")
		got = append(got, text)
	}
	want := []string{"F    ", "F A   ", "F A  T ", "F A B1 T 1", "F A B2 T 2"}
	if !slices.Equal(got, want) {
		t.Errorf("calls got %q, want %q", got, want)
	}
	w.checkAll()
}

// TestReplayRefusedKeys: a turn whose state did not take a key fails, also when the
// process dies between the event, which is kept without the key, and the turn's end.
func TestReplayRefusedKeys(t *testing.T) {
	next := llm("b", instruct("It is {k?}."))
	for name, tree := range map[string]*agentdv1.Agent{
		"output key": seq("root", llm("a", output("k")), next),
		"tool":       seq("root", llm("c"), next),
		"parallel":   seq("root", par("p", llm("a", output("k")), llm("d")), next),
	} {
		t.Run(name, func(t *testing.T) {
			first := newFakeRun(t, tree, "turn 0")
			first.refuse = func(ev *record.Event) error {
				if len(ev.State) > 0 {
					return fault.Errorf(codeLimit, "state: no room")
				}
				return nil
			}
			first.client = func(record.ToolCall) record.ToolResult {
				res := resultWith("ok")
				res.State = map[string]any{"k": "v"}
				return res
			}
			models := pureModels{steps: map[string][]step{"a": {say("A")}, "c": {use("calc"), say("C")}, "d": {say("D")}}, loose: true, calls: func(messageID string) {
				if strings.Contains(messageID, "/b|") {
					t.Error("the next agent is called")
				}
			}}
			isLimit(t, New(Config{Resolve: models.Resolve}).runTurn(t.Context(), first), "state: no room")
			for n := 1; n <= len(first.recs); n++ {
				isLimit(t, New(Config{Resolve: models.Resolve}).runTurn(t.Context(), first.restarted(n)), "")
			}
		})
	}
}

// keyed is a random tree of agents that write and read keys of the state.
type keyed struct {
	random *rand.Rand
	steps  map[string][]step
	n      int
}

var keyScopes = []string{"", "user:", "app:", "temp:"}

// tree grows a tree. sure are the keys that are written when it begins; it returns
// those that are written when it has ended.
func (k *keyed) tree(depth int, sure []string) (*agentdv1.Agent, []string) {
	k.n++
	name := fmt.Sprintf("n%d", k.n)
	kind := k.random.IntN(5)
	if depth == 0 || kind > 2 {
		return k.agent(name, sure)
	}
	var kids []*agentdv1.Agent
	after := sure
	for range 1 + k.random.IntN(3) {
		begins := after
		if kind == 1 {
			begins = sure
		}
		kid, written := k.tree(depth-1, begins)
		kids, after = append(kids, kid), append(slices.Clip(after), written...)
	}
	switch kind {
	case 0:
		return seq(name, kids...), after
	case 1:
		return par(name, kids...), after
	default:
		return rounds(name, 2, kids...), after
	}
}

func (k *keyed) agent(name string, sure []string) (*agentdv1.Agent, []string) {
	var text strings.Builder
	for _, key := range sure {
		if k.random.IntN(2) == 0 {
			fmt.Fprintf(&text, "{%s} ", key)
		}
	}
	for i := range k.n + 2 {
		if k.random.IntN(3) == 0 {
			fmt.Fprintf(&text, "{%sk%d?} ", keyScopes[k.random.IntN(len(keyScopes))], i)
		}
	}
	for range 8 { // loops within loops come twice each
		if k.random.IntN(2) == 0 {
			k.steps[name] = append(k.steps[name], use([]string{"search", "calc"}[k.random.IntN(2)]))
		}
		k.steps[name] = append(k.steps[name], say(name))
	}
	key := fmt.Sprintf("%sk%d", keyScopes[k.random.IntN(len(keyScopes))], k.n)
	return llm(name, instruct(text.String()), output(key)), append(slices.Clip(sure), key)
}

// TestReplayKeys: a turn of random agents that write and read keys of each scope
// resumes after each of its records, reaches its end and repeats nothing; its log is
// what the engine writes.
func TestReplayKeys(t *testing.T) {
	for seed := range uint64(16) {
		grown := &keyed{random: rand.New(rand.NewPCG(seed, 7)), steps: map[string][]step{}}
		tree, _ := grown.tree(3, nil)
		k := &killed{t: t, fatal: t.Fatalf, tc: replayTree{tree: tree, turns: 1, ask: seed%2 == 0, steps: grown.steps}}
		full, err := k.finish(k.first(), -1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for n := 1; n <= len(full.recs); n++ {
			got, err := k.finish(full.restarted(n), -1)
			if err != nil {
				t.Fatalf("seed %d: %d of %d records: %v", seed, n, len(full.recs), err)
			}
			if n == len(full.recs) && len(got.recs) != n {
				t.Fatalf("seed %d: a whole log grows from %d to %d records", seed, n, len(got.recs))
			}
		}
	}
}

// TestKilledWhileClosing: a turn that is killed after the results that its end gives to
// open calls, and before that end, continues; its clients can still return results for
// these calls.
func TestKilledWhileClosing(t *testing.T) {
	asked := make(chan struct{})
	run := newFakeRun(t, par("root", llm("left"), llm("right")), "go")
	run.client = func(record.ToolCall) record.ToolResult {
		close(asked)
		return record.ToolResult{} // nobody answers
	}
	steps := map[string][]step{"left": {use("search"), say("L")}, "right": {{err: errors.New("broken"), gate: asked}}}
	if err := New(Config{Resolve: pureModels{steps: steps, loose: true}.Resolve}).runTurn(t.Context(), run); err == nil {
		t.Fatal("the turn completes, want a failure")
	}
	last, err := decode(run.recs[len(run.recs)-1].Data)
	if err != nil || !last.isCutOff() {
		t.Fatalf("the log ends with %v, %v, want results of what was open", last, err)
	}
	restarted := run.restarted(len(run.recs))
	restarted.client = func(record.ToolCall) record.ToolResult { return resultWith(`{"found":1}`) }
	steps["right"] = []step{say("R")}
	if err := New(Config{Resolve: pureModels{steps: steps, loose: true}.Resolve}).runTurn(t.Context(), restarted); err != nil {
		t.Fatal(err)
	}
	if len(restarted.asked) != 1 {
		t.Errorf("%d calls were asked, want 1", len(restarted.asked))
	}
}
