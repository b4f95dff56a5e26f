package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// misbehaving are models that do what models should not.
func misbehaving() map[string]string {
	calls := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"name":"look","id":"same","args":{"n":%d}},`, i)
		}
		return fmt.Sprintf(`{"answers":[{"when":{"step":1},"calls":[%s]},{"when":{},"text":"{{tool_result \"look\"}}"}]}`, strings.TrimSuffix(b.String(), ","))
	}
	return map[string]string{
		"unknown": `answers:
  - {when: {step: 1}, calls: [{name: nope, args: {a: 1}}, {name: look}]}
  - {when: {}, text: 'nope: {{tool_result "nope"}}; look: {{tool_result "look"}}'}`,
		"cut": `answers:
  - {when: {step: 1}, calls: [{name: look, args_text: '{"where": "nor'}]}
  - {when: {}, text: '{{tool_result "look"}}'}`,
		"array": `answers:
  - {when: {step: 1}, calls: [{name: look, args_text: '["north"]'}]}
  - {when: {}, text: '{{tool_result "look"}}'}`,
		"insists": `answers: [{when: {}, calls: [{name: nope}]}]`,
		"some":    calls(128),
		"many":    calls(500),
	}
}

// TestModelMisbehaves is F29: what a model calls wrongly is told to the model, no
// client sees it, and nothing of it is without a bound.
func TestModelMisbehaves(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{Scripts: misbehaving(), LeakCheck: true})
	for name, c := range map[string]struct {
		text   []string // of the answer that completes the turn
		fails  client.Code
		says   string // of the error
		called int32
		tried  int64 // model calls
	}{
		"unknown": {[]string{`nope: there is no tool "nope"; available: "look"`, "look: seen"}, 0, "", 1, 2},
		"cut":     {[]string{"the arguments are no JSON object", "not JSON"}, 0, "", 0, 2},
		"array":   {[]string{"the arguments are no JSON object", "an array"}, 0, "", 0, 2},
		"some":    {[]string{"seen"}, 0, "", 128, 2},
		"insists": {nil, client.ErrLimitExceeded, "4 times in a row with nothing but calls that cannot be run", 0, 4},
		"many":    {nil, client.ErrModelUnavailable, "500 function calls, at most 128", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			clnt := d.Client()
			var called atomic.Int32
			if err := client.AddRawTool(clnt, "look", "the tool look", func(context.Context, json.RawMessage) (any, error) {
				called.Add(1)
				return "seen", nil
			}); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			var failed *client.Error
			usage := &client.Usage{}
			ids := map[string]bool{}
			session := ""
			for event, err := range clnt.Run(t.Context(), harness.ScriptedAgent("root", name, "look"), "go") {
				switch {
				case err != nil:
					if !errors.As(err, &failed) {
						t.Fatal(err)
					}
					if failed.Usage != nil {
						usage = failed.Usage
					}
				case harness.As[*client.TurnStarted](event) != nil:
					session = event.SessionID
				case event.ToolCall != nil:
					ids[event.ToolCall.ID] = true
				case event.OutputChunk != nil:
					text.WriteString(event.OutputChunk.Content)
				case event.End != nil:
					usage = event.End.Usage
				}
			}
			if called.Load() != c.called || len(ids) != int(c.called) || usage.ModelCalls != c.tried {
				t.Errorf("%d calls under %d ids, %d model calls; want %d and %d", called.Load(), len(ids), usage.ModelCalls, c.called, c.tried)
			}
			for _, want := range c.text {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the model was not told %q: %s", want, text.String())
				}
			}
			switch {
			case c.fails == 0 && failed != nil:
				t.Errorf("failed: %v", failed)
			case c.fails != 0 && (failed == nil || failed.Code != c.fails || !strings.Contains(failed.Message, c.says)):
				t.Errorf("error %v, want %v with %q", failed, c.fails, c.says)
			}

			// Whatever it was, the session goes on.
			for _, err := range clnt.Run(t.Context(), harness.LLMAgent("root", "echo", ""), "well?", client.WithSessionID(session)) {
				if err != nil {
					t.Errorf("the next turn: %v", err)
				}
			}
		})
	}
}
