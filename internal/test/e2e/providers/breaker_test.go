package providers

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// TestProviderSuspended is F26: a model that keeps failing is not asked any more
// until its cool-down is over, on the server's key or that of the caller who failed;
// fallback models are called at once, and without them the wait is that of a retry.
func TestProviderSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := fakeprovider.Answer(fakeprovider.Reply{Status: http.StatusServiceUnavailable})
		server := fakeprovider.New(down)
		d := harness.StartDaemon(t, agentdtest.Config{
			Providers: []model.Provider{harness.ProviderAt(providertest.OpenAIChat, "http://provider.invalid", server)},
			Scripts:   map[string]string{"spare": `answers: [{when: {}, text: "Spare."}]`},
		},
			testdaemon.WithBreaker(modelcall.BreakerConfig{Failures: 3}),
			testdaemon.WithRetry(modelcall.Retry{Tries: 2, Base: 1}))
		alone := harness.LLMAgent("root", "openai-chat/m", "")
		agent := harness.LLMAgent("root", "openai-chat/m", "")
		agent.GetLlm().FallbackModels = []string{"scripted/spare"}
		called := 0
		calls := func(want int) {
			t.Helper()
			n := server.Count() - called
			if called += n; n != want {
				t.Errorf("the provider was called %d times, want %d", n, want)
			}
		}
		use := func(script fakeprovider.Script) { server.Use(script); called = 0 }
		spared := func(retries int, want int, why string) {
			t.Helper()
			got := harness.FaultyTurn(t, d, agent, "")
			calls(want)
			if !got.End.GetCompleted() || got.Text["root"] != "Spare." || len(got.Retries) != retries || len(got.Fallbacks) != 1 ||
				!strings.Contains(got.Fallbacks[0].GetMessage(), why) || got.Fallbacks[0].GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE {
				t.Errorf("%v", got.Msgs)
			}
		}
		spared(1, 2, "status 503")
		spared(1, 1, "suspended (failures in a row: 3") // which it became with the first try
		spared(0, 0, "suspended (failures in a row: 3, the last one: unavailable with status 503); retry after ")

		// Another key has failures of its own.
		for event, err := range d.Client().Run(t.Context(), agent, "go", client.WithProviderKey("openai", "sk-callers-own-0123456789")) {
			if err != nil {
				t.Fatal(err)
			}
			if b := harness.As[*client.ModelCallFellBack](event); b != nil && !strings.Contains(b.Message, "after 2 tries") {
				t.Errorf("with a key of the caller's own: %+v", b)
			}
		}
		calls(2)

		use(fakeprovider.Say("Back."))
		spared(0, 0, "suspended")
		time.Sleep(10 * time.Second)
		got := harness.FaultyTurn(t, d, agent, "")
		calls(1)
		if !got.End.GetCompleted() || got.Text["root"] != "Back." || len(got.Fallbacks) != 0 {
			t.Errorf("after the cool-down: %v", got.Msgs)
		}

		// Without a fallback the turn waits for the end of the cool-down.
		use(down)
		harness.CheckFailed(t, harness.FaultyTurn(t, d, alone, ""), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 2, "status 503")
		harness.CheckFailed(t, harness.FaultyTurn(t, d, alone, ""), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 2, "suspended", "retry after 10s", "after 2 tries")
		calls(3)
		use(fakeprovider.Say("Back."))
		got = harness.FaultyTurn(t, d, alone, "")
		calls(1)
		if !got.End.GetCompleted() || got.Text["root"] != "Back." || len(got.Retries) != 1 || got.Retries[0].GetWait().AsDuration() != 10*time.Second {
			t.Errorf("without a fallback: %v", got.Msgs)
		}
	})
}
