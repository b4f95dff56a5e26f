package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/model"
)

// TestAllowed: a name of a model is allowed by what it names, however it is written.
func TestAllowed(t *testing.T) {
	reg := newRegistry(t, provider{"gemini", "k"}, provider{"anthropic", "k"}, provider{"openai", "k"}, provider{"openai-chat", "k"}, provider{"acme", "k"})
	for list, want := range map[string]struct {
		yes, no   []string
		providers string
	}{
		"*":               {[]string{"gemini-x", "openai/org/gpt-4o", "rocket"}, nil, "acme anthropic gemini openai openai-chat"},
		"":                {nil, []string{"gemini-x", "claude-x"}, ""},
		"gemini-*":        {[]string{"gemini-x", "gemini/gemini-x"}, []string{"claude-x", "gemini/other", "models/gemini-x", "openai/gemini-x"}, "gemini"},
		"gpt-4o":          {[]string{"gpt-4o", "openai/gpt-4o"}, []string{"gpt-4o-mini", "openai-chat/gpt-4o", "acme/gpt-4o"}, "openai"},
		"openai/*":        {[]string{"gpt-4o", "openai/a/b", "o3"}, []string{"openai-chat/gpt-4o", "claude-x"}, "openai"},
		"openai*":         {[]string{"openai-chat/x", "openai/gpt-4o", "gpt-4o"}, []string{"claude-x", "gemini-x"}, "gemini openai openai-chat"},
		"*-mini":          {[]string{"gpt-4o-mini", "openai-chat/x-mini"}, []string{"gpt-4o"}, "acme anthropic gemini openai openai-chat"},
		"rocket,claude-*": {[]string{"rocket", "acme/rocket", "claude-x"}, []string{"rocket-2", "gpt-rocket-1"}, "acme anthropic"},
		"g*":              {[]string{"gpt-4o", "gemini-x", "gpt-rocket-1"}, []string{"o3", "claude-x"}, "acme gemini openai"},
		"a.b":             {[]string{"a.b"}, []string{"aXb"}, "gemini"},
	} {
		allowed := []string{}
		if list != "" {
			allowed = strings.Split(list, ",")
		}
		on, err := reg.On(models.Terms{Allowed: allowed})
		if err != nil {
			t.Fatal(err)
		}
		for name, may := range map[string][]string{"yes": want.yes, "no": want.no} {
			for _, m := range may {
				_, err := on.Resolve(m, map[string]string{"openai": "own", "gemini": "own"})
				refused, ok := errors.AsType[*models.NotAllowedError](err)
				if ok == (name == "yes") || ok && !slices.Equal(refused.Allowed, allowed) && len(allowed) > 0 {
					t.Errorf("%q: %q: %v", list, m, err)
				}
			}
		}
		var providers []string
		for _, st := range on.Providers() {
			providers = append(providers, st.Provider)
			for _, m := range st.Models {
				if _, err := on.Resolve(m, nil); err != nil {
					t.Errorf("%q: %s is listed: %v", list, m, err)
				}
			}
		}
		if got := strings.Join(providers, " "); got != want.providers {
			t.Errorf("%q: the providers are %q, want %q", list, got, want.providers)
		}
	}
	if _, err := reg.Resolve("gpt-4o", nil); err != nil {
		t.Errorf("without terms: %v", err)
	}
	if long := (&models.NotAllowedError{Allowed: make([]string, 25)}).Error(); !strings.Contains(long, "and 5 more") {
		t.Error(long)
	}
}

// keyed opens models that know which key they were opened with.
type keyed struct {
	provider
	open func(provider, key string)
}

func (p keyed) Open(name, key string) (model.Model, error) {
	p.open(p.name, key)
	return p.provider.Open(name, key)
}

// TestTenantKeys: of a caller's key, the tenant's and the server's the first one counts, and the last only if it may.
func TestTenantKeys(t *testing.T) {
	var opened string
	of := func(name, key string) model.Provider {
		return keyed{provider{name, key}, func(provider, key string) { opened = provider + " " + key }}
	}
	reg := newRegistry(t, of("gemini", "k"), of("anthropic", "k"), of("openai", "k"), of("openai-chat", "k"))
	for name, tc := range map[string]struct {
		terms models.Terms
		keys  map[string]string
		model string
		want  string
	}{
		"server's":                {model: "gpt-4o", want: "openai "},
		"tenant's":                {models.Terms{Keys: map[string]string{"openai": "t"}}, nil, "gpt-4o", "openai t"},
		"tenant's, by vendor":     {models.Terms{Keys: map[string]string{"openai": "t"}}, nil, "openai-chat/x", "openai-chat t"},
		"of another provider":     {models.Terms{Keys: map[string]string{"openai": "t"}}, nil, "claude-x", "anthropic "},
		"caller's":                {models.Terms{Keys: map[string]string{"openai": "t"}}, map[string]string{"openai": "c"}, "gpt-4o", "openai c"},
		"own keys":                {models.Terms{OwnKeys: true}, nil, "gpt-4o", "AUTH"},
		"own keys, caller's":      {models.Terms{OwnKeys: true}, map[string]string{"openai": "c"}, "gpt-4o", "openai c"},
		"own address":             {models.Terms{Providers: []model.Provider{of("openai", "")}}, nil, "gpt-4o", "AUTH"},
		"own address, of another": {models.Terms{Providers: []model.Provider{of("openai", "")}}, nil, "gemini-x", "gemini "},
	} {
		on, err := reg.On(tc.terms)
		if err != nil {
			t.Fatal(err)
		}
		opened = ""
		_, err = on.Resolve(tc.model, tc.keys)
		if e, ok := errors.AsType[*model.Error](err); ok && e.Kind == model.KindAuth {
			opened += "AUTH"
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if opened != tc.want {
			t.Errorf("%s: opened %q, want %q", name, opened, tc.want)
		}
	}
	if _, err := reg.On(models.Terms{Prices: catalog.MustParse("p", "date: 2026-01-01\nproviders: {nobody: {m: {price: {input: 1, output: 1}}}}")}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("prices of a provider that there is not: %v", err)
	}
}
