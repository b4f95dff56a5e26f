package turns

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// callsOfAnswer is how many tools the stress model calls in one answer.
const callsOfAnswer = 16

// stressInstruction tells the stress model which turn it is, and what to do. The
// client sets the state.
const stressInstruction = "turn={turn} mode={mode}."

var stressState = regexp.MustCompile(`turn=(\d+) mode=(\w+)\.`)

// stressTexts are what an agent says in a turn: before its calls, and after.
func stressTexts(agent, turn string) (ask, tell string) {
	return fmt.Sprintf("%s asks sixteen things in turn %s. ", agent, turn),
		fmt.Sprintf("%s has heard enough in turn %s, thank you all.", agent, turn)
}

// stressModel calls the tool "work" sixteen times in one answer and talks when
// the results are there; in mode "talk" it talks at once. The name of the model
// is that of its agent. It checks that every request is one that every provider
// accepts.
func stressModel(t testing.TB, seed uint64) harness.Provider {
	return harness.Provider{Name: "stress", Model: func(agent string) harness.Generate {
		return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			if err := checkContents(req.Contents); err != nil {
				t.Errorf("the model of %s got an invalid history: %v", agent, err)
			}
			state := stressState.FindStringSubmatch(adapter.Text(req.Config.SystemInstruction))
			if state == nil {
				return nil, &model.Error{Kind: model.KindInvalid, Provider: "stress", Message: "no turn in " + adapter.Text(req.Config.SystemInstruction)}
			}
			turn, mode := state[1], state[2]
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, agent, turn, len(req.Contents))
			rng := rand.New(rand.NewPCG(seed, h.Sum64()))
			say, tell := stressTexts(agent, turn)
			ask := mode == "ask" && !harness.Answered(req.Contents[len(req.Contents)-1])
			if !ask {
				say = tell
			}
			b := &adapter.Builder{Provider: "stress", Emit: emit}
			b.Thought("Hm. ")
			for word := range words.Split(say) {
				if rng.IntN(4) == 0 {
					if err := harness.Wait(ctx, time.Duration(rng.IntN(400))*time.Microsecond); err != nil {
						return nil, err
					}
				}
				b.Text(word)
			}
			for i := range callsOfAnswer {
				if ask {
					// Some providers give no ids, others the same ones in every answer.
					id := []string{"", fmt.Sprint("call_", i)}[len(turn)%2]
					b.Part(adapter.NewCall(id, "work", fmt.Sprintf(`{"n":%d}`, i)))
				}
			}
			return &model.Response{
				Content: b.Content(), FinishReason: genai.FinishReasonStop,
				Usage: model.Usage{Prompt: 7, Completion: 3, Total: 10}, Model: agent,
			}, nil
		}
	}}
}

// checkContents says what is wrong with a conversation that is to be sent to a
// provider: each answer with calls is followed by their results, one for each
// call, and there are no others.
func checkContents(contents []*genai.Content) error {
	open := map[string]bool{}
	for i, c := range contents {
		results := 0
		for _, p := range c.Parts {
			if r := p.FunctionResponse; r != nil {
				results++
				if !open[r.ID] {
					return fmt.Errorf("content %d of %d: result %s belongs to no call of the answer before", i, len(contents), r.ID)
				}
				delete(open, r.ID)
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("content %d of %d: %d calls of the answer before have no result", i, len(contents), len(open))
		}
		for _, p := range c.Parts {
			if call := p.FunctionCall; call != nil {
				if open[call.ID] || results > 0 || c.Role != genai.RoleModel {
					return fmt.Errorf("content %d of %d: call %s is twice there, or beside results, or not of the model", i, len(contents), call.ID)
				}
				open[call.ID] = true
			}
		}
	}
	if len(open) > 0 || contents[len(contents)-1].Role != genai.RoleUser {
		return fmt.Errorf("the conversation of %d contents ends with an answer of the model", len(contents))
	}
	return nil
}

// stressTree is one of the trees under stress, and the paths of its agents that
// speak, by name.
type stressTree struct {
	agent *agentdv1.Agent
	paths map[string]string
}

func stressTrees() []stressTree {
	leaf := func(name string) *agentdv1.Agent {
		return harness.LLMAgent(name, "stress/"+name, stressInstruction, "work")
	}
	one, both := map[string]string{"a": "a"}, map[string]string{"a": "root/a", "b": "root/b"}
	return []stressTree{
		{leaf("a"), one},
		{leaf("a"), one},
		{harness.SequentialAgent("root", leaf("a"), leaf("b")), both},
		{harness.ParallelAgent("root", leaf("a"), leaf("b")), both},
	}
}

// checkTexts holds what agents were heard to say against what they say: the
// whole of it when the turn was completed, else its beginning.
func (s stressTree) checkTexts(turn string, heard map[string]string, completed bool) error {
	for name, path := range s.paths {
		ask, tell := stressTexts(name, turn)
		whole, got := ask+tell, heard[path]
		if completed && got != whole || !strings.HasPrefix(whole, got) {
			return fmt.Errorf("%s was heard to say %q, completed %v, it says %q", path, got, completed, whole)
		}
	}
	for path := range heard {
		known := false
		for _, p := range s.paths {
			known = known || p == path
		}
		if !known {
			return fmt.Errorf("%q speaks, which is no path of an agent of this tree", path)
		}
	}
	return nil
}
