package harness

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

const (
	// KeyCanary is the key of faulty providers, which they repeat in their errors.
	KeyCanary = "canary-key-0123456789"
	// PromptCanary is what their users say, which they repeat too.
	PromptCanary = "canary prompt"
)

// Faulty is a daemon with one provider that fails as a test says.
type Faulty struct {
	T    *testing.T
	Wire providertest.Wire
	D    *agentdtest.Daemon
	// Provider answers the model calls, by the script that it is given; its calls count
	// from there.
	*fakeprovider.Provider

	log bytes.Buffer
}

// VendorsAt is an environment in which the APIs of all vendors are at one address and take one key,
// "" for none.
func VendorsAt(url, key string) (getenv func(name string) string) {
	url = strings.TrimSuffix(url, "/")
	env := map[string]string{
		"GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url + "/",
		"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url + "/",
		"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url + "/v1/",
	}
	return func(name string) string { return env[name] }
}

// NewFaulty starts a daemon that logs everything, with the given options.
func NewFaulty(t *testing.T, wire providertest.Wire, opts ...testdaemon.Option) *Faulty {
	t.Helper()
	return NewFaultyWith(t, wire, agentdtest.Config{}, opts...)
}

// NewFaultyWith is NewFaulty with a Config, of which it sets the environment and the logger.
func NewFaultyWith(t *testing.T, wire providertest.Wire, cfg agentdtest.Config, opts ...testdaemon.Option) *Faulty {
	t.Helper()
	p, url := fakeprovider.Start(t, nil)
	f := &Faulty{T: t, Wire: wire, Provider: p}
	t.Cleanup(func() { // the daemon has ended then, and the log is whole
		for _, canary := range []string{KeyCanary, PromptCanary} {
			if strings.Contains(f.log.String(), canary) {
				t.Errorf("the log holds %q:\n%s", canary, f.log.String())
			}
		}
	})
	cfg.Getenv = VendorsAt(url, KeyCanary)
	cfg.Logger = slog.New(slog.NewJSONHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f.D = StartDaemon(t, cfg, opts...)
	return f
}

// Serve answers the following model calls, with faults by their numbers. Those
// that are not named get an answer.
func (f *Faulty) Serve(faults map[int]providertest.Fault, answers ...providertest.Answer) {
	f.Use(fakeprovider.Through(providertest.NewServer(f.T, providertest.Invent(f.Wire, answers...), faults)))
}

// Agent is an agent of the provider.
func (f *Faulty) Agent(tools ...string) *agentdv1.Agent {
	return LLMAgent("root", WireProviders[f.Wire].Describe().Name+"/invented", "", tools...)
}

// Turn runs a turn in a new session, or in the given one. Its tools answer
// "seen".
func (f *Faulty) Turn(session string, tools ...string) *Dialogue {
	f.T.Helper()
	return FaultyTurn(f.T, f.D, f.Agent(tools...), session)
}

// FaultyTurn runs a turn of d as Faulty.Turn does.
func FaultyTurn(t *testing.T, d *agentdtest.Daemon, agent *agentdv1.Agent, session string) *Dialogue {
	t.Helper()
	m := StartTurn(agent, agent.GetLlm().GetToolNames()...)
	m.GetExecute().UserPrompt = PromptCanary
	if session != "" {
		m.GetExecute().SessionId = &session
	}
	return RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(m, AnswerAll("seen"))
}

// Failed checks that a turn failed with a code after so many tries of its first
// model call, each told but the last, and that neither says the key.
func (f *Faulty) Failed(got *Dialogue, code agentdv1.ErrorCode, tries int, text ...string) {
	f.T.Helper()
	if n := len(f.Calls()); n != tries {
		f.T.Errorf("%d model calls were made, want %d", n, tries)
	}
	CheckFailed(f.T, got, code, tries, text...)
}

// CheckFailed checks the stream of a turn as Faulty.Failed does.
func CheckFailed(t *testing.T, got *Dialogue, code agentdv1.ErrorCode, tries int, text ...string) {
	t.Helper()
	if len(got.Errors) != 1 || got.Errors[0].GetCode() != code || got.End.GetCompleted() {
		t.Fatalf("errors %v, end %v; want one error %v", got.Errors, got.End, code)
	}
	if len(got.Retries) != tries-1 {
		t.Errorf("%d retries were told, want %d: %v", len(got.Retries), tries-1, got.Retries)
	}
	if len(got.Calls) != 0 {
		t.Errorf("tools were called: %v", got.Calls)
	}
	for _, want := range text {
		if !strings.Contains(got.Errors[0].GetMessage(), want) {
			t.Errorf("message %q lacks %q", got.Errors[0].GetMessage(), want)
		}
	}
	for _, r := range got.Retries {
		if r.GetCode() != code {
			t.Errorf("retry %v, want code %v", r, code)
		}
	}
	for _, m := range got.Msgs {
		if strings.Contains(m.String(), KeyCanary) {
			t.Errorf("a message tells the key: %v", m)
		}
	}
}

// Refusal answers with an error that repeats what must not get about.
func (f *Faulty) Refusal(status int, header http.Header) providertest.Fault {
	h := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(h, header)
	return providertest.Fault{
		Action: providertest.Refuse, Status: status, Header: h, Again: true,
		Bytes: providertest.ErrorBody(f.Wire, status, "some_code", "no luck with "+KeyCanary+" saying "+PromptCanary),
	}
}

// Always is a fault of all requests.
func Always(fault providertest.Fault) map[int]providertest.Fault {
	faults := map[int]providertest.Fault{}
	for i := range 10 {
		faults[i] = fault
	}
	return faults
}

// OnEachWire runs a test for each provider.
func OnEachWire(t *testing.T, test func(t *testing.T, wire providertest.Wire)) {
	t.Helper()
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) { test(t, wire) })
	}
}

// Hello is an answer.
var Hello = providertest.Answer{Text: "Hello.", Usage: providertest.Usage{Prompt: 3, Completion: 2, Total: 5}}

// ProviderAt is the provider of a wire with another address and transport.
func ProviderAt(wire providertest.Wire, url string, tr http.RoundTripper) model.Provider {
	switch wire {
	case providertest.Anthropic:
		return anthropic.New(anthropic.Config{APIKey: KeyCanary, BaseURL: url, Transport: tr})
	case providertest.Gemini:
		return gemini.New(gemini.Config{APIKey: KeyCanary, BaseURL: url, Transport: tr})
	case providertest.OpenAIChat:
		return openai.New(openai.Config{
			Name: "openai-chat", API: openai.Chat, APIKey: KeyCanary, BaseURL: url, Transport: tr,
		})
	default:
		return openai.New(openai.Config{
			Name: "openai-responses", API: openai.Responses, APIKey: KeyCanary, BaseURL: url, Transport: tr,
		})
	}
}

// PlayStreams answers call after call with a stream each; "" refuses one.
func (f *Faulty) PlayStreams(streams ...string) {
	f.Use(func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		switch {
		case c.Number > len(streams):
			f.T.Errorf("call %d is one too many", c.Number)
			return fakeprovider.Reply{Drop: true}
		case streams[c.Number-1] == "":
			return fakeprovider.Reply{
				Status:  http.StatusServiceUnavailable,
				Message: "no luck with " + KeyCanary + ", or sk-abcdefghijklmnop",
			}
		}
		return fakeprovider.Reply{Events: streams[c.Number-1 : c.Number]}
	})
}

// Bodies are those of the calls since Use.
func (f *Faulty) Bodies() []string {
	var out []string
	for _, c := range f.Calls() {
		out = append(out, string(c.Body))
	}
	return out
}

// RawTurn runs a turn that asks for raw payloads.
func (f *Faulty) RawTurn(tools ...string) *Dialogue {
	m := StartTurn(f.Agent(tools...), tools...)
	m.GetExecute().UserPrompt, m.GetExecute().RawPayloads = PromptCanary, true
	return RawClient{f.T, agentdv1connect.NewAgentdClient(f.D.HTTPClient(), f.D.URL)}.Talk(m, AnswerAll("seen"))
}

// WireProviders are the providers that speak the wires, for their names and for
// what they run themselves.
var WireProviders = map[providertest.Wire]model.Provider{
	providertest.OpenAIChat:      openai.New(openai.Config{Name: "openai-chat", API: openai.Chat}),
	providertest.OpenAIResponses: openai.New(openai.Config{Name: "openai-responses", API: openai.Responses}),
	providertest.Anthropic:       anthropic.New(anthropic.Config{}),
	providertest.Gemini:          gemini.New(gemini.Config{}),
}
