package providers

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// TestProviderFallback is F26: providers that fail are replaced by the next ones,
// within one turn, with what others have called in the history; and the first one
// is asked again at each call.
func TestProviderFallback(t *testing.T) {
	for _, wires := range [][]providertest.Wire{
		{providertest.Anthropic, providertest.OpenAIResponses, providertest.Gemini},
		{providertest.Gemini, providertest.Anthropic, providertest.OpenAIChat},
		{providertest.OpenAIResponses, providertest.OpenAIChat, providertest.Anthropic},
		{providertest.OpenAIChat, providertest.Gemini, providertest.OpenAIResponses},
	} {
		t.Run(fmt.Sprint(wires), func(t *testing.T) {
			first := providertest.NewServer(t, providertest.Invent(wires[0], harness.Look, harness.Hello), map[int]providertest.Fault{
				1: harness.Refused(wires[0], 503), 2: harness.Refused(wires[0], 529), // of the second call, which is tried twice
				3: harness.Refused(wires[0], 429), 4: harness.Refused(wires[0], 500), // of the third call
			})
			second := providertest.NewServer(t, providertest.Invent(wires[1], harness.Look, harness.Look), map[int]providertest.Fault{1: harness.Refused(wires[1], 401)})
			third := providertest.NewServer(t, providertest.Invent(wires[2], harness.Look), nil)
			servers := []*providertest.Server{first, second, third}
			var vendors []model.Provider
			for i, wire := range wires {
				vendors = append(vendors, harness.ProviderAt(wire, strings.TrimSuffix(servers[i].BaseURL(wire), "/"), nil))
			}
			d := harness.StartDaemon(t, agentdtest.Config{Providers: vendors},
				testdaemon.WithRetry(modelcall.Retry{Tries: 2, Base: 1}))
			got := harness.FaultyTurn(t, d, harness.Backed(wires, "look"), "")
			if !got.End.GetCompleted() || got.Text["root"] != "Hello." || len(got.Calls) != 3 || len(got.Retries) != 2 {
				t.Fatalf("%v", got.Msgs)
			}

			var changes, models []string
			for _, f := range got.Fallbacks {
				changes = append(changes, fmt.Sprint(f.GetModel(), " ", f.GetNextModel(), " ", f.GetCode()))
				if strings.Contains(f.String(), harness.KeyCanary) {
					t.Errorf("a message tells the key: %v", f)
				}
			}
			for _, c := range got.ModelCalls {
				models = append(models, c.GetModel()+" "+c.GetProvider())
			}
			a, b, c := harness.Invented(wires[0]), harness.Invented(wires[1]), harness.Invented(wires[2])
			if want := []string{a + " " + b + " ERROR_CODE_MODEL_UNAVAILABLE", a + " " + b + " ERROR_CODE_MODEL_UNAVAILABLE", b + " " + c + " ERROR_CODE_AUTH_FAILED"}; !slices.Equal(changes, want) {
				t.Errorf("changes %q, want %q", changes, want)
			}
			name := func(i int) string {
				return harness.Invented(wires[i]) + " " + harness.WireProviders[wires[i]].Describe().Name
			}
			if want := []string{name(0), name(1), name(2), name(0)}; !slices.Equal(models, want) {
				t.Errorf("calls of %q, want %q", models, want)
			}
			if u := got.End.GetUsageSummary(); u.GetLlmCalls() != 4 || int64(u.GetTotalUsage().GetTotalTokens()) != 3*harness.Look.Usage.Total+harness.Hello.Usage.Total {
				t.Errorf("usage %v", u)
			}

			// Each request carries what all of them have called so far.
			for i, after := range [][]int{{0, 1, 1, 2, 2, 3}, {1, 2}, {2}} {
				reqs := servers[i].Received()
				if len(reqs) != len(after) {
					t.Errorf("%s got %d requests, want %d", wires[i], len(reqs), len(after))
					continue
				}
				for n, req := range reqs {
					if err := providertest.CheckHistory(req.Body, wires[i], looked(after[n])); err != nil {
						t.Errorf("request %d of %s: %v\n%s", n, wires[i], err, req.Body)
					}
				}
			}
		})
	}
}

// looked is a conversation in which the tool has been called so often.
func looked(times int) []providertest.Item {
	items := []providertest.Item{{Kind: providertest.User, Text: harness.PromptCanary}}
	for i := range times {
		id := fmt.Sprint("call", i)
		items = append(items,
			providertest.Item{Kind: providertest.Call, ID: id, Name: "look", Args: harness.Look.Calls[0].Args},
			providertest.Item{Kind: providertest.Result, ID: id, Text: "seen"})
	}
	return items
}

// TestProviderFallbackFails is F26: with all providers gone the error is that of the
// last one and names each.
func TestProviderFallbackFails(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	wires := []providertest.Wire{providertest.Anthropic, providertest.Gemini, providertest.OpenAIResponses}
	limited := providertest.NewServer(t, providertest.Invent(providertest.OpenAIResponses, harness.Hello), harness.Always(harness.Refused(providertest.OpenAIResponses, 429)))
	d := harness.StartDaemon(t,
		agentdtest.Config{
			Getenv:    harness.VendorsAt(gone.URL, harness.KeyCanary),
			Providers: []model.Provider{harness.ProviderAt(providertest.OpenAIResponses, limited.URL+"/v1", nil)},
		}, testdaemon.WithRetry(modelcall.Retry{Tries: 2, Base: 1}))
	got := harness.FaultyTurn(t, d, harness.Backed(wires), "")
	if len(got.Errors) != 1 || got.Errors[0].GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || len(got.Fallbacks) != 2 || len(got.Retries) != 3 || got.End.GetCompleted() {
		t.Fatalf("%v", got.Msgs)
	}
	at := -1
	for _, wire := range wires {
		next := strings.Index(got.Errors[0].GetMessage(), fmt.Sprintf("model %q: %s: ", harness.Invented(wire), harness.WireProviders[wire].Describe().Name))
		if next <= at {
			t.Errorf("message %q does not name %s in its place", got.Errors[0].GetMessage(), wire)
		}
		at = next
	}
	if msg := got.Errors[0].GetMessage(); strings.Count(msg, "after 2 tries") != 3 || strings.Contains(msg, harness.KeyCanary) {
		t.Errorf("message %q", msg)
	}
}
