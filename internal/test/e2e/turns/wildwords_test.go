package turns

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// TestWildWordsOfModels: whatever bytes an adapter has for a model's name or an
// error, what is told of them can be sent, and is not long.
func TestWildWordsOfModels(t *testing.T) {
	wild := "wild \xff\xfe " + strings.Repeat("w", 20_000)
	tries := 0
	d := harness.StartDaemon(t, agentdtest.Config{
		Providers: []model.Provider{harness.Provider{Name: "wild", Model: func(name string) harness.Generate {
			return func(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
				if name == "broken" {
					tries++
					return nil, &model.Error{Kind: model.KindUnavailable, Provider: "wild", Message: wild}
				}
				b := &adapter.Builder{Provider: "wild", Emit: emit}
				b.Text("I am here.")
				return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop, Model: wild}, nil
			}
		}}},
	}, testdaemon.WithRetry(modelcall.Retry{Tries: 2, Base: 1}))
	agent := harness.LLMAgent("root", "wild/broken", "")
	agent.GetLlm().FallbackModels = []string{"wild/whole"}
	got := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(harness.StartTurn(agent), harness.AnswerAll(""))
	if !got.End.GetCompleted() || got.Text["root"] != "I am here." || tries != 2 {
		t.Fatalf("after %d tries: %.2000v", tries, got.Msgs)
	}
	var seen []string
	for _, m := range got.Msgs {
		var said string
		switch r := m.GetResponse().(type) {
		case *agentdv1.RunResponse_ModelCallRetried:
			seen, said = append(seen, "retry"), r.ModelCallRetried.GetMessage()
		case *agentdv1.RunResponse_ModelCallFellBack:
			seen, said = append(seen, "fallback"), r.ModelCallFellBack.GetMessage()
		case *agentdv1.RunResponse_ModelCallEnded:
			seen, said = append(seen, "ended"), r.ModelCallEnded.GetServedModel()
		default:
			continue
		}
		if !strings.Contains(said, "wild \uFFFD") || len(said) > 5000 {
			t.Errorf("%s with %d bytes: %.100q", seen[len(seen)-1], len(said), said)
		}
	}
	if want := []string{"retry", "fallback", "ended"}; !slices.Equal(seen, want) {
		t.Errorf("told of %q, want %q", seen, want)
	}
}
