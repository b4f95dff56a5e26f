package daemon_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/model"
)

// stranger is a provider of other people.
type stranger model.Description

func (s stranger) Describe() model.Description { return model.Description(s) }
func (s stranger) Open(_, key string) (model.Model, error) {
	if key == "" {
		return model.Model{}, s.Describe().MissingKey()
	}
	return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: s.Name, Message: "opened"}
}

// The providers of every daemon find their keys in the environment, each under its
// own name, and say in which header callers bring theirs.
func TestProvidersReadTheEnvironment(t *testing.T) {
	headers := map[string]string{
		"anthropic": "X-Agentd-Anthropic-Api-Key", "gemini": "X-Agentd-Gemini-Api-Key", "openai": "X-Agentd-Openai-Api-Key",
		"openai-chat": "X-Agentd-Openai-Api-Key", "openai-responses": "X-Agentd-Openai-Api-Key", "acme": "X-Agentd-Acme-Api-Key",
		"echo": "", "scripted": "",
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		keys []string
	}{
		"nothing":   {nil, nil},
		"gemini":    {map[string]string{"GEMINI_API_KEY": " canary\n"}, []string{"gemini"}},
		"vertex":    {map[string]string{"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p"}, []string{"gemini"}},
		"no vertex": {map[string]string{"GOOGLE_GENAI_USE_VERTEXAI": "perhaps", "GOOGLE_CLOUD_PROJECT": "p"}, nil},
		"anthropic": {map[string]string{"ANTHROPIC_API_KEY": "canary"}, []string{"anthropic"}},
		"openai":    {map[string]string{"OPENAI_API_KEY": "canary"}, []string{"openai", "openai-chat", "openai-responses"}},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string { return tc.env[name] }
			d := start(t, daemon.Config{Getenv: getenv, ExtraProviders: []model.Provider{stranger{Name: "acme"}}})
			c := wires(t, d)["Connect, JSON, HTTP/1.1"]
			var keys []string
			said := map[string]string{}
			for _, p := range call(t, c.GetCapabilities, &agentdv1.GetCapabilitiesRequest{}).GetProviders() {
				said[p.GetName()] = p.GetKeyHeader()
				if p.GetHasKey() && headers[p.GetName()] != "" {
					keys = append(keys, p.GetName())
				}
			}
			if !slices.Equal(keys, tc.keys) || !maps.Equal(said, headers) {
				t.Errorf("keys of %v, want %v; headers %v", keys, tc.keys, said)
			}
			secret := slices.Contains(slices.Collect(maps.Values(tc.env)), "canary") || name == "gemini"
			if got := daemon.Secrets(daemon.Config{Getenv: getenv}); slices.Contains(got, "canary") != secret {
				t.Errorf("secrets %q", got)
			}
		})
	}
}

// A provider of other people claims model names, but not those that others have.
func TestStrangersClaimModels(t *testing.T) {
	acme := stranger{KeyVariables: []string{"ACME_API_KEY"}, Name: "acme", Prefixes: []string{"rocket-", "gpt-rocket-"}}
	d := agentdtest.Start(t, agentdtest.Config{Providers: []model.Provider{acme}})
	for name, want := range map[string]string{"rocket-1": "ACME_API_KEY", "gpt-rocket-1": "ACME_API_KEY", "acme/x": "ACME_API_KEY", "gpt-5": "OPENAI_API_KEY", "rocket": "GEMINI_API_KEY"} {
		_, err := d.Client().Do(t.Context(), llm("root", name), "hi")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for want, about := range map[string]stranger{
		`"anthropic" and "acme" both claim models that begin with "claude-"`: {Name: "acme", Prefixes: []string{"claude-"}},
		`"gemini" and "acme" both claim the models that nobody else does`:    {Name: "acme", Rest: true},
	} {
		_, err := daemon.New(daemon.Config{ExtraProviders: []model.Provider{about}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", about, err, want)
		}
	}
}

// Web pages may send the key headers of all providers that there are, and no
// others.
func TestCORSKeyHeaders(t *testing.T) {
	const origin = "https://app.example.com"
	d := start(t, daemon.Config{CORSOrigins: []string{origin}, ExtraProviders: []model.Provider{stranger{Name: "acme"}}})
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	for header, allowed := range map[string]bool{
		"x-agentd-acme-api-key": true, "x-agentd-gemini-api-key": true, "x-agentd-openai-api-key": true, "x-agentd-anthropic-api-key": true,
		"x-agentd-nobody-api-key": false, "x-agentd-echo-api-key": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, d.URL()+agentdv1connect.SessionServiceCreateTurnProcedure, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {header}}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin") == origin; got != allowed {
			t.Errorf("%s: allowed %v, want %v", header, got, allowed)
		}
	}
}
