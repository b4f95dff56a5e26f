package model_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/echo"
	"github.com/apzuk3/agentd/model/scripted"
)

// provider is a provider whose models are fakes.
type provider struct{ name, key string }

func (p provider) Name() string       { return p.name }
func (p provider) Builtins() []string { return []string{p.name + "_search"} }
func (p provider) Open(name, key string) (model.LLM, error) {
	if name == "broken" {
		return nil, errors.New("boom")
	}
	if key == "" && p.key == "" {
		return nil, model.MissingKey(p.name, "SOME_API_KEY", "X-Agentd-Some-Api-Key")
	}
	return fake(nil), nil
}

func newRegistry(t *testing.T, providers ...model.Provider) *model.Registry {
	t.Helper()
	r, err := model.NewRegistry(providers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fullRegistry(t *testing.T) *model.Registry {
	t.Helper()
	s, err := scripted.New(scripted.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return newRegistry(t, provider{"gemini", "k"}, provider{"anthropic", "k"}, provider{"openai", ""}, s, echo.New(echo.Config{}))
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
		"scripted/demo":                 "scripted demo",
		"anthropic/my-model":            "anthropic my-model",
		"openai/meta-llama/llama-3:8b":  "openai meta-llama/llama-3:8b",
		"openai/gemini-2.5-flash":       "openai gemini-2.5-flash",
		"meta-llama/llama-3":            "gemini meta-llama/llama-3",
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

func TestRouteToAnAbsentProvider(t *testing.T) {
	r := newRegistry(t, provider{"gemini", "k"})
	for name, missing := range map[string]string{"claude-x": "anthropic", "gpt-5": "openai", "echo": "echo", "scripted/demo": "scripted"} {
		_, _, err := r.Route(name)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != model.KindUnavailable || !strings.Contains(e.Message, fmt.Sprintf("%q", missing)) || !strings.Contains(e.Message, "it has: gemini") {
			t.Errorf("Route(%q): %v, want KindUnavailable about %s", name, err, missing)
		}
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
	}
	var got []line
	models := map[string][]string{}
	for _, s := range fullRegistry(t).Providers() {
		got = append(got, line{s.Provider, s.NeedsKey, s.HasKey})
		models[s.Provider] = s.Models
	}
	want := []line{{"anthropic", true, true}, {"echo", false, false}, {"gemini", true, true}, {"openai", true, false}, {"scripted", false, false}}
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
	for _, ps := range [][]model.Provider{
		{provider{"", "k"}},
		{provider{"a/b", "k"}},
		{provider{"a", "k"}, provider{"a", "k"}},
	} {
		if _, err := model.NewRegistry(ps...); err == nil {
			t.Errorf("NewRegistry(%v) succeeded", ps)
		}
	}
}
