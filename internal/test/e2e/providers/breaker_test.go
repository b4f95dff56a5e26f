package providers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// wavering is a server of chat completions that is down or up.
type wavering struct {
	up    atomic.Bool
	calls atomic.Int32
}

func (w *wavering) RoundTrip(r *http.Request) (*http.Response, error) {
	w.calls.Add(1)
	resp := &http.Response{StatusCode: http.StatusServiceUnavailable, Request: r, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}
	if w.up.Load() {
		const chunk = `data: {"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":%s}],"usage":%s}` + "\n\n"
		text := fmt.Sprintf(chunk, "Back.", "null", "null") + fmt.Sprintf(chunk, "", `"stop"`, `{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}`) + "data: [DONE]\n\n"
		resp.StatusCode, resp.Body = http.StatusOK, io.NopCloser(strings.NewReader(text))
		resp.Header.Set("Content-Type", "text/event-stream")
	}
	return resp, nil
}

// TestProviderSuspended is F26: a model that keeps failing is not asked any more
// until its cool-down is over, on the server's key or that of the caller who failed;
// fallback models are called at once, and without them the wait is that of a retry.
func TestProviderSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &wavering{}
		d := harness.StartDaemon(t,
			agentdtest.WithProvider(harness.ProviderAt(providertest.OpenAIChat, "http://provider.invalid", server)),
			agentdtest.WithScript("spare", `answers: [{when: {}, text: "Spare."}]`),
			testdaemon.WithBreaker(models.BreakerConfig{Failures: 3}),
			testdaemon.WithRetry(models.Retry{Tries: 2, Base: 1}))
		alone := harness.LLMAgent("root", "openai-chat/m", "")
		agent := harness.LLMAgent("root", "openai-chat/m", "")
		agent.GetLlm().FallbackModels = []string{"scripted/spare"}
		calls := func(want int32) {
			t.Helper()
			if n := server.calls.Swap(0); n != want {
				t.Errorf("the provider was called %d times, want %d", n, want)
			}
		}
		spared := func(retries int, want int32, why string) {
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

		server.up.Store(true)
		spared(0, 0, "suspended")
		time.Sleep(10 * time.Second)
		got := harness.FaultyTurn(t, d, agent, "")
		calls(1)
		if !got.End.GetCompleted() || got.Text["root"] != "Back." || len(got.Fallbacks) != 0 {
			t.Errorf("after the cool-down: %v", got.Msgs)
		}

		// Without a fallback the turn waits for the end of the cool-down.
		server.up.Store(false)
		harness.CheckFailed(t, harness.FaultyTurn(t, d, alone, ""), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 2, "status 503")
		harness.CheckFailed(t, harness.FaultyTurn(t, d, alone, ""), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 2, "suspended", "retry after 10s", "after 2 tries")
		calls(3)
		server.up.Store(true)
		got = harness.FaultyTurn(t, d, alone, "")
		calls(1)
		if !got.End.GetCompleted() || got.Text["root"] != "Back." || len(got.Retries) != 1 || got.Retries[0].GetWait().AsDuration() != 10*time.Second {
			t.Errorf("without a fallback: %v", got.Msgs)
		}
	})
}
