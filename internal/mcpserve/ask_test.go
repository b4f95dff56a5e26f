package mcpserve_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/internal/mcpserve"
)

// asking adds tools that ask: gate asks the gate about a command, sure needs approval, and the agent may ask a person.
func asking(b *bench) {
	set := client.NewToolSet()
	must(b.t, client.AddTool(set, "gate", "Asks", func(ctx context.Context, _ struct{}) (string, error) {
		d, err := b.server.AskApproval(ctx, permit.PromptRequest{
			ToolName: "bash", Detail: "go test\n./...", Access: "x", Verb: "go", PersistKey: "go test ./...", Source: "sub",
		})
		return fmt.Sprint(d, " ", err), nil
	}))
	must(b.t, client.AddTool(set, "sure", "Needs approval", func(context.Context, struct{}) (string, error) {
		return "done", nil
	}, client.NeedsApproval()))
	for _, name := range []string{"gate", "sure"} {
		b.add(mcpserve.Tool{
			Name: name, Client: b.daemon.Client(), Agent: client.LLM(name, "scripted/"+name, client.Tools(name)),
			Options: []client.SendOption{client.WithTools(set)},
		})
	}
	b.add(mcpserve.Tool{
		Name: "person", Client: b.daemon.Client(),
		Agent: client.LLM("person", "scripted/person", client.BuiltinTools("ask_user")),
	})
}

// TestQuestions: what the gate and the turn ask, the host's person answers; without one it is refused.
func TestQuestions(t *testing.T) {
	t.Parallel()
	b := newBench(t, mcpserve.Config{})
	asking(b)
	type answer = *sdk.ElicitResult
	accept := func(key, value string) answer {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{key: value}}
	}
	decline := &sdk.ElicitResult{Action: "decline"}
	for _, test := range []struct {
		tool   string
		says   answer // nil: the host has no elicitation
		asked  []string
		result string
	}{
		{"gate", accept("decision", "once"), []string{"[sub] bash wants to run: go test ./...", "session_verb", "always"},
			fmt.Sprint(permit.Once) + " <nil>"},
		{"gate", accept("decision", "always"), nil, fmt.Sprint(permit.Always) + " <nil>"},
		{"gate", accept("decision", "deny"), nil, fmt.Sprint(permit.Deny) + " <nil>"},
		{"gate", decline, nil, fmt.Sprint(permit.Deny) + " <nil>"},
		{"gate", nil, nil, "nobody is there to be asked"},
		{"sure", accept("decision", "approve"), []string{"sure wants to call sure with {}"}, "done"},
		{"sure", accept("decision", "deny"), nil, "has said no"},
		{"sure", decline, nil, "has said no"},
		{"sure", nil, nil, "no elicitation"},
		{"person", accept("answer", "blue"), []string{"Which color? (red | green)"}, "blue"},
		{"person", decline, nil, "no answer"},
		{"person", nil, nil, "no elicitation"},
	} {
		questions := make(chan string, 10)
		opts := &sdk.ClientOptions{}
		if test.says != nil {
			opts.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				questions <- fmt.Sprint(r.Params.Message, " ", r.Params.RequestedSchema)
				return test.says, nil
			}
		}
		h := b.http(host(opts))
		got := call(t, h, test.tool, map[string]any{"prompt": "x"})
		if got.isErr || !strings.Contains(got.text, test.result) {
			t.Errorf("%s with %v: got %+v, want %q", test.tool, test.says, got, test.result)
		}
		if n := len(questions); n != 1 && test.says != nil || n != 0 && test.says == nil {
			t.Errorf("%s: %d questions", test.tool, n)
			continue
		}
		if test.asked == nil {
			continue
		}
		question := <-questions
		if slices.ContainsFunc(test.asked, func(s string) bool { return !strings.Contains(question, s) }) {
			t.Errorf("%s: asked %q, want %q", test.tool, question, test.asked)
		}
	}
}

// TestNobodyAsks: outside of a call nobody is asked.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	s := mcpserve.New(mcpserve.Config{})
	if d, err := s.AskApproval(t.Context(), permit.PromptRequest{}); d != permit.Deny || !errors.Is(err, permit.ErrNoPrompter) {
		t.Errorf("got %v, %v", d, err)
	}
}
