package turns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// consultants are models that call agents as tools: boss calls two of them at once, each of which has a tool of the
// client called.
func consultants(agent string) harness.Generate {
	return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
		last := req.Contents[len(req.Contents)-1]
		out := &genai.Content{Role: genai.RoleModel}
		say := func(text string) {
			emit(model.Delta{Text: text})
			out.Parts = append(out.Parts, genai.NewPartFromText(text))
		}
		var results []string
		for _, p := range last.Parts {
			if p.FunctionResponse != nil {
				results = append(results, fmt.Sprint(p.FunctionResponse.Response))
			}
		}
		switch {
		case len(results) > 0 && agent == "boss":
			say("boss: " + strings.Join(results, " "))
		case len(results) > 0:
			say(agent + ": " + strings.Join(results, " "))
		case agent == "boss":
			for _, request := range []string{"north", "south"} {
				out.Parts = append(out.Parts, adapter.NewCall("", "scout", fmt.Sprintf(`{"request":%q}`, request)))
			}
		default:
			out.Parts = append(out.Parts, adapter.NewCall("", "look", fmt.Sprintf(`{"at":%q}`, last.Parts[0].Text)))
		}
		return &model.Response{
			Content: out, FinishReason: genai.FinishReasonStop, Model: "m", Usage: model.Usage{Prompt: 5, Completion: 5, Total: 10},
		}, nil
	}
}

// Agents that are called as tools run within the turn: their tools are asked of the same client, what they take is the
// turn's, their events say where they come from, also to who comes later, and the budget of the turn bounds them.
func TestAgentTools(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{
		Providers: []model.Provider{harness.Provider{Name: "team", Model: consultants}},
	})
	c := d.Client()
	type where struct {
		At string `json:"at"`
	}
	if err := client.AddTool(c, "look", "Looks somewhere.", func(_ context.Context, in where) (string, error) {
		return "seen " + in.At, nil
	}); err != nil {
		t.Fatal(err)
	}
	scout := harness.LLMAgent("scout", "team/scout", "", "look")
	boss := harness.LLMAgent("boss", "team/boss", "")
	boss.GetLlm().AgentTools = []*agentdv1.AgentTool{{Agent: scout}}

	id := ""
	story := func(seq func(func(*client.Event, error) bool)) (lines []string, end *client.End) {
		for e, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			if e.SessionID != "" {
				id = e.SessionID
			}
			at := "-"
			if e.Lineage != nil {
				at = fmt.Sprintf("%s %d", e.Lineage.Branch, e.Lineage.Depth)
			}
			switch d := e.Data.(type) {
			case *client.OutputChunk:
				if d.Content != "" {
					lines = append(lines, at+" says "+d.Content)
				}
			case *client.ToolCallAnswered:
				lines = append(lines, at+" called "+d.Name)
			case *client.AgentStarted:
				lines = append(lines, at+" starts "+strings.Join(d.AgentPath, "/"))
			case *client.End:
				end = d
			}
		}
		slices.Sort(lines)
		return lines, end
	}
	lines, end := story(c.Run(t.Context(), boss, "go"))
	want := []string{
		"- says boss: map[result:scout: map[output:seen north]] map[result:scout: map[output:seen south]]", "- starts boss",
		"scout 1 called look", "scout 1 called look",
		"scout 1 says scout: map[output:seen north]", "scout 1 says scout: map[output:seen south]",
		"scout 1 starts boss/scout", "scout 1 starts boss/scout",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the turn:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if end == nil || !end.Completed || end.Usage.ModelCalls != 6 || end.Usage.TotalTokens != 60 {
		t.Errorf("the end %+v, usage %+v", end, end.Usage)
	}
	if later, _ := story(c.Attach(t.Context(), id)); !slices.Equal(later, want) {
		t.Errorf("who comes later sees:\n%s", strings.Join(later, "\n"))
	}
	_, err := c.Do(t.Context(), boss, "go", client.WithBudget(client.Budget{Tokens: 25}))
	if err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("a turn whose agents take more than its budget ends with %v", err)
	}
}
