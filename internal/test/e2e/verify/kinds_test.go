package verify

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genai"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// rich answers with all that a log can hold of an answer: thoughts, what its provider
// has run, citations; and it calls a tool, once in a turn. Each call takes ten seconds.
// Its model "down" fails.
func rich() harness.Provider {
	return harness.Provider{Name: "rich", Model: func(name string) harness.Generate {
		return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			usage := model.Usage{Prompt: 10, Completion: 5, Total: 15}
			if name == "down" {
				return nil, &model.Error{Kind: model.KindUnavailable, Provider: "rich", Message: "down", Final: true, Usage: &usage}
			}
			b := &adapter.Builder{Provider: "rich", Emit: emit}
			b.Thought("Hm.")
			b.Text("It is sunny.")
			if !harness.Answered(req.Contents[len(req.Contents)-1]) {
				b.Part(adapter.NewCall("", "look", `{"n":1.0}`))
				b.Part(adapter.NewCall("", "ghost", `{}`))
			}
			return &model.Response{
				Content: b.Content(), FinishReason: genai.FinishReasonStop, Usage: usage, Model: "rich-1",
				Provided: &model.Provided{
					Uses:      []model.Use{{ID: "u", Name: "web_search", Input: `{"q":"sun"}`}},
					Citations: []model.Cite{{URI: "https://a.example", Start: 6, End: 11}},
				},
			}, nil
		}
	}}
}

// TestVerifyKinds holds turns of kinds that no other test holds, and forks their
// sessions at every event; startDaemon has each log run again, which must give that
// log.
func TestVerifyKinds(t *testing.T) {
	down := func() *agentdv1.Agent {
		a := harness.LLMAgent("root", "rich/down", "", "look")
		a.GetLlm().FallbackModels = []string{"rich/up"}
		return a
	}
	budget := func(b *agentdv1.Budget) func(*agentdv1.RunRequest_ExecuteRequest) {
		return func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.Budget = b }
	}
	nothing := func(*agentdv1.RunRequest_ExecuteRequest) {}
	const exhausted = agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED
	for name, c := range map[string]struct {
		agent *agentdv1.Agent
		ask   func(ex *agentdv1.RunRequest_ExecuteRequest)
		busy  agentdv1.OnBusy // of another prompt that comes with the first call
		code  agentdv1.ErrorCode
		// silent is that its tool is not answered.
		silent bool
	}{
		"fallback, tools of the provider": {agent: down(), ask: nothing},
		"files": {agent: down(), ask: func(ex *agentdv1.RunRequest_ExecuteRequest) {
			ex.UserPrompt, ex.UserParts = "", []*agentdv1.Part{client.Inline("text/plain", []byte("file")).Proto(), client.FileURI("image/png", "https://a.example/a.png").Proto()}
		}},
		"agents in turn":   {agent: harness.SequentialAgent("top", down(), harness.ParallelAgent("all", harness.LLMAgent("a", "rich/up", "", "look"), harness.LLMAgent("b", "rich/up", "", "look"))), ask: nothing},
		"budget of calls":  {agent: down(), ask: budget(&agentdv1.Budget{ModelCalls: 1}), code: exhausted},
		"budget of tokens": {agent: down(), ask: budget(&agentdv1.Budget{Tokens: 20}), code: exhausted},

		"budget of time":                   {agent: down(), ask: budget(&agentdv1.Budget{WallTime: durationpb.New(15 * time.Second)}), code: exhausted},
		"budget of time, while it waits":   {agent: down(), ask: budget(&agentdv1.Budget{WallTime: durationpb.New(30 * time.Second)}), code: exhausted, silent: true},
		"budget of time, in the last call": {agent: down(), ask: budget(&agentdv1.Budget{WallTime: durationpb.New(25 * time.Second)})},

		"budget of the session": {agent: down(), ask: func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.SessionBudget = &agentdv1.Budget{ModelCalls: 1} }, code: exhausted},
		"all fail":              {agent: harness.LLMAgent("root", "rich/down", ""), ask: nothing, code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE},
		"injected":              {agent: down(), ask: nothing, busy: agentdv1.OnBusy_ON_BUSY_INJECT},
		"queued":                {agent: down(), ask: nothing, busy: agentdv1.OnBusy_ON_BUSY_ENQUEUE},
		"interrupted":           {agent: down(), ask: nothing, busy: agentdv1.OnBusy_ON_BUSY_INTERRUPT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := harness.StartDaemon(t, agentdtest.Config{Providers: []model.Provider{rich()}})
				sessions := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
				request := func(session string) *agentdv1.RunRequest {
					m := harness.StartTurn(c.agent, "look")
					c.ask(m.GetExecute())
					if session != "" {
						m.GetExecute().SessionId = &session
					}
					return m
				}
				talk := func(m *agentdv1.RunRequest, more bool) *harness.Dialogue {
					var session, other string
					got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(m, func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
						if id := m.GetExecute().GetSessionId(); id != "" {
							session = id
						}
						if m.GetToolCall() == nil || c.silent {
							return nil
						}
						if more && other == "" {
							ex := request(session).GetExecute()
							ex.OnBusy = c.busy
							made, err := sessions.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
							if err != nil {
								t.Error(err)
							}
							other = made.Msg.GetTurn().GetId()
						}
						return []*agentdv1.RunRequest{harness.ToolResult(m.GetToolCall().GetToolCallId(), "seen")}
					})
					return got
				}
				got := talk(request(""), c.busy != 0)
				// A turn whose time is over does not wait for the answer that is on its way.
				errs := slices.DeleteFunc(slices.Clone(got.Errors), func(e *agentdv1.RunResponse_ErrorResponse) bool {
					return strings.Contains(e.GetMessage(), "this result came too late, the turn is over")
				})
				switch {
				case c.code != 0:
					if len(errs) != 1 || errs[0].GetCode() != c.code {
						t.Fatalf("%v", got.Msgs)
					}
				case got.End.GetCompleted() == (c.busy == agentdv1.OnBusy_ON_BUSY_INTERRUPT):
					t.Fatalf("%v", got.Msgs)
				}
				if c.busy == agentdv1.OnBusy_ON_BUSY_ENQUEUE || c.busy == agentdv1.OnBusy_ON_BUSY_INTERRUPT {
					return // a turn of its own, which nobody answers
				}
				forks := map[int64]bool{}
				for _, m := range got.Msgs {
					seq := m.GetSeq()
					if seq == 0 || forks[seq] {
						continue
					}
					fork, err := sessions.ForkSession(t.Context(), connect.NewRequest(&agentdv1.ForkSessionRequest{SessionId: got.Session, ThroughSeq: &seq}))
					if err != nil {
						t.Errorf("a fork at %d: %v", seq, err)
						continue
					}
					forks[seq] = true
					if talk(request(fork.Msg.GetSession().GetId()), false).End == nil {
						t.Errorf("a fork at %d", seq)
					}
				}
				if len(forks) < 2 {
					t.Errorf("only %d forks", len(forks))
				}
			})
		})
	}
}
