package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// invented is the name that an agent has for a wire's model.
func invented(wire providertest.Wire) string {
	return wireProviders[wire].Describe().Name + "/invented"
}

// refused is a fault of a request: an error of the wire's provider.
func refused(wire providertest.Wire, status int) providertest.Fault {
	return providertest.Fault{
		Action: providertest.Refuse, Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Again: true,
		Bytes: providertest.ErrorBody(wire, status, "some_code", "no luck with "+keyCanary),
	}
}

// backed is an agent with a model and others behind it.
func backed(wires []providertest.Wire, tools ...string) *agentdv1.Agent {
	agent := llmAgent("root", invented(wires[0]), "", tools...)
	for _, wire := range wires[1:] {
		agent.GetLlm().FallbackModels = append(agent.GetLlm().FallbackModels, invented(wire))
	}
	return agent
}

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
			first := providertest.NewServer(t, providertest.Invent(wires[0], look, hello), map[int]providertest.Fault{
				1: refused(wires[0], 503), 2: refused(wires[0], 529), // of the second call, which is tried twice
				3: refused(wires[0], 429), 4: refused(wires[0], 500), // of the third call
			})
			second := providertest.NewServer(t, providertest.Invent(wires[1], look, look), map[int]providertest.Fault{1: refused(wires[1], 401)})
			third := providertest.NewServer(t, providertest.Invent(wires[2], look), nil)
			servers := []*providertest.Server{first, second, third}
			opts := []agentdtest.Option{testdaemon.WithRetry(models.Retry{Tries: 2, Base: 1})}
			for i, wire := range wires {
				opts = append(opts, agentdtest.WithProvider(providerAt(wire, strings.TrimSuffix(servers[i].BaseURL(wire), "/"), nil)))
			}
			d := startDaemon(t, opts...)
			got := faultyTurn(t, d, backed(wires, "look"), "")
			if !got.end.GetCompleted() || got.text["root"] != "Hello." || len(got.calls) != 3 || len(got.retries) != 2 {
				t.Fatalf("%v", got.msgs)
			}

			var changes, models []string
			for _, f := range got.fallbacks {
				changes = append(changes, fmt.Sprint(f.GetModel(), " ", f.GetNextModel(), " ", f.GetCode()))
				if strings.Contains(f.String(), keyCanary) {
					t.Errorf("a message tells the key: %v", f)
				}
			}
			for _, c := range got.modelCalls {
				models = append(models, c.GetModel()+" "+c.GetProvider())
			}
			a, b, c := invented(wires[0]), invented(wires[1]), invented(wires[2])
			if want := []string{a + " " + b + " ERROR_CODE_MODEL_UNAVAILABLE", a + " " + b + " ERROR_CODE_MODEL_UNAVAILABLE", b + " " + c + " ERROR_CODE_AUTH_FAILED"}; !slices.Equal(changes, want) {
				t.Errorf("changes %q, want %q", changes, want)
			}
			name := func(i int) string { return invented(wires[i]) + " " + wireProviders[wires[i]].Describe().Name }
			if want := []string{name(0), name(1), name(2), name(0)}; !slices.Equal(models, want) {
				t.Errorf("calls of %q, want %q", models, want)
			}
			if u := got.end.GetUsageSummary(); u.GetLlmCalls() != 4 || int64(u.GetTotalUsage().GetTotalTokens()) != 3*look.Usage.Total+hello.Usage.Total {
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
	items := []providertest.Item{{Kind: providertest.User, Text: promptCanary}}
	for i := range times {
		id := fmt.Sprint("call", i)
		items = append(items,
			providertest.Item{Kind: providertest.Call, ID: id, Name: "look", Args: look.Calls[0].Args},
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
	limited := providertest.NewServer(t, providertest.Invent(providertest.OpenAIResponses, hello), always(refused(providertest.OpenAIResponses, 429)))
	d := startDaemon(t,
		testdaemon.WithRetry(models.Retry{Tries: 2, Base: 1}),
		agentdtest.WithAnthropic(keyCanary, gone.URL),
		agentdtest.WithGemini(keyCanary, gone.URL),
		agentdtest.WithProvider(providerAt(providertest.OpenAIResponses, limited.URL+"/v1", nil)))
	got := faultyTurn(t, d, backed(wires), "")
	if len(got.errors) != 1 || got.errors[0].GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || len(got.fallbacks) != 2 || len(got.retries) != 3 || got.end.GetCompleted() {
		t.Fatalf("%v", got.msgs)
	}
	at := -1
	for _, wire := range wires {
		next := strings.Index(got.errors[0].GetMessage(), fmt.Sprintf("model %q: %s: ", invented(wire), wireProviders[wire].Describe().Name))
		if next <= at {
			t.Errorf("message %q does not name %s in its place", got.errors[0].GetMessage(), wire)
		}
		at = next
	}
	if msg := got.errors[0].GetMessage(); strings.Count(msg, "after 2 tries") != 3 || strings.Contains(msg, keyCanary) {
		t.Errorf("message %q", msg)
	}
}
