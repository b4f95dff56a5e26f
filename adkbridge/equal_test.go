package adkbridge

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// control has ADK see the whole history, as it would without the bridge, and
// keeps the prompts that ADK builds from it.
type control struct {
	mu     sync.Mutex // protects the fields below
	events []*adksession.Event
	built  map[string][]*genai.Content // the newest by agent
}

// controlled shows the control's events as the session's.
type controlled struct {
	*adkSession
	c *control
}

func (s controlled) Events() adksession.Events {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return eventList(slices.Clone(s.c.events))
}

type eventList []*adksession.Event

func (e eventList) Len() int                         { return len(e) }
func (e eventList) At(i int) *adksession.Event       { return e[i] }
func (e eventList) All() iter.Seq[*adksession.Event] { return slices.Values(e) }

type controlService struct {
	*journal
	c *control
}

func (s controlService) Get(ctx context.Context, r *adksession.GetRequest) (*adksession.GetResponse, error) {
	return &adksession.GetResponse{Session: controlled{&adkSession{t: s.t}, s.c}}, nil
}

func (s controlService) AppendEvent(ctx context.Context, sess adksession.Session, ev *adksession.Event) error {
	if err := s.journal.AppendEvent(ctx, sess, ev); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.events = append(s.c.events, ev)
	return nil
}

// install makes a world's runner compare each prompt with ADK's.
func (c *control) install(t *testing.T, w *world) {
	w.runner.configHook = func(turn *turn, cfg *runner.Config) {
		c.mu.Lock()
		c.events, c.built = nil, map[string][]*genai.Content{}
		for _, it := range turn.hist.items {
			c.events = append(c.events, &adksession.Event{Author: it.author, Branch: it.branch, LLMResponse: adkmodel.LLMResponse{Content: it.content}})
		}
		c.mu.Unlock()
		cfg.SessionService = controlService{&journal{t: turn}, c}
		p, err := plugin.New(plugin.Config{Name: "control", BeforeModelCallback: func(ctx agent.Context, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.built[ctx.AgentName()] = req.Contents
			return nil, nil
		}})
		if err != nil {
			t.Error(err)
			return
		}
		cfg.PluginConfig.Plugins = []*plugin.Plugin{p}
	}
	w.script.fail = func(name string, n int) error {
		w.script.mu.Lock()
		got := w.script.requests[n].contents // perhaps of a sibling
		for _, r := range slices.Backward(w.script.requests) {
			if r.agent == name {
				got = r.contents
				break
			}
		}
		w.script.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if a, b := compact(got), compact(c.built[name]); a != b {
			t.Errorf("%s: prompts differ\nbridge: %s\nADK:    %s", name, a, b)
		}
		return nil
	}
}

// equalTrees are turns of many shapes; each entry is one session.
func equalTrees() map[string]struct {
	trees []*agentdv1.Agent
	steps map[string][]step
} {
	type sess = struct {
		trees []*agentdv1.Agent
		steps map[string][]step
	}
	same := func(n int, a *agentdv1.Agent) []*agentdv1.Agent { return slices.Repeat([]*agentdv1.Agent{a}, n) }
	return map[string]sess{
		"llm": {same(4, llm("root")), map[string][]step{
			"root": {{thought: "own thought", text: "A"}, use("search", "calc"), {thought: "more", calls: use("fetch").calls}, say("B"), {}, say("C")},
		}},
		"sequential": {same(3, seq("root", llm("a"), llm("b"))), map[string][]step{
			"a": {use("search"), say("A1"), say("A2"), {}},
			"b": {say("B1"), use("calc", "calc"), say("B2"), say("B3")},
		}},
		"parallel": {same(2, seq("root", par("p", llm("a"), llm("b"), llm("c")), llm("z"))), map[string][]step{
			"a": {use("search"), say("A1"), use("calc"), say("A2")},
			"b": {use("search", "fetch"), use("calc"), say("B1"), say("B2")},
			"c": {say("C1"), say("C2")},
			"z": {use("search"), say("Z1"), say("Z2")},
		}},
		"loop": {same(2, rounds("root", 3, llm("a"), llm("b", builtin("exit_loop")))), map[string][]step{
			"a": {say("1"), use("search"), say("2"), say("3"), say("4")},
			"b": {say("x"), say("y"), say("z"), step{text: "now ", calls: exit().calls}},
		}},
		"alone in a loop": {same(1, rounds("root", 3, llm("a"))), map[string][]step{
			"a": {say("1"), use("search"), say("2"), say("3")},
		}},
		"transfer": {same(3, llm("root", subs(llm("a"), llm("b", subs(llm("c")))))), map[string][]step{
			"root": {transfer("a"), say("bye"), transfer("b")},
			"a":    {use("search"), transfer("b")},
			"b":    {transfer("c"), transfer("root"), use("calc"), say("B")},
			"c":    {use("calc", "fetch"), say("C1"), transfer("b")},
		}},
		"parallel loops": {same(2, par("root", rounds("l", 2, llm("a"), llm("b")), seq("s", llm("c"), rounds("m", 2, llm("d"))))), map[string][]step{
			"a": {say("1"), use("calc"), say("2"), say("3"), say("4")},
			"b": {use("calc"), say("1"), say("2"), say("3"), say("4")},
			"c": {say("c1"), say("c2")},
			"d": {use("fetch"), say("d1"), say("d2"), say("d3"), say("d4")},
		}},
		"another tree each turn": {
			[]*agentdv1.Agent{
				par("root", llm("a"), llm("b")),
				llm("a"),
				seq("root", llm("b"), llm("a")),
				par("b", llm("c"), seq("d", llm("a"), llm("e"))),
				llm("z", subs(llm("a"))), // begins with a, who spoke last
			},
			map[string][]step{
				"a": {use("search", "calc"), use("calc"), say("A1"), use("fetch"), say("A2"), say("A3"), say("A4"), use("calc"), say("A5")},
				"b": {use("fetch"), say("B1"), say("B2")},
				"c": {say("C1")},
				"e": {say("E1")},
			},
		},
	}
}

// TestPromptsEqualADKs compares each prompt with what ADK builds from the same
// history at the same moment, over several turns, with warm and cold histories.
func TestPromptsEqualADKs(t *testing.T) {
	for _, cold := range []bool{false, true} {
		for name, sess := range equalTrees() {
			t.Run(fmt.Sprintf("%s/cold=%v", name, cold), func(t *testing.T) {
				w := newWorld(t, maps.Clone(sess.steps))
				(&control{}).install(t, w)
				for i, tree := range sess.trees {
					if cold {
						w.runner.cache = newCache(0, 0)
						w.restart()
					}
					w.run(tree, fmt.Sprintf("turn %d", i)).ok(t)
				}
				w.checkAll()
				for agent, rest := range w.script.steps {
					if len(rest) > 0 {
						t.Errorf("%s has %d answers left", agent, len(rest))
					}
				}
			})
		}
	}
}

// TestForeignThoughts shows the one difference: what others thought is not
// passed on.
func TestForeignThoughts(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"a": {{thought: "secret", text: "A"}, {thought: "only this"}, {}},
		"b": {say("B"), say("C")},
	})
	tree := seq("root", llm("a"), llm("b"))
	w.run(tree, "one").ok(t)
	w.run(tree, "two").ok(t)
	got := transcript(w.script.seen("b")[1].contents)
	want := "user: one\nuser: For context: [a] said: A\nmodel: B\nuser: two\n"
	if got != want {
		t.Errorf("prompt of b:\n%swant:\n%s", got, want)
	}
	if own := transcript(w.script.seen("a")[1].contents); own != "user: one\nmodel: (secret) A\nuser: For context: [b] said: B\nuser: two\n" {
		t.Errorf("prompt of a:\n%s", own)
	}
}
