package adkbridge

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// allocated is how many bytes f takes from the heap, freed or not. Tests that use it
// run beside no other.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// multiplied is an instruction of 60 KB that is 20 GB with a value of 1 MB.
var multiplied = instruct(strings.Repeat("{k}", 20_000))

var megabyte = strings.Repeat("x", 1_000_000)

// isLimit fails the test unless an error is LIMIT_EXCEEDED and says all of this.
func isLimit(t *testing.T, err error, says ...string) {
	t.Helper()
	e := fault.As(err)
	for _, want := range says {
		if e == nil || e.Code != codeLimit || !strings.Contains(e.Message, want) {
			t.Fatalf("error %v, want LIMIT_EXCEEDED that says %q", err, want)
		}
	}
}

// TestFillSize: the size of an instruction is known without its text.
func TestFillSize(t *testing.T) {
	keys := []string{"a", "b", "user:c", "temp:d"}
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.OneOf(rapid.SampledFrom([]string{"{a}", "{b}", "{a?}", "{user:c}", "{temp:d?}", "{missing?}", "{", "{}"}), rapid.StringN(0, 9, 30))
		text := strings.Join(rapid.SliceOfN(piece, 0, 20).Draw(rt, "text"), "")
		parsed, err := parseInstruction(text)
		if err != nil {
			rt.Skip(err)
		}
		n := &node{kind: llmKind, instruction: parsed}
		spec := &record.Spec{Before: rapid.StringN(0, 5, 15).Draw(rt, "before"), After: rapid.StringN(0, 5, 15).Draw(rt, "after")}
		state := map[string]any{}
		for _, key := range keys { // no blank values: a text of these alone is not in the prompt, and counts
			state[key] = rapid.OneOf(rapid.StringMatching(`v.*`).AsAny(), rapid.Int().AsAny(), rapid.SliceOf(rapid.String()).AsAny()).Draw(rt, key)
		}
		f := n.fill(spec, state)
		text = f.text()
		if got := f.size(); got < len(text) || got > len(text)+len(spec.Before)+len(spec.After)+f.literal+2*len(layerBreak) {
			rt.Fatalf("%d bytes foreseen, %d are told", got, len(text))
		}
		if f.check(f.size()) != nil || f.check(f.size()-1) == nil {
			rt.Fatalf("the bound is not exact")
		}
	})
}

// TestFillRefused: an instruction that would be 20 GB is refused before anything of
// its turn is stored, at once and when it is to wait for another turn.
func TestFillRefused(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, map[string][]step{"first": {{text: "done", gate: gate}}})
	tree := seq("root", llm("plain"), par("fan", llm("b", multiplied)))
	busy := w.start(llm("first"), "go")
	for _, busyness := range []agentdv1.OnBusy{agentdv1.OnBusy_ON_BUSY_REJECT, agentdv1.OnBusy_ON_BUSY_ENQUEUE} {
		id := w.session
		if busyness == agentdv1.OnBusy_ON_BUSY_REJECT {
			id = ""
		}
		before, err := w.store.Read(t.Context(), w.session, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		req := session.Request{SessionID: id, Agent: tree, Tools: w.tools, Prompt: "go", InitialState: map[string]any{"k": megabyte}, OnBusy: busyness}
		took := allocated(func() { _, err = w.manager.Start(t.Context(), req) })
		isLimit(t, err, "root/fan/b: instruction: filled in it takes 20000000", "at most 2097152 are allowed", `key "k" has 1000000 bytes and stands in it 20000 times`)
		if took > 64<<20 {
			t.Errorf("the refusal took %d bytes", took)
		}
		after, err := w.store.Read(t.Context(), w.session, 0, 1000)
		if err != nil || len(after) != len(before) {
			t.Errorf("%d records, then %d, %v", len(before), len(after), err)
		}
	}
	close(gate)
	w.follow(busy).ok(t)
}

// TestFillFails: if a value arrives during the turn, the turn fails, its history is
// valid, and the session continues.
func TestFillFails(t *testing.T) {
	for name, tree := range map[string]*agentdv1.Agent{
		"output key":           seq("root", llm("a", output("k")), llm("b", multiplied)),
		"output key of a turn": seq("root", llm("a", output("temp:k")), llm("b", instruct(strings.Repeat("{temp:k}", 8000)))),
		"tool":                 seq("root", llm("c"), llm("b", multiplied)),
		"parallel":             par("root", seq("s", llm("a", output("k")), llm("b", multiplied)), llm("d")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string][]step{"a": {say(megabyte)}, "c": {use("search"), say("C")}, "d": {say("D")}})
			w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
				return session.ClientResult{Output: new("ok"), State: map[string]any{"k": megabyte}}
			}
			var res *result
			took := allocated(func() { res = w.run(tree, "go") })
			if res.err.GetCode() != codeLimit || !strings.Contains(res.err.GetMessage(), "b: instruction: filled in it takes ") {
				t.Errorf("error %v", res.err)
			}
			if took > 256<<20 {
				t.Errorf("the turn took %d bytes", took)
			}
			w.script.always = func(string) step { return say("fine") }
			w.run(llm("e"), "more").ok(t)
			w.checkAll()
		})
	}
}

// TestFillResumed: a turn in a log of an earlier release fails when it resumes.
func TestFillResumed(t *testing.T) {
	run := newFakeRun(t, llm("a", multiplied), "turn 0")
	run.state = map[string]any{"k": megabyte}
	took := allocated(func() {
		isLimit(t, New(Config{Resolve: pureModels{}.Resolve}).runTurn(t.Context(), run), "a: instruction: filled in it takes 20000000")
	})
	if took > 64<<20 {
		t.Errorf("%d bytes", took)
	}
}

// TestTransferWordsCounted: the list of agents to transfer to is part of what an
// instruction may take.
func TestTransferWordsCounted(t *testing.T) {
	var kids []*agentdv1.Agent
	for i := range 60 {
		kid := llm(fmt.Sprintf("kid%d", i))
		kid.Description = strings.Repeat(`"`, 4<<10)
		kids = append(kids, kid)
	}
	models := &script{}
	tree := llm("root", subs(kids...))
	r := New(Config{Resolve: models.Resolve, Limits: Limits{FilledBytes: 100 << 10}})
	spec := &record.Spec{Prompt: "go", Agent: tree, Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}}
	if err := r.Check(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	isLimit(t, r.CheckState(spec, nil), "root: instruction: filled in it takes 24", "at most 102400 are allowed")
	w := newWorld(t, map[string][]step{"root": {say("hi")}})
	w.run(tree, "go").ok(t)
	planned, err := w.runner.plan(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, full := planned.root.transferBytes(), len(w.script.seen("root")[0].system); got < full-200 || got > full+60*targetWords {
		t.Errorf("%d bytes foreseen, %d told", got, full)
	}
}

// crowdModels is a model of which each call takes a second, and that counts what the
// instructions of all calls take that are under way.
type crowdModels struct {
	mu         sync.Mutex
	now, most  int
	calls, sum int
}

func (c *crowdModels) Resolve(string, map[string]string) (Model, error) {
	return Model{LLM: c, Provider: "fake"}, nil
}

func (c *crowdModels) Generate(ctx context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	size := len(adapter.Text(req.Config.SystemInstruction))
	c.add(size)
	defer c.add(-size)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &model.Response{Content: genai.NewContentFromText("fine", genai.RoleModel), FinishReason: genai.FinishReasonStop}, nil
}

func (c *crowdModels) add(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += size
	c.most = max(c.most, c.now)
	if size > 0 {
		c.calls++
		c.sum += size
	}
}

// crowded returns a parallel agent of 16, each with an instruction of a megabyte.
func crowded() *agentdv1.Agent {
	var kids []*agentdv1.Agent
	for i := range 16 {
		kids = append(kids, llm(fmt.Sprintf("a%d", i), instruct(fmt.Sprintf("%d {k}", i))))
	}
	return par("root", kids...)
}

// TestParallelRequests: what agents send side by side is bounded as a sum; all of
// them are served.
func TestParallelRequests(t *testing.T) {
	for name, most := range map[string]int{"some at a time": 4_500_000, "one at a time": 1000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				models := &crowdModels{}
				run := newFakeRun(t, crowded(), "go")
				run.state = map[string]any{"k": megabyte}
				if err := New(Config{Resolve: models.Resolve, Limits: Limits{RequestBytes: most}}).runTurn(t.Context(), run); err != nil {
					t.Fatal(err)
				}
				if models.calls != 16 || models.sum < 16_000_000 {
					t.Errorf("%d calls of %d bytes", models.calls, models.sum)
				}
				if bound := max(most, 1_100_000); models.most > bound {
					t.Errorf("%d bytes at a time, at most %d are allowed", models.most, bound)
				}
			})
		})
	}
}

// TestWaitingRequestCancelled: a call that waits for room ends with its turn.
func TestWaitingRequestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		run := newFakeRun(t, crowded(), "go")
		run.state = map[string]any{"k": megabyte}
		time.AfterFunc(500*time.Millisecond, func() { cancel(session.ErrSuspended) })
		began := time.Now()
		err := New(Config{Resolve: (&crowdModels{}).Resolve, Limits: Limits{RequestBytes: 1000}}).runTurn(ctx, run)
		if err == nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestModelCallsBounded: calls with large instructions fill several pages, and each
// page is bounded in memory.
func TestModelCallsBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.script.always = func(string) step { return say("fine") }
	w.state = map[string]any{"k": megabyte}
	turn := w.start(crowded(), "go")
	w.follow(turn).ok(t)
	log := w.turnLog(turn.ID())
	seen := map[string]bool{}
	for page := 0; ; page++ {
		calls, more, err := New(Config{}).ModelCalls(t.Context(), log, 100)
		if err != nil || page > 4 {
			t.Fatalf("page %d: %d calls, %v", page, len(calls), err)
		}
		bytes := 0
		for _, c := range calls {
			text := c.Details.GetInstruction()
			bytes += len(text)
			seen[text[:10]] = true
			log.After = c.Seq
		}
		if bytes > maxTextBytes || bytes == 0 {
			t.Errorf("page %d has %d bytes", page, bytes)
		}
		if !more {
			break
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d prompts were seen", len(seen))
	}
}

// TestManyNamesListed: a message lists some of many names.
func TestManyNamesListed(t *testing.T) {
	var names []string
	for i := range 512 {
		names = append(names, fmt.Sprintf("tool_%058d", i))
	}
	if got := quoteAll(names); len(got) > 4<<10 || !strings.HasSuffix(got, " and 462 more") {
		t.Errorf("%d bytes: …%s", len(got), got[max(0, len(got)-40):])
	}
}

// TestFillKeepsState: to fill in changes no value.
func TestFillKeepsState(t *testing.T) {
	state := map[string]any{"k": map[string]any{"a": []any{1, "<"}}}
	before := compact(state)
	parsed, err := parseInstruction("{k} {k}")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{kind: llmKind, instruction: parsed}
	if got := n.fill(&record.Spec{}, maps.Clone(state)).text(); got != `{"a":[1,"<"]} {"a":[1,"<"]}` || compact(state) != before {
		t.Errorf("%s, %s", got, compact(state))
	}
}

// TestTemplatesAreSmall: a parsed instruction takes no multiple of its text, whatever
// the text.
func TestTemplatesAreSmall(t *testing.T) {
	const templates = 100
	text := strings.Repeat("{k}", 64<<10/3)
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	kept := make([]template, templates)
	for i := range kept {
		var err error
		if kept[i], err = parseInstruction(text); err != nil {
			t.Fatal(err)
		}
	}
	if after := live(); after > before+templates*8<<10 {
		t.Errorf("%d templates of %d bytes take %d bytes", templates, len(text), after-before)
	}
	runtime.KeepAlive(kept)
	var many strings.Builder
	for i := range maxInstructionKeys {
		fmt.Fprintf(&many, "{k%d}", i)
	}
	if _, err := parseInstruction(many.String() + "{k1}"); err != nil {
		t.Error(err)
	}
	run := newWorld(t, nil)
	spec := &record.Spec{Prompt: "go", Agent: llm("a", instruct(many.String()+"{one_more}")), Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}}
	if err := run.runner.Check(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "more than 1000 keys") {
		t.Errorf("got %v", err)
	}
}

// TestPlaceholder holds what finds placeholders against their pattern.
func TestPlaceholder(t *testing.T) {
	pattern := regexp.MustCompile(`\{+[^{}]*\}+`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("{}{}ak? \nä"))).Draw(t, "text")
		var got [][]int
		for from := 0; ; {
			begin, end, ok := placeholder(text, from)
			if !ok {
				break
			}
			got, from = append(got, []int{begin, end}), end
		}
		if want := pattern.FindAllStringIndex(text, -1); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: placeholders at %v, want %v", text, got, want)
		}
	})
}
