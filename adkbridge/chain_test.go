package adkbridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// priced are a script's models, each with a provider and a price of its own.
type priced struct {
	*script
	dollars  map[string]float64 // by model; a token costs so much
	builtins map[string][]string
}

func (p priced) Resolve(name string, keys map[string]string) (Model, error) {
	m, err := p.script.Resolve(name, keys)
	if err != nil {
		return m, err
	}
	m.Provider, m.Builtins, m.Cost = "p-"+name, p.builtins[name], nil
	if usd, known := p.dollars[name]; known {
		m.Cost = func(u model.Usage) record.NanoUSD { return record.BudgetUSD(usd * float64(u.Total)) }
	}
	return m, nil
}

func fallback(names ...string) option {
	return func(a *agentdv1.LlmAgent) { a.FallbackModels = names }
}

// fails is a step of a model that fails and says what that took.
func fails(kind model.Kind, tokens int64) step {
	e := &model.Error{Kind: kind, Provider: "fake", Status: 500, Message: "no luck"}
	if tokens > 0 {
		e.Usage = &model.Usage{Total: tokens}
	}
	return step{err: e}
}

// chained is a world whose models have prices, with what its clients received about the
// models' calls.
type chained struct {
	*world
	fallbacks []*agentdv1.ModelCallFellBack
	ended     []*agentdv1.ModelCallEnded
	log       bytes.Buffer
}

func newChained(t *testing.T, steps map[string][]step) *chained {
	c := &chained{world: newWorld(t, steps)}
	c.runner.resolve = priced{c.script, map[string]float64{"root": 1, "b": 10, "c": 100}, nil}.Resolve
	c.runner.log = slog.New(slog.NewTextHandler(&c.log, nil))
	c.watch = func(_ *session.Turn, m *agentdv1.RunResponse) {
		if f := m.GetModelCallFellBack(); f != nil {
			c.fallbacks = append(c.fallbacks, f)
		}
		if e := m.GetModelCallEnded(); e != nil {
			c.ended = append(c.ended, e)
		}
	}
	return c
}

// asked is how often each model was called.
func (c *chained) asked() string {
	var out []string
	for _, name := range []string{"root", "b", "c"} {
		out = append(out, fmt.Sprint(len(c.script.seen(name))))
	}
	return strings.Join(out, " ")
}

// TestFallbackKinds is which failures are for the next model.
func TestFallbackKinds(t *testing.T) {
	for kind, passes := range map[model.Kind]bool{
		model.KindUnavailable: true, model.KindRateLimited: true, model.KindTimeout: true, model.KindAuth: true, model.KindInvalid: true,
		model.KindBlocked: false, model.KindContextTooLong: false,
	} {
		t.Run(string(kind), func(t *testing.T) {
			c := newChained(t, map[string][]step{"root": {fails(kind, 0)}, "b": {say("B")}})
			res := c.run(llm("root", fallback("b")), "go")
			if !passes {
				if res.err.GetCode() != codes[kind] || res.err.GetMessage() != `root: model "root": fake: no luck (status 500)` || c.asked() != "1 0 0" || len(c.fallbacks) != 0 {
					t.Errorf("asked %s, %v, %v", c.asked(), res.err, c.fallbacks)
				}
				return
			}
			res.ok(t)
			if res.text["root"] != "B" || c.asked() != "1 1 0" || len(c.fallbacks) != 1 {
				t.Fatalf("asked %s, %q, %v", c.asked(), res.text, c.fallbacks)
			}
			f := c.fallbacks[0]
			if f.GetModel() != "root" || f.GetNextModel() != "b" || f.GetCode() != codes[kind] || f.GetMessage() != `root: model "root": fake: no luck (status 500)` ||
				!slices.Equal(f.GetAgentPath(), []string{"root"}) || f.GetMessageId() != c.ended[0].GetMessageId() {
				t.Errorf("told %v", f)
			}
		})
	}
}

// TestFallback counts the usage of each model at its own price, names the model that
// responded, and begins each call with the agent's own model.
func TestFallback(t *testing.T) {
	c := newChained(t, map[string][]step{
		"root": {fails(model.KindUnavailable, 3), say("again")},
		"b":    {fails(model.KindAuth, 5)},
		"c":    {use("search")},
	})
	res := c.run(llm("root", fallback("b", "c")), "go").ok(t)
	if res.text["root"] != "again" || c.asked() != "2 1 1" || len(c.fallbacks) != 2 || len(c.ended) != 2 || len(res.tools) != 1 {
		t.Fatalf("asked %s, %q, fallbacks %v, ended %v", c.asked(), res.text, c.fallbacks, c.ended)
	}
	if e := c.ended[0]; e.GetModel() != "c" || e.GetProvider() != "p-c" || e.GetUsage().GetModelCalls() != 3 || e.GetUsage().GetTotalTokens() != 18 || e.GetUsage().GetCostUsd() != 3*1+5*10+10*100 {
		t.Errorf("first call %v", e)
	}
	if e := c.ended[1]; e.GetModel() != "root" || e.GetProvider() != "p-root" || e.GetUsage().GetModelCalls() != 1 || e.GetUsage().GetCostUsd() != 10 {
		t.Errorf("second call %v", e)
	}
	if u := res.end.GetUsageSummary(); u.GetLlmCalls() != 4 || u.GetEstimatedCost() != 1063 {
		t.Errorf("usage %v", u)
	}
	first := c.script.requests[0]
	for _, r := range c.script.requests {
		if r.system != first.system || !slices.Equal(r.tools, first.tools) {
			t.Errorf("%s was told %q and %q, %s %q and %q", r.agent, r.system, r.tools, first.agent, first.system, first.tools)
		}
		if want := r.agent != "c"; r.info.Replaceable != want {
			t.Errorf("%s: replaceable is %t", r.agent, r.info.Replaceable)
		}
	}
	c.checkAll()
}

// TestFallbackShown does not turn to another model once something was shown.
func TestFallbackShown(t *testing.T) {
	for name, first := range map[string]step{"text": {text: "I will"}, "thought": {thought: "hm"}} {
		t.Run(name, func(t *testing.T) {
			first.err = fails(model.KindUnavailable, 0).err
			c := newChained(t, map[string][]step{"root": {first}, "b": {say("B")}})
			res := c.run(llm("root", fallback("b")), "go")
			if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE || c.asked() != "1 0 0" || len(c.fallbacks) != 0 {
				t.Errorf("asked %s, %v", c.asked(), res.err)
			}
		})
	}
}

// TestFallbackUnreported calls no other model when the turn could not record a call.
func TestFallbackUnreported(t *testing.T) {
	unreported := &model.Error{
		Kind: model.KindUnavailable, Provider: "fake", Message: "a raw payload could not be reported", Final: true,
		Err: &modelcall.UnreportedError{Err: errors.New("no store")},
	}
	c := newChained(t, map[string][]step{"root": {{err: unreported}}, "b": {say("B")}})
	res := c.run(llm("root", fallback("b")), "go")
	if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE || c.asked() != "1 0 0" || len(c.fallbacks) != 0 {
		t.Errorf("asked %s, %v, %v", c.asked(), res.err, c.fallbacks)
	}
}

// TestFallbackAllFail reports how each model failed, without the providers' words in
// the log, and counts the usage.
func TestFallbackAllFail(t *testing.T) {
	theirs := adapter.Failure{Provider: "fake", Status: 503, Message: "secret words"}.Error()
	limited := &model.Error{Kind: model.KindRateLimited, Provider: "fake", Message: "slow down", RetryAfter: 90e9, Usage: &model.Usage{Total: 2}}
	c := newChained(t, map[string][]step{"root": {fails(model.KindTimeout, 1)}, "b": {{err: theirs}}, "c": {{err: limited}}})
	res := c.run(llm("root", fallback("b", "c")), "go")
	want := `root: no model gave a response: model "root": fake: no luck (status 500), then model "b": fake: secret words (status 503), then model "c": fake: slow down; retry after 1m30s`
	if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || res.err.GetMessage() != want || len(c.fallbacks) != 2 {
		t.Errorf("%v, fallbacks %v", res.err, c.fallbacks)
	}
	if len(c.ended) != 1 || c.ended[0].GetModel() != "c" || c.ended[0].GetMessageId() != "" || c.ended[0].GetUsage().GetCostUsd() != 201 {
		t.Errorf("ended %v", c.ended)
	}
	if log := c.log.String(); strings.Contains(log, "secret words") || strings.Count(log, "another one is called") != 2 || !strings.Contains(log, `next=c`) {
		t.Errorf("log %s", log)
	}
	err := newChain(nil, []*node{{name: "root", path: []string{"root"}}})
	err.failures = failures{{"b", theirs}}
	e, ok := errors.AsType[failures](err.callError(limited))
	if !ok || strings.Contains(e.LogValue().String(), "secret words") || !strings.Contains(e.LogValue().String(), "slow down") {
		t.Errorf("logged %v", e)
	}
}

// TestFallbackCancelled turns to no other model once the turn is stopped, and the
// receipt names the one that was under way.
func TestFallbackCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		steps map[string][]step
		asked string
		model string
	}{
		"in the first model":  {map[string][]step{"root": {{hang: true}}}, "1 0 0", "root"},
		"in the second model": {map[string][]step{"root": {fails(model.KindUnavailable, 4)}, "b": {{hang: true}}}, "1 1 0", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChained(t, tc.steps)
			reached := make(chan struct{})
			c.script.fail = func(agent string, _ int) error {
				if agent == tc.model {
					close(reached)
				}
				return nil
			}
			turn := c.start(llm("root", fallback("b", "c")), "go")
			go func() { // ends with the turn, at the latest
				select {
				case <-reached:
					turn.Cancel("enough")
				case <-turn.Done():
				}
			}()
			// The model waits for the end of the turn once it has been reached.
			res := c.follow(turn)
			aborted := res.end.GetReceipt().GetAbortedModelCalls()
			if res.err != nil || res.end.GetCompleted() || c.asked() != tc.asked || len(aborted) != 1 || aborted[0].GetModel() != tc.model {
				t.Errorf("asked %s, %v, %v", c.asked(), res.err, res.end)
			}
			if u := res.end.GetUsageSummary(); tc.model == "b" && u.GetTotalUsage().GetTotalTokens() != 4 {
				t.Errorf("usage %v", u)
			}
		})
	}
}

// TestFallbackCrash restarts a turn after each of its records: no response of the log
// is requested again, and the call that was cut off restarts with the agent's own
// model.
func TestFallbackCrash(t *testing.T) {
	steps := func() map[string][]step {
		return map[string][]step{
			"root": {fails(model.KindUnavailable, 0), fails(model.KindUnavailable, 0), say("done")},
			"b":    {fails(model.KindRateLimited, 0), use("fetch")},
			"c":    {use("search")},
		}
	}
	tree := llm("root", fallback("b", "c"))
	w := newWorld(t, steps())
	whole := newFakeRun(t, tree, "go")
	if err := w.runner.runTurn(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	if n := count(whole.recs, record.KindModelFallback); n != 3 {
		t.Fatalf("%d fallbacks, want 3", n)
	}
	for n := 1; n <= len(whole.recs); n++ {
		responses := 0 // of models, in the log
		for _, rec := range whole.recs[:n] {
			if s, err := decode(rec.Data); rec.Kind == record.KindEvent && err == nil && s.CustomMetadata.Agentd.LLM != "" {
				responses++
			}
		}
		second := newWorld(t, steps())
		// The script continues behind the responses that the log holds.
		for range responses {
			second.script.drop("root", "b", "c")
		}
		run := whole.restarted(n)
		if err := second.runner.runTurn(t.Context(), run); err != nil {
			t.Fatalf("after record %d: %v", n, err)
		}
		if first := second.script.requests; len(first) > 0 && first[0].agent != "root" {
			t.Errorf("after record %d: the first model called is %s", n, first[0].agent)
		}
		if got, want := len(run.events(second.runner)), len(whole.events(w.runner)); got != want {
			t.Errorf("after record %d: %d events, want %d", n, got, want)
		}
	}
}

// drop removes the steps of the next call: those that fail, and the response.
func (s *script) drop(chain ...string) {
	for _, name := range chain {
		st := s.steps[name][0]
		s.steps[name] = s.steps[name][1:]
		if st.err == nil {
			return
		}
	}
}

func count(recs []record.Record, kind record.Kind) int {
	return len(slices.DeleteFunc(slices.Clone(recs), func(r record.Record) bool { return r.Kind != kind }))
}

// TestFallbackUnrecorded ends the turn when the change cannot be recorded: no model
// is called of which the log does not know.
func TestFallbackUnrecorded(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {fails(model.KindUnavailable, 0)}, "b": {say("B")}})
	run := newFakeRun(t, llm("root", fallback("b")), "go")
	run.limit = len(run.recs)
	if err := w.runner.runTurn(t.Context(), run); !errors.Is(err, errCrashed) {
		t.Errorf("got %v", err)
	}
	if n := len(w.script.seen("b")); n != 0 {
		t.Errorf("the next model was called %d times", n)
	}
}

// TestFallbackPlan holds fallback models to what the agent's own has to be.
func TestFallbackPlan(t *testing.T) {
	bad := map[string]error{
		"nokey":   &model.Error{Kind: model.KindAuth, Provider: "fake", Message: "set FAKE_API_KEY"},
		"nowhere": &model.Error{Kind: model.KindUnavailable, Provider: "fake", Message: "no such provider"},
	}
	models := priced{
		&script{bad: bad}, map[string]float64{"root": 1, "b": 1},
		map[string][]string{"root": {"google_search"}, "b": {"google_search"}},
	}
	var nine []string
	for i := range 9 {
		nine = append(nine, fmt.Sprint("m", i))
	}
	for name, tc := range map[string]struct {
		names  []string
		opt    option
		budget float64
		code   agentdv1.ErrorCode
		want   string
	}{
		"fine":              {names: []string{"b", "c"}},
		"with a builtin":    {names: []string{"b"}, opt: builtin("google_search", "ask_user")},
		"priced":            {names: []string{"b"}, budget: 1},
		"key missing":       {names: []string{"b", "nokey"}, code: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, want: `root: model "nokey": fake: set FAKE_API_KEY`},
		"no provider":       {names: []string{"nowhere"}, code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, want: `root: model "nowhere": fake: no such provider`},
		"the agent's own":   {names: []string{"b", "root"}, code: codeTree, want: `fallback_models[1]: "root" is the agent's own model`},
		"twice":             {names: []string{"b", "c", "b"}, code: codeTree, want: `fallback_models[2]: "b" is listed twice`},
		"empty":             {names: []string{""}, code: codeTree, want: `fallback_models[0] is empty`},
		"too many":          {names: nine, code: codeTree, want: "9 fallback_models, at most 8 are allowed"},
		"builtin not there": {names: []string{"b", "c"}, opt: builtin("google_search"), code: codeTree, want: `builtin tool "google_search": not available for model "c"`},
		"price not known":   {names: []string{"b", "c"}, budget: 1, code: codeInvalid, want: `that of "c" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []option{tools(), fallback(tc.names...)}
			if tc.opt != nil {
				opts = append(opts, tc.opt)
			}
			spec := &record.Spec{Agent: llm("root", opts...), Budget: record.Budget{Cost: record.BudgetUSD(tc.budget)}}
			err := New(Config{Resolve: models.Resolve}).Check(context.Background(), spec, nil)
			e, ok := errors.AsType[*fault.Error](err)
			if tc.want == "" && err != nil || tc.want != "" && (!ok || e.Code != tc.code || !strings.Contains(e.Message, tc.want)) {
				t.Errorf("got %v, want %v %q", err, tc.code, tc.want)
			}
		})
	}
}
