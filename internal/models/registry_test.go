package models_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/echo"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/model"
)

// provider is a provider whose models are fakes.
type provider struct{ name, key string }

// Describe says what the real ones of these names do.
func (p provider) Describe() model.Description {
	d := map[string]model.Description{
		"gemini":      {Rest: true, Plain: true, Prefixes: []string{"models/"}},
		"anthropic":   {Prefixes: []string{"claude-"}},
		"openai":      {Prefixes: []string{"gpt-", "o1", "o3", "o4", "chatgpt-"}},
		"openai-chat": {KeysOf: "openai"},
		"acme":        {Names: []string{"rocket"}, Prefixes: []string{"rocket-", "gpt-rocket-"}},
		"twin":        {Names: []string{"rocket"}},
		"shadow":      {Prefixes: []string{"rocket-"}},
		"greedy":      {Prefixes: []string{""}},
		"other":       {Rest: true},
	}[p.name]
	d.Name, d.Builtins, d.KeyVariables = p.name, []string{p.name + "_search"}, []string{"SOME_API_KEY"}
	return d
}

// plain is a provider that claims nothing.
type plain struct{ provider }

func (p plain) Describe() model.Description { return model.Description{Name: p.name} }

func (p provider) Open(name, key string) (model.Model, error) {
	if name == "broken" {
		return model.Model{}, errors.New("boom")
	}
	if key == "" && p.key == "" {
		return model.Model{}, p.Describe().MissingKey()
	}
	return model.Model{LLM: llm{}}, nil
}

// llm is a model that nobody calls.
type llm struct{}

func (llm) Generate(context.Context, *model.Request, func(model.Delta)) (*model.Response, error) {
	return nil, errors.New("nobody calls it")
}

func newRegistry(t *testing.T, providers ...model.Provider) *models.Registry {
	t.Helper()
	r, err := models.NewRegistry(providers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fullRegistry(t *testing.T) *models.Registry {
	t.Helper()
	s, err := scripted.New(scripted.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return newRegistry(t, provider{"gemini", "k"}, provider{"anthropic", "k"}, provider{"openai", ""}, provider{"acme", "k"}, s, echo.New(echo.Config{}))
}

func TestRoute(t *testing.T) {
	r := fullRegistry(t)
	for name, want := range map[string]string{
		"claude-sonnet-4-5":             "anthropic claude-sonnet-4-5",
		"claude":                        "gemini claude",
		"gpt-5-mini":                    "openai gpt-5-mini",
		"o1":                            "openai o1",
		"o3-mini":                       "openai o3-mini",
		"o4-mini":                       "openai o4-mini",
		"chatgpt-4o-latest":             "openai chatgpt-4o-latest",
		"gemini-2.5-flash":              "gemini gemini-2.5-flash",
		"models/gemini-2.5-flash":       "gemini models/gemini-2.5-flash",
		"anything-else":                 "gemini anything-else",
		"echo":                          "echo echo",
		"echo-2":                        "gemini echo-2",
		"rocket":                        "acme rocket",
		"rocket-2":                      "acme rocket-2",
		"rockets":                       "gemini rockets",
		"gpt-rocket-2":                  "acme gpt-rocket-2",
		"acme/gpt-5":                    "acme gpt-5",
		"scripted/demo":                 "scripted demo",
		"anthropic/my-model":            "anthropic my-model",
		"openai/meta-llama/llama-3:8b":  "openai meta-llama/llama-3:8b",
		"openai/gemini-2.5-flash":       "openai gemini-2.5-flash",
		"gemini/claude-sonnet-4-5":      "gemini claude-sonnet-4-5",
		"claude-sonnet-4-5@20250929":    "anthropic claude-sonnet-4-5@20250929",
		"gpt-oss/gpt-oss-120b":          "openai gpt-oss/gpt-oss-120b",
		"openai/ft:gpt-4o:org::id-1+x_": "openai ft:gpt-4o:org::id-1+x_",
	} {
		p, m, err := r.Route(name)
		if got := p + " " + m; err != nil || got != want {
			t.Errorf("Route(%q) = %s, %v; want %s", name, got, err, want)
		}
	}
	for _, bad := range []string{"", "openai/", "a b", "../x", "gemini/../x", "a/./b", "x?y", "x#y", "x%2e", "ключ", "a\nb", strings.Repeat("x", 257)} {
		_, _, err := r.Route(bad)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUnavailable {
			t.Errorf("Route(%q): %v, want KindUnavailable", bad, err)
		}
	}
}

// The rest of a provider that has no such names is not taken for a provider that there is not; another one's is.
func TestRouteOfTheRest(t *testing.T) {
	plainly := newRegistry(t, provider{"gemini", "k"})
	for name, want := range map[string]string{
		"meta-llama/llama-3": `unknown provider "meta-llama" (registered: [gemini])`,
		"modelss/x":          `unknown provider "modelss" (registered: [gemini])`,
	} {
		_, _, err := plainly.Route(name)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != model.KindUnavailable || e.Message != want {
			t.Errorf("Route(%q): %v, want %s", name, err, want)
		}
	}
	if p, m, err := newRegistry(t, provider{"other", "k"}).Route("meta-llama/llama-3"); err != nil || p != "other" || m != "meta-llama/llama-3" {
		t.Errorf("the rest of another one: %s %s, %v", p, m, err)
	}
}

func TestRouteToAnAbsentProvider(t *testing.T) {
	r := newRegistry(t, provider{"anthropic", "k"})
	for name, want := range map[string]string{
		"gpt-5":         `model "gpt-5" is served by no provider that this server has; it has: anthropic`,
		"echo":          `model "echo" is served by no provider that this server has; it has: anthropic`,
		"anthropic-x":   `model "anthropic-x" is served by no provider that this server has; it has: anthropic`,
		"scripted/demo": `unknown provider "scripted" (registered: [anthropic])`,
		"nope/m/n":      `unknown provider "nope" (registered: [anthropic])`,
	} {
		_, _, err := r.Route(name)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != model.KindUnavailable || e.Message != want {
			t.Errorf("Route(%q): %v, want %s", name, err, want)
		}
	}
}

// A provider that takes the place of another one serves what that one did, unless
// it says otherwise.
func TestInstead(t *testing.T) {
	ours := []model.Provider{provider{"gemini", "k"}, provider{"openai", ""}, provider{"openai-chat", ""}}
	theirs := models.Instead(ours, []model.Provider{plain{provider{"openai", "theirs"}}, plain{provider{"openai-chat", "theirs"}}, plain{provider{"zoo", "k"}}})
	r := newRegistry(t, models.Instead(theirs, []model.Provider{plain{provider{"openai", "last"}}, provider{"gemini", "k"}})...)
	for name, want := range map[string]string{"gpt-5": "openai gpt-5", "zoo/x": "zoo x", "zoo-x": "gemini zoo-x"} {
		p, m, err := r.Route(name)
		if got := p + " " + m; err != nil || got != want {
			t.Errorf("Route(%q) = %s, %v; want %s", name, got, err, want)
		}
	}
	if ref, err := r.Resolve("openai-chat/x", map[string]string{"openai": "own"}); err != nil || !ref.OwnKey {
		t.Errorf("with the caller's key for openai: %+v, %v", ref, err)
	}
	if got := len(r.Providers()); got != 4 {
		t.Errorf("%d providers, want 4", got)
	}
}

func TestResolve(t *testing.T) {
	r := fullRegistry(t)
	ref, err := r.Resolve("gpt-5", map[string]string{"openai": "own", "gemini": ""})
	if err != nil || ref.Provider != "openai" || ref.Model != "gpt-5" || ref.LLM == nil || !ref.OwnKey || !reflect.DeepEqual(ref.Builtins, []string{"openai_search"}) {
		t.Errorf("with the caller's key: %+v, %v", ref, err)
	}
	alias := newRegistry(t, provider{"openai-chat", ""})
	if ref, err := alias.Resolve("openai-chat/gpt-5", map[string]string{"openai": "own"}); err != nil || !ref.OwnKey {
		t.Errorf("openai-chat with the caller's key for openai: %+v, %v", ref, err)
	}
	if ref, err = r.Resolve("gemini-x", map[string]string{"gemini": ""}); err != nil || ref.OwnKey {
		t.Errorf("with an empty caller's key: %+v, %v", ref, err)
	}
	for name, want := range map[string]struct {
		kind model.Kind
		text string
	}{
		"gpt-5":         {model.KindAuth, "SOME_API_KEY"},
		"broken":        {model.KindUnavailable, `cannot open model "broken"`},
		"scripted/none": {model.KindUnavailable, `no script "none"`},
		"echo/louder":   {model.KindUnavailable, `no model "louder"`},
	} {
		_, err := r.Resolve(name, nil)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != want.kind || !strings.Contains(e.Message, want.text) {
			t.Errorf("Resolve(%q): %v, want %+v", name, err, want)
		}
	}
}

func TestProviders(t *testing.T) {
	type line struct {
		name         string
		needs, holds bool
		header       string
	}
	var got []line
	models := map[string][]string{}
	for _, s := range fullRegistry(t).Providers() {
		got = append(got, line{s.Provider, s.NeedsKey, s.HasKey, s.KeyHeader})
		models[s.Provider] = s.Models
	}
	want := []line{
		{"acme", true, true, "X-Agentd-Acme-Api-Key"}, {"anthropic", true, true, "X-Agentd-Anthropic-Api-Key"}, {"echo", false, false, ""},
		{"gemini", true, true, "X-Agentd-Gemini-Api-Key"}, {"openai", true, false, "X-Agentd-Openai-Api-Key"}, {"scripted", false, false, ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !reflect.DeepEqual(models["scripted"], []string{"scripted/demo"}) {
		t.Errorf("models of scripted: %v", models["scripted"])
	}
	for p, names := range models {
		for _, n := range names {
			if to, _, err := fullRegistry(t).Route(n); err != nil || to != p {
				t.Errorf("model %q of %s is routed to %s, %v", n, p, to, err)
			}
		}
	}
}

func TestNewRegistryRefuses(t *testing.T) {
	for _, tc := range []struct {
		providers []model.Provider
		want      string
	}{
		{[]model.Provider{provider{"", "k"}}, "must be non-empty"},
		{[]model.Provider{provider{"a/b", "k"}}, "without a slash"},
		{[]model.Provider{provider{"a", "k"}, provider{"a", "k"}}, `"a" is registered twice`},
		{[]model.Provider{provider{"acme", "k"}, provider{"twin", "k"}}, `providers "acme" and "twin" both claim the model "rocket"`},
		{[]model.Provider{provider{"acme", "k"}, provider{"shadow", "k"}}, `providers "acme" and "shadow" both claim models that begin with "rocket-"`},
		{[]model.Provider{provider{"gemini", "k"}, provider{"other", "k"}}, `providers "gemini" and "other" both claim the models that nobody else does`},
		{[]model.Provider{provider{"greedy", "k"}}, `"greedy" claims an empty prefix`},
	} {
		if _, err := models.NewRegistry(tc.providers...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("NewRegistry(%v): %v, want %s", tc.providers, err, tc.want)
		}
	}
}
