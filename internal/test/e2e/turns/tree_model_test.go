package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// op is the n-th answer of an agent in a run.
type op struct {
	agent string
	n     int
}

// edge is a rule of order: what the first one does is over when the other begins.
type edge struct{ before, after op }

// step is what an agent does in an answer, besides talking.
type step struct {
	tools []string // of the client, called together
	exit  bool     // calls exit_loop
	to    string   // transfers there
}

// treeSteps are the agents' answers; an agent not named talks once each time.
var treeSteps = map[string]func(n int) step{
	"draft":  func(n int) step { return []step{{tools: []string{"look", "fetch"}}, {}}[n%2] },
	"judge":  func(n int) step { return step{exit: n%2 == 1} },
	"router": func(int) step { return step{to: "expert"} },
	"expert": func(n int) step { return []step{{tools: []string{"fetch", "fetch", "look"}}, {to: "deep"}}[n] },
	"middle": func(n int) step { return []step{{tools: []string{"look"}}, {tools: []string{"look", "look"}}, {}}[n] },
}

// treeLoops is how often each loop goes round: left reaches its cap, nested is
// left by exit_loop.
var treeLoops = map[string]int{"left": 3, "nested": 2}

func stepOf(agent string, n int) step {
	if f := treeSteps[agent]; f != nil {
		return f(n)
	}
	return step{}
}

// bigTree has seven levels and all types of agents.
func bigTree() *agentdv1.Agent {
	leaf := func(name, instruction string, tools ...string) *agentdv1.Agent {
		return harness.LLMAgent(name, "tree/"+name, instruction, tools...)
	}
	keep := func(a *agentdv1.Agent) *agentdv1.Agent {
		a.GetLlm().OutputKey = a.GetName() + "_text"
		return a
	}
	judge := keep(leaf("judge", "Judge {draft_text}."))
	judge.GetLlm().BuiltinTools = []string{"exit_loop"}
	router, expert := leaf("router", "Route."), leaf("expert", "Know {plan_text}.", "look", "fetch")
	expert.GetLlm().SubAgents = []*agentdv1.Agent{keep(leaf("deep", "Dive."))}
	router.GetLlm().SubAgents = []*agentdv1.Agent{expert, leaf("idle", "Nobody transfers here.")}
	return harness.SequentialAgent("root",
		keep(leaf("plan", "Plan.")),
		harness.ParallelAgent("work",
			harness.LoopAgent("left", 3, harness.SequentialAgent("line",
				keep(leaf("draft", "Write.", "look", "fetch")),
				harness.ParallelAgent("both",
					leaf("proof", "Read {draft_text}."),
					harness.LoopAgent("nested", 5, judge),
				),
			)),
			router,
			keep(leaf("middle", "Stand in the middle.", "look")),
		),
		leaf("sum", "Sum up {plan_text} {draft_text} {judge_text} {deep_text} {middle_text}."),
	)
}

// treeOrder derives from the tree what has to come before what.
func treeOrder(root *agentdv1.Agent) []edge {
	w := &orderWalk{counts: map[string]int{}}
	w.visit(root, nil)
	return w.edges
}

type orderWalk struct {
	edges  []edge
	counts map[string]int // answers of each agent so far
}

// visit runs an agent after what it has to wait for, and returns what waits for
// it.
func (w *orderWalk) visit(a *agentdv1.Agent, after []op) []op {
	switch {
	case a.GetSequential() != nil:
		for _, kid := range a.GetSequential().GetAgents() {
			after = w.visit(kid, after)
		}
		return after
	case a.GetParallel() != nil:
		var ends []op
		for _, kid := range a.GetParallel().GetAgents() {
			ends = append(ends, w.visit(kid, after)...)
		}
		return ends
	case a.GetLoop() != nil:
		for range treeLoops[a.GetName()] {
			for _, kid := range a.GetLoop().GetAgents() {
				after = w.visit(kid, after)
			}
		}
		return after
	}
	for {
		o := op{a.GetName(), w.counts[a.GetName()]}
		w.counts[a.GetName()]++
		for _, before := range after {
			w.edges = append(w.edges, edge{before, o})
		}
		after = []op{o}
		s := stepOf(o.agent, o.n)
		if s.to != "" {
			i := slices.IndexFunc(a.GetLlm().GetSubAgents(), func(kid *agentdv1.Agent) bool { return kid.GetName() == s.to })
			return w.visit(a.GetLlm().GetSubAgents()[i], after)
		}
		if len(s.tools) == 0 {
			return after
		}
	}
}

// treeMark is in everything that an agent says and in the arguments of its
// calls: whose answer it is, and the how many-th.
var treeMark = regexp.MustCompile(`<(\w+)\.(\d+)>`)

func markedOp(text string, found []int) op {
	n, _ := strconv.Atoi(text[found[4]:found[5]]) // digits, see treeMark
	return op{text[found[2]:found[3]], n}
}

// treeModel answers as treeSteps say, after random times. What an agent says
// holds a digest of what its model was told, so it is the same only if that is.
func treeModel() harness.Provider {
	return harness.Provider{Name: "tree", Model: func(agent string) harness.Generate {
		return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			n := 0
			for _, c := range req.Contents {
				if c.Role == genai.RoleModel {
					n++
				}
			}
			mark := fmt.Sprintf("<%s.%d>", agent, n)
			s := stepOf(agent, n)
			b := &adapter.Builder{Provider: "tree", Emit: emit}
			for word := range words.Split(fmt.Sprintf("%s was told %s and says so. %s ", mark, digest(agent, req), mark)) {
				if err := harness.Wait(ctx, time.Duration(rand.IntN(1500))*time.Microsecond); err != nil {
					return nil, err
				}
				b.Text(word)
			}
			for i, tool := range s.tools {
				b.Part(adapter.NewCall("", tool, fmt.Sprintf(`{"of":%q,"i":%d}`, mark, i)))
			}
			if s.exit {
				b.Part(adapter.NewCall("", "exit_loop", "{}"))
			}
			if s.to != "" {
				b.Part(adapter.NewCall("", "transfer_to_agent", fmt.Sprintf(`{"agent_name":%q}`, s.to)))
			}
			return &model.Response{
				Content: b.Content(), FinishReason: genai.FinishReasonStop,
				Usage: model.Usage{Prompt: 3, Completion: 2, Total: 5}, Model: agent,
			}, nil
		}
	}}
}

// digest is a short form of what a model is told, without ids. The agent above
// all branches is told of them in the order in which they happened to run, which
// does not count.
func digest(agent string, req *model.Request) string {
	var lines []string
	for _, c := range req.Contents {
		line := c.Role
		for _, p := range c.Parts {
			line += "|" + p.Text
			if p.FunctionCall != nil {
				args, _ := json.Marshal(p.FunctionCall.Args) // of a model of ours
				line += p.FunctionCall.Name + string(args)
			}
			if p.FunctionResponse != nil {
				body, _ := json.Marshal(p.FunctionResponse.Response) // it was JSON
				line += p.FunctionResponse.Name + string(body)
			}
		}
		lines = append(lines, line)
	}
	if agent == "sum" {
		slices.Sort(lines)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(adapter.Text(req.Config.SystemInstruction) + strings.Join(lines, "\n")))
	return fmt.Sprintf("%d lines, %x,", len(lines), h.Sum64())
}

// scrubbed is an event without what differs from run to run, and its author.
func scrubbed(t *testing.T, data []byte) (author, line string) {
	var ev map[string]any
	if err := json.Unmarshal(data, &ev); err != nil {
		t.Error(err)
		return "", ""
	}
	plainlog.Scrub(ev)
	out, err := json.Marshal(ev)
	if err != nil {
		t.Error(err)
	}
	author, _ = ev["author"].(string)
	return author, string(out)
}
