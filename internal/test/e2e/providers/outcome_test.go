package providers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// outcomeScripts are a model that is never there and takes something for it, and
// one with long answers, which the word "refuse" makes refuse.
var outcomeScripts = map[string]string{
	"absent": `answers: [{when: {}, usage: {prompt: 5, total: 5}, error: {kind: unavailable, status: 404, message: gone}}]`,
	"present": `answers:
  - {when: {system: "^You write the memory"}, usage: {prompt: 50, completion: 5}, text: "They met."}
  - {when: {user: refuse}, usage: {prompt: 7, total: 7}, error: {kind: blocked, message: never}}
  - {when: {}, usage: {prompt: 1800, completion: 100}, text: "` + strings.Repeat("blah ", 400) + `"}`,
}

// TestCallOutcomes is what is told of calls that answer, that write a summary, and
// that fail, each by a model in place of another one.
func TestCallOutcomes(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{Scripts: outcomeScripts})
	sessions := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
	agent := harness.ScriptedAgent("root", "absent")
	agent.GetLlm().FallbackModels = []string{"scripted/present"}
	agent.GetLlm().Compaction = &agentdv1.Compaction{AtShare: 0.5, ContextTokens: 2000}
	session := ""
	for _, tc := range []struct {
		prompt, want string
		calls        int32
		tokens       int32
	}{
		{"talk", "ANSWERED", 2, 1905},
		{"talk on", "SUMMARIZED ANSWERED", 4, 60 + 1905},
		{"refuse", "SUMMARIZED FAILED", 4, 60 + 12},
	} {
		ex := harness.StartTurn(agent)
		ex.GetExecute().UserPrompt = tc.prompt
		if session != "" {
			ex.GetExecute().SessionId = &session
		}
		got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(ex, nil)
		session = got.Session
		if got.End.GetCompleted() != !strings.Contains(tc.want, "FAILED") {
			t.Errorf("%s: ended with %v, %v", tc.prompt, got.End, got.Errors)
		}
		if u := got.End.GetUsageSummary(); u.GetLlmCalls() != tc.calls || u.GetTotalUsage().GetTotalTokens() != tc.tokens {
			t.Errorf("%s took %v, want %d tokens of %d calls", tc.prompt, u, tc.tokens, tc.calls)
		}
		resp, err := sessions.ListModelCalls(t.Context(), connect.NewRequest(&agentdv1.ListModelCallsRequest{SessionId: session}))
		if err != nil {
			t.Fatal(err)
		}
		var told, listed, fell []string
		for _, c := range got.ModelCalls {
			told = append(told, strings.TrimPrefix(c.GetOutcome().String(), "OUTCOME_"))
			if c.GetUsage().GetModelCalls() != 2 || c.GetModel() != "scripted/present" {
				t.Errorf("%s: a call is told as %v", tc.prompt, c)
			}
		}
		for _, c := range resp.Msg.GetCalls() {
			listed = append(listed, strings.TrimPrefix(c.GetCall().GetOutcome().String(), "OUTCOME_"))
		}
		for _, f := range got.Fallbacks {
			outcome := "SUMMARIZED"
			if f.GetMessageId() != "" {
				outcome = strings.Fields(tc.want)[len(strings.Fields(tc.want))-1]
			}
			fell = append(fell, outcome)
		}
		if want := strings.Fields(tc.want); !slices.Equal(told, want) || !slices.Equal(listed, want) || !slices.Equal(fell, want) {
			t.Errorf("%s: told of %q, listed are %q, other models are called for %q, want %q", tc.prompt, told, listed, fell, want)
		}
	}
}

// TestAbortedCallOutcome cancels a turn in the middle of an answer: what its provider
// has said by then that it took is told, listed and counted, also in the session's
// budget. OpenAI says so at the end alone.
func TestAbortedCallOutcome(t *testing.T) {
	said := map[providertest.Wire]int32{providertest.Anthropic: 1000 + 1, providertest.Gemini: 1000}
	chapter := providertest.Answer{Text: strings.Repeat("and then ", 100), Usage: providertest.Usage{Prompt: 1000, Completion: 50, Total: 1050}}
	harness.OnEachWire(t, func(t *testing.T, wire providertest.Wire) {
		stream, err := providertest.Invent(wire, chapter).Exchanges[0].EventStream()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			server := chatty(providertest.Events(stream))
			d := harness.StartDaemon(t, agentdtest.Config{
				Providers: []model.Provider{harness.ProviderAt(wire, "http://provider.invalid", server)},
			})
			run := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}
			ex := harness.StartTurn(harness.LLMAgent("root", harness.Invented(wire), ""))
			spoke := false
			got := run.Talk(ex, func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
				if m.GetOutputChunk() == nil || spoke {
					return nil
				}
				spoke = true
				return []*agentdv1.RunRequest{harness.Cancel(nil)}
			})
			want, calls := said[wire], min(said[wire], 1)
			if u := got.End.GetUsageSummary(); got.End.GetCompleted() || u.GetTotalUsage().GetTotalTokens() != want || u.GetLlmCalls() != calls || len(got.End.GetReceipt().GetAbortedModelCalls()) != 1 {
				t.Errorf("ended with %v, want %d tokens of %d calls", got.End, want, calls)
			}
			resp, err := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL).ListModelCalls(t.Context(), connect.NewRequest(&agentdv1.ListModelCallsRequest{SessionId: got.Session}))
			if err != nil {
				t.Fatal(err)
			}
			listed := got.ModelCalls
			for _, c := range resp.Msg.GetCalls() {
				listed = append(listed, c.GetCall())
			}
			for _, c := range listed {
				if c.GetOutcome() != agentdv1.ModelCallEnded_OUTCOME_FAILED || c.GetUsage().GetTotalTokens() != int64(want) || c.GetModel() != harness.Invented(wire) {
					t.Errorf("a call is told as %v", c)
				}
			}
			if len(listed) != 2*int(calls) {
				t.Errorf("told of %v", listed)
			}
			if calls == 0 {
				return
			}
			ex = harness.StartTurn(harness.LLMAgent("root", harness.Invented(wire), ""))
			ex.GetExecute().SessionId, ex.GetExecute().SessionBudget = &got.Session, &agentdv1.Budget{Tokens: int64(want)}
			harness.CheckFailed(t, run.Talk(ex, nil), agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED, 1, fmt.Sprintf("%d of %d tokens", want, want))
			if n := server.Count(); n != 1 {
				t.Errorf("%d model calls were made, want 1", n)
			}
		})
	})
}
