package adkbridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// provider serves a script's models as gpt-….
type provider struct{ s *script }

func (p provider) Open(name, key string) (model.Model, error) {
	if key == "" {
		return model.Model{}, model.Description{Name: "openai", KeyVariables: []string{"OPENAI_API_KEY"}}.MissingKey()
	}
	return model.Model{LLM: scripted{p.s, name}}, nil
}

// Describe claims what OpenAI's provider does.
func (provider) Describe() model.Description {
	return model.Description{Name: "openai", Prefixes: []string{"gpt-"}, Builtins: []string{"web_search"}}
}

// TestFromRegistry guards the models of a registry and prices their calls.
func TestFromRegistry(t *testing.T) {
	s := &script{steps: map[string][]step{"gpt-4o": {say("hi"), {panics: true}}}}
	reg, err := models.NewRegistry(provider{s})
	if err != nil {
		t.Fatal(err)
	}
	resolve := FromRegistry(reg, modelcall.Limits{})
	if _, err := resolve("openai/gpt-4o", nil); err == nil {
		t.Error("opened without a key")
	}
	m, err := resolve("openai/gpt-4o", map[string]string{"openai": "k"})
	if err != nil {
		t.Fatal(err)
	}
	if m.Provider != "openai" || len(m.Builtins) != 1 || m.Cost(model.Usage{Prompt: 1_000_000}) <= 0 {
		t.Errorf("model %+v costs %v", m, m.Cost(model.Usage{Prompt: 1_000_000}))
	}
	if m.Window != 128_000 {
		t.Errorf("a context of %d tokens", m.Window)
	}
	if m, err := resolve("openai/gpt-99", map[string]string{"openai": "k"}); err != nil || m.Cost != nil || m.Window != 0 {
		t.Errorf("of a model that nobody knows: %+v, %v", m, err)
	}
	w := newWorld(t, nil)
	w.runner.resolve = func(name string, _ map[string]string) (Model, error) {
		return resolve(name, map[string]string{"openai": "k"})
	}
	tree := llm("root", func(a *agentdv1.LlmAgent) { a.Model = "openai/gpt-4o" }, builtin("web_search"))
	if res := w.run(tree, "go").ok(t); res.text["root"] != "hi" || res.end.GetUsageSummary().GetEstimatedCost() <= 0 {
		t.Errorf("%v, %v", res.text, res.end)
	}
	if res := w.run(tree, "go"); res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE {
		t.Errorf("a panic of the adapter: %v", res.err)
	}
}

// TestFallbackNames takes a model for the same under all of its names.
func TestFallbackNames(t *testing.T) {
	reg, err := models.NewRegistry(provider{&script{}})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Resolve: FromRegistry(reg, modelcall.Limits{})})
	for name, tc := range map[string]struct {
		own   string
		names []string
		code  agentdv1.ErrorCode
		want  string
	}{
		"others":                {own: "gpt-4o", names: []string{"openai/gpt-5", "gpt-5-mini"}},
		"the agent's own":       {own: "gpt-4o", names: []string{"gpt-5", "openai/gpt-4o"}, code: codeTree, want: `root: fallback_models[1]: "openai/gpt-4o" is the agent's own model, "gpt-4o"`},
		"the agent's own, long": {own: "openai/gpt-4o", names: []string{"gpt-4o"}, code: codeTree, want: `root: fallback_models[0]: "gpt-4o" is the agent's own model, "openai/gpt-4o"`},
		"twice":                 {own: "gpt-4o", names: []string{"gpt-5", "gpt-5-mini", "openai/gpt-5"}, code: codeTree, want: `root: fallback_models[2]: "openai/gpt-5" is the same model as "gpt-5", which is listed before`},
		"not known":             {own: "gpt-4o", names: []string{"gemini/gpt-4o"}, code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, want: `root: model "gemini/gpt-4o": model: unknown provider "gemini" (registered: [`},
	} {
		t.Run(name, func(t *testing.T) {
			tree := llm("root", func(a *agentdv1.LlmAgent) { a.Model = tc.own }, fallback(tc.names...), tools())
			err := r.Check(t.Context(), &record.Spec{Agent: tree}, session.Keys{"openai": "k"})
			e, ok := errors.AsType[*fault.Error](err)
			if tc.want == "" && err != nil || tc.want != "" && (!ok || e.Code != tc.code || !strings.HasPrefix(e.Message, tc.want)) {
				t.Errorf("got %v, want %v %q", err, tc.code, tc.want)
			}
		})
	}
}

// No client may give its tool the name of the engine's own tools or of a builtin tool.
func TestBuiltinTools(t *testing.T) {
	names := new(Runner).BuiltinTools()
	if !slices.IsSorted(names) || len(names) == 0 {
		t.Errorf("%q", names)
	}
	engine := []string{transferTool, modelResultTool, stopStreamTool}
	for _, name := range reservedTools {
		if slices.Contains(names, name) == slices.Contains(engine, name) {
			t.Errorf("%q is reserved: it is a builtin tool, or the engine's", name)
		}
	}
	for _, name := range names {
		if err := check(&script{}, &record.Spec{Agent: rounds("root", 2, llm("a", tools(), builtin(name)))}); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
}

// TestFallbackNamesPinned resumes a tree that was accepted before Check asked whether
// two of its names are of one model.
func TestFallbackNamesPinned(t *testing.T) {
	reg, err := models.NewRegistry(provider{&script{steps: map[string][]step{"gpt-4o": {say("hi"), say("hi")}}}})
	if err != nil {
		t.Fatal(err)
	}
	resolve := FromRegistry(reg, modelcall.Limits{})
	r := New(Config{Resolve: func(name string, _ map[string]string) (Model, error) {
		return resolve(name, map[string]string{"openai": "k"})
	}})
	tree := llm("root", func(a *agentdv1.LlmAgent) { a.Model = "gpt-4o" }, fallback("openai/gpt-4o", "gpt-5", "openai/gpt-5"))
	run := newFakeRun(t, tree, "go")
	if err := r.Check(t.Context(), run.spec, nil); fault.As(err).Code != codeTree {
		t.Fatalf("a new one: %v", err)
	}
	run.spec.Pinned = true
	if err := r.Check(t.Context(), run.spec, nil); err != nil {
		t.Fatalf("an accepted one: %v", err)
	}
	for range 2 { // as Check has made it, and as a prompt that has waited comes
		if err := r.runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		run = run.restarted(1)
	}
}

// TestFallbackNamesUpgrade suspends a turn two of whose models turn out to be one when
// it resumes: the turn continues, and so does its session; a new request with the tree
// is refused.
func TestFallbackNamesUpgrade(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search"), say("hi"), say("again")}})
	same := ""
	script := w.script
	w.runner.resolve = func(name string, keys map[string]string) (Model, error) {
		m, err := script.Resolve(name, keys)
		m.Name = same
		return m, err
	}
	tree := llm("root", fallback("b"))
	turn := w.start(tree, "go")
	aside, cancel := context.WithCancel(t.Context())
	cancel()
	_ = w.manager.Shutdown(aside)
	<-turn.Done()

	same = "one"
	w.restart()
	turn, watcher, err := w.manager.Attach(t.Context(), session.AttachRequest{SessionID: w.session, Tools: []string{"search"}})
	if err != nil {
		t.Fatal(err)
	}
	if res := w.followOn(turn, watcher).ok(t); res.text["root"] != "hi" {
		t.Errorf("said %v", res.text)
	}
	tools := w.tools
	w.tools = nil
	if res := w.run(nil, "go on").ok(t); res.text["root"] != "again" {
		t.Errorf("said %v", res.text)
	}
	_, err = w.manager.Start(t.Context(), session.Request{SessionID: w.session, Agent: tree, Tools: tools, Prompt: "go"})
	if fault.As(err).Code != codeTree {
		t.Errorf("a new request: %v", err)
	}
}
