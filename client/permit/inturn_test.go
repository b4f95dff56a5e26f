package permit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

const threeCalls = `{"answers":[{"calls":[{"name":"sh","args":{"command":"git push"}}]},
	{"calls":[{"name":"sh","args":{"command":"git fetch"}}]},{"calls":[{"name":"sh","args":{"command":"make"}}]},{"text":"done"}]}`

type shell struct {
	Command string `json:"command"`
}

// TestInTurn: what the gate asks is an interaction of the turn; what is said holds as far as it says.
func TestInTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		said  []*client.Resolution
		want  string // of the calls
		asked string
	}{
		"once": {[]*client.Resolution{client.Approve(), client.Approve(), client.Approve()}, "ran ran ran",
			"run git push; run git fetch; run make"},
		"a verb": {[]*client.Resolution{approveFor("session_verb"), client.Approve()}, "ran ran ran", "run git push; run make"},
		"a tool": {[]*client.Resolution{approveFor("session_tool")}, "ran ran ran", "run git push"},
		"a no, with a reason": {[]*client.Resolution{client.Deny("wait"), client.Deny(""), approveFor("session")},
			"denied: wait; a person said no; ran", "run git push; run git fetch; run make"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := conf.Default()
			cfg.Root = t.TempDir()
			gate, err := permit.New(cfg, permit.Serialize(permit.InTurn(nil)))
			if err != nil {
				t.Fatal(err)
			}
			d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"caller": threeCalls}})
			c := d.Client()
			err = client.AddTool(c, "sh", "Runs.", func(ctx context.Context, in shell) (string, error) {
				call := client.CallFrom(ctx)
				r := permit.Request{Tool: "sh", Kind: permit.Command, Detail: in.Command, Effect: permit.Execute, Session: call.SessionID()}
				if err := gate.Check(ctx, r); err != nil {
					return "", err
				}
				return "ran", nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var asked, results []string
			prompter := client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
				if in.N != 1 || in.Kind != client.InteractionApproval || in.ToolName != "sh" || len(in.Choices) != 5 {
					t.Errorf("asked %+v", in)
				}
				asked = append(asked, in.Question)
				return tc.said[len(asked)-1], nil
			})
			for event, err := range c.Run(t.Context(), client.LLM("caller", "scripted/caller", client.Tools("sh")), "go", client.WithPrompter(prompter)) {
				if err != nil {
					t.Fatal(err)
				}
				if a, ok := event.Data.(*client.ToolCallAnswered); ok {
					results = append(results, a.Output+a.Error)
				}
			}
			got := strings.Join(results, "; ")
			rest := got
			for word := range strings.SplitSeq(strings.ReplaceAll(tc.want, "; ", " "), " ") {
				before, after, ok := strings.Cut(rest, word)
				if !ok {
					t.Fatalf("the calls gave %q, want %s", got, tc.want)
				}
				_, rest = before, after
			}
			if all := strings.Join(asked, "; "); all != tc.asked {
				t.Errorf("asked %s, want %s", all, tc.asked)
			}
		})
	}
}

func approveFor(scope string) *client.Resolution {
	return &client.Resolution{Kind: client.ResolutionApproval, Scope: scope}
}

// elsewhere is a prompter of the program.
type elsewhere struct{ asked int }

func (e *elsewhere) AskApproval(context.Context, permit.PromptRequest) (permit.Decision, error) {
	e.asked++
	return permit.Once, nil
}

// TestInTurnWithoutATurn: outside of a tool call another prompter is asked, if there is one.
func TestInTurnWithoutATurn(t *testing.T) {
	if _, err := permit.InTurn(nil).AskApproval(t.Context(), permit.PromptRequest{}); !errors.Is(err, permit.ErrNoPrompter) {
		t.Errorf("nobody: %v", err)
	}
	e := &elsewhere{}
	if d, err := permit.InTurn(e).AskApproval(t.Context(), permit.PromptRequest{}); err != nil || d != permit.Once || e.asked != 1 {
		t.Errorf("elsewhere: %v, %v, asked %d times", d, err, e.asked)
	}
}
