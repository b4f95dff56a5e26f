package adkbridge

import (
	"fmt"
	"strings"
	"testing"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// textBytes is how much text contents hold.
func textBytes(contents []*genai.Content) (n int) {
	for _, c := range contents {
		for _, p := range c.Parts {
			n += len(p.Text)
		}
	}
	return n
}

// TestSeenHistoriesAreSmall: an agent that sees all of a long history holds it once,
// and one that sees only the current turn holds none of it. All agents share one copy
// of the messages, and one of how other agents see them.
func TestSeenHistoriesAreSmall(t *testing.T) {
	const turns, agents, size = 1000, 32, 1000
	const around = 64 // what is put around the text of another agent, at most
	include := func(h agentdv1.IncludeHistory) option {
		return func(a *agentdv1.LlmAgent) { a.IncludeHistory = h }
	}
	var all []*agentdv1.Agent
	turnOnly := map[string]bool{}
	for i := range agents {
		how := agentdv1.IncludeHistory_INCLUDE_HISTORY_ALL
		if i%2 == 1 {
			how = agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN
		}
		name := fmt.Sprint("a", i)
		turnOnly[name] = i%2 == 1
		all = append(all, llm(name, include(how)))
	}
	for name, tree := range map[string]*agentdv1.Agent{"one by one": seq("root", all...), "at the same time": par("root", all...)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.script.always = func(string) step { return say("ok") }
			run := newFakeRun(t, tree, "0"+strings.Repeat("p", size))
			for i := range turns {
				if i > 0 {
					run.begin(fmt.Sprint(i, strings.Repeat("p", size)))
				}
				ev := &adksession.Event{Author: fmt.Sprint("a", i%agents)}
				ev.Content = genai.NewContentFromText(fmt.Sprint(i, strings.Repeat("m", size)), genai.RoleModel)
				data, err := encode(ev, &meta{LLM: "x"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := run.store(record.KindEvent, data); err != nil {
					t.Fatal(err)
				}
			}
			run.begin("go")
			if err := w.runner.runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			if len(w.script.requests) != agents {
				t.Fatalf("%d requests, want %d", len(w.script.requests), agents)
			}
			said := turns * 2 * (size + len("1000"))
			now := agents * around // in the present turn
			seen := map[*genai.Content]bool{}
			for _, r := range w.script.requests {
				got := textBytes(r.contents)
				if turnOnly[r.agent] && got > now {
					t.Errorf("%s is told %d bytes of the present turn, want at most %d", r.agent, got, now)
				}
				if most := said + turns*around + now; got > most {
					t.Errorf("%s is told %d bytes, want at most %d", r.agent, got, most)
				}
				for _, c := range r.contents {
					seen[c] = true
				}
			}
			sum := 0
			for c := range seen {
				sum += textBytes([]*genai.Content{c})
			}
			if most := 2*(said+turns*around) + agents*now; sum < said || sum > most {
				t.Errorf("what all agents are told takes %d bytes, want at least %d and at most %d", sum, said, most)
			}
		})
	}
}
