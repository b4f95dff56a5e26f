package chaos

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// kind is what an agent is.
type kind int

const (
	leaf kind = iota
	sequence
	parallel
	looped
)

// plan is an agent of a session's tree, with what its model will do. What it
// does is a function of a seed, the turn and the number of the answer alone, so
// that the provider and the checker come to the same without talking to each
// other.
type plan struct {
	name   string
	kind   kind
	kids   []*plan
	most   int  // iterations of a loop
	exitAt int  // of a leaf in a loop: leaves it in the exitAt-th of its answers; 0: never
	rounds int  // of a leaf: answers with tool calls before one without; less in some turns
	keeps  bool // of a leaf: writes its text into the state
	words  int  // of a leaf: how many more its answers have
	// calls are the agents that a leaf calls as tools, all of them together with its first tools of a turn.
	calls []*plan
	// falls is that a leaf's own model is never there, so that another one answers.
	falls bool
	// errand is what the turns of the tree are for, nil if clients ask for each; works is that a leaf reports on it.
	errand *errand
	works  bool
	// window, if set, is the context of a leaf's model in tokens: what outgrows it is
	// summarised.
	window int64
}

// tries is how often a client can ask for a turn, whose number is that of the turn
// times this, and that of the try.
const tries = 1000

// step names one answer of an agent, the n-th in a turn of a session.
type step struct {
	session, turn int
	agent         string
	n             int
}

// String is the mark that an answer of the step begins with.
func (s step) String() string { return fmt.Sprintf("<%d.%d.%s.%d>", s.session, s.turn, s.agent, s.n) }

// chance is a source of randomness that belongs to a step, whichever session it
// is of, and which try.
func (s step) chance(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(step{0, s.turn / tries, s.agent, s.n}.String()))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// act is what an answer holds.
type act struct {
	words    int
	thoughts int
	tools    []string // called together
	asks     []string // agents that are called with them
	to       string   // transfers there
	exit     bool     // leaves the loop
	says     []string // calls of the goal's tools, with their arguments behind a space
}

// act returns what the n-th answer of a leaf in a turn is.
func (p *plan) act(seed uint64, s step) act {
	rng := s.chance(seed)
	a := act{words: 2 + rng.IntN(12) + p.words}
	if rng.IntN(3) == 0 {
		a.thoughts = 1 + rng.IntN(4)
	}
	rounds := p.rounds
	if rounds > 0 && p.errand == nil && s.turn/tries%3 == 2 {
		rounds-- // not the same in every turn
	}
	switch at := s.n % (rounds + 1); {
	case at < rounds:
		for range 1 + rng.IntN(4) {
			a.tools = append(a.tools, []string{"look", "fetch"}[rng.IntN(2)])
		}
		for i := 0; i < len(p.calls) && s.n == 0; i++ {
			a.asks = append(a.asks, p.calls[i].name)
		}
		if p.works && s.n == 0 {
			a.says = p.errand.says(s)
		}
	case len(p.kids) > 0:
		a.to = p.kids[s.turn/tries%len(p.kids)].name
	case p.exitAt > 0:
		a.exit = (s.n/(rounds+1))%p.exitAt == p.exitAt-1
	}
	return a
}

// toolKey names a call in its arguments.
func (s step) toolKey(i int) string {
	return fmt.Sprintf("%d.%d.%s.%d.%d", s.session, s.turn, s.agent, s.n, i)
}

// toolFails tells whether the handler of a call fails, in whichever session.
func toolFails(key string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(keyOfSession.ReplaceAllString(key, "")))
	return h.Sum32()%11 == 0
}

// keyOfSession is what the key of a call has of its session and turn.
var keyOfSession = regexp.MustCompile(`^\d+\.\d+\.`)

func toolOutput(key string) string { return "result of " + key }
func toolError(key string) string  { return "no luck with " + key }

// stopAt is the iteration after which a client wants no more of a loop. A client
// that comes later knows no more than the question.
func (p *plan) stopAt() int { return 1 + len(p.name)%p.most }

// walk is what a turn of a tree comes to.
type walk struct {
	seed          uint64
	session, turn int
	asks          bool // the client is asked after each iteration
	counts        map[string]int
	steps         []step
}

// leaf runs one agent to the end of what it does and reports whether a loop
// around it is left.
func (w *walk) leaf(p *plan) (exit bool) {
	for {
		s := step{w.session, w.turn, p.name, w.counts[p.name]}
		w.counts[p.name]++
		w.steps = append(w.steps, s)
		a := p.act(w.seed, s)
		for i := range a.asks {
			w.visit(p.calls[i])
		}
		if a.to != "" {
			i := slices.IndexFunc(p.kids, func(kid *plan) bool { return kid.name == a.to })
			return w.leaf(p.kids[i])
		}
		if len(a.tools) == 0 {
			return a.exit
		}
	}
}

func (w *walk) visit(p *plan) (exit bool) {
	switch p.kind {
	case leaf:
		return w.leaf(p)
	case looped:
		for i := 1; i <= p.most; i++ {
			if slices.ContainsFunc(p.kids, w.visit) {
				return false // the innermost loop alone is left
			}
			if w.asks && i >= p.stopAt() {
				return false
			}
		}
		return false
	default:
		for _, kid := range p.kids {
			w.visit(kid)
		}
		return false
	}
}

// steps are the answers of a whole turn, sorted. Below an LLM root a turn starts
// with the agent that spoke last, start; "" is the root.
func (p *plan) steps(seed uint64, session, turn int, asks bool, start string) []step {
	w := &walk{seed: seed, session: session, turn: turn, asks: asks, counts: map[string]int{}}
	from := p
	if p.kind == leaf && start != "" {
		from = p.find(start)
	}
	w.visit(from)
	slices.SortFunc(w.steps, compareSteps)
	return w.steps
}

func compareSteps(a, b step) int {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.turn, b.turn), strings.Compare(a.agent, b.agent), cmp.Compare(a.n, b.n))
}

func (p *plan) find(name string) *plan {
	if p.name == name {
		return p
	}
	for _, kid := range slices.Concat(p.kids, p.calls) {
		if found := kid.find(name); found != nil {
			return found
		}
	}
	return nil
}

// agent is the tree as the protocol has it. Instructions tell the provider whose
// call it gets; the client sets the turn in the state.
func (p *plan) agent(session int) *agentdv1.Agent {
	a := &agentdv1.Agent{Name: p.name, Description: "the agent " + p.name}
	var kids []*agentdv1.Agent
	for _, kid := range p.kids {
		kids = append(kids, kid.agent(session))
	}
	switch p.kind {
	case leaf:
		llm := &agentdv1.LlmAgent{
			Model:       "gpt-chaos",
			Instruction: fmt.Sprintf("chaos session=%d turn=%s agent=%s;", session, p.turnMark(), p.name),
			ToolNames:   []string{"look", "fetch"},
			SubAgents:   kids,
		}
		for _, c := range p.calls {
			llm.AgentTools = append(llm.AgentTools, &agentdv1.AgentTool{Agent: c.agent(session), MaxDepth: 3})
		}
		if p.exitAt > 0 {
			llm.BuiltinTools = []string{"exit_loop"}
		}
		if p.falls {
			llm.Model, llm.FallbackModels = downModel, []string{"gpt-chaos"}
		}
		if p.window > 0 {
			llm.Compaction = &agentdv1.Compaction{
				AtShare: 1, ContextTokens: p.window, Instruction: fmt.Sprintf("chaos summary session=%d agent=%s;", session, p.name),
			}
		}
		if p.keeps {
			llm.OutputKey = p.name + "_text"
		}
		a.AgentType = &agentdv1.Agent_Llm{Llm: llm}
	case sequence:
		a.AgentType = &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: kids}}
	case parallel:
		a.AgentType = &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: kids}}
	case looped:
		a.AgentType = &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: kids, MaxIterations: uint32(p.most)}}
	}
	return a
}

// shape is a tree and how its client goes about its loops.
type shape struct {
	name  string
	root  *plan
	asks  bool
	turns int
	raw   bool // its turns ask for the provider's answers as they come
	files bool // prompts and results have a picture each
	loose bool // what agents are told depends on the order of parallel ones
	// errand is the goal whose turns the server starts, nil if clients do.
	errand *errand
}

func one(name string, rounds int) *plan { return &plan{name: name, rounds: rounds} }

func group(name string, k kind, kids ...*plan) *plan {
	return &plan{name: name, kind: k, kids: kids, most: 3}
}

// shapes are the trees that are killed at every record.
func shapes() []shape {
	judge := func() *plan { return &plan{name: "judge", exitAt: 2} }
	keeper := &plan{name: "keeper", rounds: 1, keeps: true}
	transfer := one("front", 1)
	transfer.kids = []*plan{one("expert", 1), one("other", 0)}
	inner := one("router", 0)
	inner.kids = []*plan{one("deep", 1)}
	falling := func(name string, rounds int) *plan { return &plan{name: name, rounds: rounds, falls: true} }
	long := func(name string, rounds int) *plan { return &plan{name: name, rounds: rounds, words: 90, window: 1200} }
	both := long("writer", 1)
	both.falls = true
	expert := one("expert", 1)
	expert.calls = []*plan{one("helper", 1)}
	boss := one("boss", 1)
	boss.calls = []*plan{expert, group("team", sequence, group("pair", parallel, one("ann", 1), one("bob", 0)), one("clerk", 0))}
	return []shape{
		{name: "llm with parallel calls", root: one("solo", 2), turns: 1},
		{name: "sequential", root: group("root", sequence, keeper, one("second", 1), one("third", 0)), turns: 1},
		{name: "parallel", root: group("root", parallel, one("left", 1), one("middle", 0), one("right", 1)), turns: 1},
		{name: "loop with exit_loop", root: group("root", looped, one("writer", 1), judge()), turns: 1},
		{name: "loop with loop_continue", root: group("root", looped, one("writer", 1)), asks: true, turns: 1},
		{name: "transfer", root: transfer, turns: 1},
		{name: "nested", root: group("root", sequence, one("first", 0),
			group("both", parallel, group("round", looped, one("draft", 1), judge()), inner),
			one("sum", 0)), turns: 1},
		{name: "several turns", root: one("chat", 1), turns: 3},
		{name: "fallback", root: group("root", sequence, falling("first", 1),
			group("both", parallel, falling("left", 1), one("right", 0))), turns: 1, raw: true},
		{name: "compaction", root: long("chat", 2), turns: 4},
		{name: "files", root: group("root", sequence, one("first", 1), one("second", 1)), turns: 2, files: true},
		{name: "agents as tools", root: group("root", parallel, boss, one("side", 1)), turns: 2},
		{name: "all of it", root: group("root", parallel, group("round", looped, both), long("side", 1)),
			turns: 2, raw: true, files: true, loose: true},
		errands()[0], errands()[1],
	}
}

// randomShape returns a tree of at most three levels of groups.
func randomShape(rng *rand.Rand) shape {
	if rng.IntN(4) == 0 {
		return randomErrand(rng)
	}
	all := slices.DeleteFunc(shapes(), func(s shape) bool { return s.errand != nil })
	if rng.IntN(2) == 0 {
		s := all[rng.IntN(len(all))]
		s.turns = 1 + rng.IntN(4)
		return s
	}
	g := &grower{rng: rng}
	return shape{name: "random", root: g.grow(3, false), asks: rng.IntN(2) == 0, turns: 1 + rng.IntN(4)}
}

type grower struct {
	rng *rand.Rand
	n   int
	// calls is how many calls of agents are around the agent that grows.
	calls int
}

func (g *grower) name(of string) string {
	g.n++
	return fmt.Sprint(of, g.n)
}

// grow returns a subtree. Agents within a loop do not transfer, and at most two
// loops are around one another: the number of answers stays small.
func (g *grower) grow(depth int, inLoop bool) *plan {
	if depth == 0 || g.rng.IntN(4) == 0 {
		p := &plan{name: g.name("a"), rounds: g.rng.IntN(3), keeps: g.rng.IntN(3) == 0}
		if p.rounds > 0 && g.calls < 2 && g.rng.IntN(4) == 0 {
			g.calls++ // one within the other at most
			for range 1 + g.rng.IntN(2) {
				p.calls = append(p.calls, g.grow(min(depth, 1), false))
			}
			g.calls--
		}
		if !inLoop && g.rng.IntN(3) == 0 {
			for range 1 + g.rng.IntN(2) {
				p.kids = append(p.kids, &plan{name: g.name("t"), rounds: g.rng.IntN(2)})
			}
		}
		return p
	}
	k := []kind{sequence, parallel, looped}[g.rng.IntN(3)]
	if inLoop && k == looped {
		k = sequence
	}
	p := &plan{name: g.name("g"), kind: k, most: 2 + g.rng.IntN(2)}
	for range 1 + g.rng.IntN(3) {
		p.kids = append(p.kids, g.grow(depth-1, inLoop || k == looped))
	}
	if k == looped && g.rng.IntN(2) == 0 {
		p.kids = append(p.kids, &plan{name: g.name("j"), exitAt: 1 + g.rng.IntN(2)})
	}
	return p
}
