package models_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/models/echo"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// seller is a provider of a stranger's that says how it is to be paid.
type seller struct {
	model.Provider
	own model.Description // of which the catalog and ModelsOf count
}

func (s seller) Describe() model.Description {
	d := s.Provider.Describe()
	d.Catalog, d.ModelsOf = s.own.Catalog, s.own.ModelsOf
	return d
}

// sold is a registry of the built-in providers and of strangers.
func sold(t *testing.T, more ...model.Provider) *models.Registry {
	t.Helper()
	script, err := scripted.New(scripted.Config{})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := models.NewRegistry(append([]model.Provider{
		gemini.New(gemini.Config{}), anthropic.New(anthropic.Config{}), openai.New(openai.Config{}),
		openai.New(openai.Config{Name: "openai-chat", API: openai.Chat}), openai.New(openai.Config{Name: "deepseek", API: openai.Chat}),
		script, echo.New(echo.Config{}),
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

const acmeCatalog = `
date: 2026-01-01
providers:
  acme:
    big:
      price: {input: 1, cached: 0.5, output: 4, thinking: 10, cache_write: 2, cache_write_hour: 3}
      capabilities: {context_tokens: 1000}
    gpt-5: {price: {input: 2, output: 2}}
`

// Each provider's counts are billed as it means them.
func TestCost(t *testing.T) {
	const m = 1_000_000
	acme := seller{provider{name: "acme"}, model.Description{Catalog: acmeCatalog}}
	reseller := seller{provider{name: "reseller"}, model.Description{ModelsOf: "acme"}}
	reg := sold(t, acme, reseller, provider{name: "silent"})
	for _, c := range []struct {
		name, provider, model string
		usage                 model.Usage
		want                  float64
		known                 bool
	}{
		{"Gemini", "gemini", "gemini-2.5-flash", model.Usage{Prompt: 2 * m, Cached: m, Completion: 2 * m, Thoughts: m}, 0.30 + 0.03 + 5, true},
		{"OpenAI", "openai", "gpt-5", model.Usage{Prompt: 2 * m, Cached: m, Completion: m, Thoughts: m / 2}, 1.25 + 0.125 + 10, true},
		{"Anthropic", "anthropic", "claude-sonnet-4-5", model.Usage{Prompt: 2 * m, Cached: m, Completion: m, Thoughts: m / 2}, 3 + 0.30 + 15, true},
		{"Anthropic: writing the cache", "anthropic", "claude-sonnet-4-5", model.Usage{Prompt: 3 * m, Cached: m, CacheWrite: m}, 3 + 3.75 + 0.30, true},
		{"Anthropic: some of it for an hour", "anthropic", "claude-sonnet-4-5", seam.WithCacheWriteHour(model.Usage{Prompt: 3 * m, CacheWrite: 2 * m}, m), 3 + 3.75 + 6, true},
		{"more for an hour than at all", "anthropic", "claude-sonnet-4-5", seam.WithCacheWriteHour(model.Usage{Prompt: m, CacheWrite: m}, 2*m), 6, true},
		{"more written than asked", "anthropic", "claude-sonnet-4-5", model.Usage{Prompt: 1, CacheWrite: m}, 3.75 + 3.0/m, true},
		{"long prompt", "gemini", "gemini-2.5-pro", model.Usage{Prompt: 200_001, Completion: m}, 200_001*2.50/m + 15, true},
		{"just not long", "gemini", "gemini-2.5-pro", model.Usage{Prompt: 200_000, Completion: m}, 0.25 + 10, true},
		{"OpenAI: writing the cache", "openai", "gpt-6-sol", model.Usage{Prompt: 200_000, Cached: 50_000, CacheWrite: 100_000}, 0.05*2 + 0.05*0.20 + 0.1*2.50, true},
		{"OpenAI: writing it was free", "openai", "gpt-5.4", model.Usage{Prompt: 200_000, CacheWrite: 100_000}, 0.2 * 2.50, true},
		{"OpenAI: long with what is written", "openai", "gpt-6-sol", model.Usage{Prompt: 272_001, CacheWrite: 272_001, Completion: m}, 272_001*5.0/m + 15, true},
		{"Anthropic: cached tokens make a prompt long", "anthropic", "claude-haiku-5-5", seam.WithCacheWriteHour(model.Usage{Prompt: 100_001, Cached: 60_000, CacheWrite: 40_000, Completion: m}, 10_000), (1*0.50+60_000*0.05+30_000*0.625+10_000*1)/m + 2.50, true},
		{"Anthropic: just not long", "anthropic", "claude-haiku-5-5", model.Usage{Prompt: 100_000, Cached: 60_000, CacheWrite: 40_000}, (60_000*0.01 + 40_000*0.125) / m, true},
		{"Gemini: cached tokens are part of a long prompt", "gemini", "gemini-2.5-pro", model.Usage{Prompt: 200_001, Cached: 200_000, Completion: m, Thoughts: m}, (1*2.50+200_000*0.25)/m + 15, true},
		{"long with the cache", "openai", "gpt-5.4", model.Usage{Prompt: 300_000, Cached: 100_000}, 200_000*5.0/m + 100_000*0.50/m, true},
		{"more cached than prompt is counted apart", "openai", "gpt-5", model.Usage{Prompt: 1, Cached: m}, 0.125 + 1.25/m, true},
		{"more thoughts than completion are counted apart", "openai", "gpt-5", model.Usage{Completion: 1, Thoughts: m}, 10 + 10.0/m, true},
		{"another interface of OpenAI's", "openai-chat", "gpt-5", model.Usage{Prompt: 2 * m, Cached: m}, 1.25 + 0.125, true},
		{"OpenAI's interface of another vendor", "deepseek", "gpt-5", model.Usage{Prompt: 2 * m, Cached: m}, 0, false},
		{"nothing", "openai", "gpt-5", model.Usage{}, 0, true},
		{"echo", "echo", "echo", model.Usage{Prompt: m}, 0, true},
		{"scripted", "scripted", "demo", model.Usage{Prompt: m}, 0, true},
		{"a stranger's", "acme", "big", seam.WithCacheWriteHour(model.Usage{Prompt: 4 * m, Cached: m, CacheWrite: 2 * m, Completion: 2 * m, Thoughts: m}, m), 1 + 0.5 + 2 + 3 + 4 + 10, true},
		{"a stranger's, who sells another's", "reseller", "big", seam.WithCacheWriteHour(model.Usage{Prompt: 4 * m, Cached: m, CacheWrite: 2 * m, Completion: 2 * m, Thoughts: m}, m), 1 + 0.5 + 2 + 3 + 4 + 10, true},
		{"a stranger's of a name that another one has", "acme", "gpt-5", model.Usage{Prompt: m}, 2, true},
		{"a stranger's who says nothing", "silent", "big", model.Usage{Prompt: m}, 0, false},
		{"unknown model", "openai", "gpt-99", model.Usage{Prompt: m}, 0, false},
		{"unknown provider", "nobody", "gpt-5", model.Usage{Prompt: m}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, known := reg.Knows(c.provider, c.model).Cost(c.usage)
			if want := int64(math.Round(c.want * 1e9)); known != c.known || got != want {
				t.Errorf("Cost = %v, %v; want %v, %v", got, known, c.want, c.known)
			}
		})
	}
}

// What makers say of their caches, as multiples of a prompt that is not cached.
func TestCachingPays(t *testing.T) {
	reg := sold(t)
	const n = 10_000
	for _, c := range []struct {
		name, provider, model string
		calls                 []model.Usage
		want                  float64
	}{
		{"OpenAI: one write and nine reads", "openai", "gpt-6-sol", append(slices.Repeat([]model.Usage{{Prompt: n, Cached: n}}, 9), model.Usage{Prompt: n, CacheWrite: n}), 2.15},
		{"Anthropic: a write for five minutes", "anthropic", "claude-opus-4-8", []model.Usage{{Prompt: n, CacheWrite: n}}, 1.25},
		{"Anthropic: a write for an hour", "anthropic", "claude-opus-4-8", []model.Usage{seam.WithCacheWriteHour(model.Usage{Prompt: n, CacheWrite: n}, n)}, 2},
		{"Anthropic: a read", "anthropic", "claude-opus-4-8", []model.Usage{{Prompt: n, Cached: n}}, 0.1},
		{"Anthropic: a read of Fable 5.1", "anthropic", "claude-fable-5-1", []model.Usage{{Prompt: n, Cached: n}}, 0.025},
	} {
		known := reg.Knows(c.provider, c.model)
		whole, ok := known.Cost(model.Usage{Prompt: n})
		var got int64
		for _, u := range c.calls {
			nanos, _ := known.Cost(u)
			got += nanos
		}
		if share := float64(got) / float64(whole); !ok || math.Abs(share-c.want) > 1e-9 {
			t.Errorf("%s: %v of %v, want %v", c.name, share, whole, c.want)
		}
	}
}

// No usage is billed below zero, and more tokens never make a call cheaper, as
// long as they are not known to have been cached.
func TestCostIsMonotone(t *testing.T) {
	reg := sold(t)
	var models [][2]string
	for _, p := range catalog.Builtin().Providers() {
		for _, f := range catalog.Builtin().Families(p) {
			if reg.Knows(p, f).Price != nil {
				models = append(models, [2]string{p, f})
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, 1_000_000)
		u := model.Usage{
			Prompt: count.Draw(t, "prompt"), Completion: count.Draw(t, "completion"), Cached: count.Draw(t, "cached"),
			CacheWrite: count.Draw(t, "write"), Thoughts: count.Draw(t, "thoughts"),
		}
		u = seam.WithCacheWriteHour(u, count.Draw(t, "hour"))
		u.Prompt, u.Completion = u.Prompt+u.Cached+u.CacheWrite, u.Completion+u.Thoughts
		m := rapid.SampledFrom(models).Draw(t, "model")
		known := reg.Knows(m[0], m[1])
		before, ok := known.Cost(u)
		if !ok || before < 0 {
			t.Fatalf("%v: %+v costs %v, %v", m, u, before, ok)
		}
		*rapid.SampledFrom([]*int64{&u.Prompt, &u.Completion, &u.CacheWrite, seam.Hour(&u), &u.Thoughts}).Draw(t, "which") += count.Draw(t, "more")
		if after, _ := known.Cost(u); after < before {
			t.Fatalf("%v: %+v costs %v, less than %v with fewer tokens", m, u, after, before)
		}
	})
}

// What a provider knows of itself is laid over the built-in table, and the
// server's own table over all of it.
func TestCatalogsOverEachOther(t *testing.T) {
	base := sold(t, seller{provider{name: "acme"}, model.Description{Catalog: acmeCatalog}}, provider{name: "silent"})
	reg, err := base.WithCatalog(catalog.MustParse("prices.yaml", `
date: 2026-09-09
providers:
  acme: {big: {price: {input: 9, output: 9}}}
  silent: {big: {price: {input: 8, output: 8}}}
  openai: {gpt-5: {price: {input: 7, output: 7}}}
  openai-chat: {gpt-5: {price: {input: 6, output: 6}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"acme/big": 9, "silent/big": 8, "openai/gpt-5": 7, "openai-chat/gpt-5": 6, "openai-chat/gpt-5-mini": 0.25, "gemini/gemini-2.5-flash": 0.30} {
		provider, m, _ := strings.Cut(name, "/")
		e := reg.Knows(provider, m)
		if e.Price == nil || e.Price.Input != want {
			t.Errorf("%s: %+v, want %v", name, e.Price, want)
		}
	}
	if e := reg.Knows("acme", "big"); e.Capabilities == nil || e.Capabilities.ContextTokens != 1000 || e.Date != "2026-09-09" {
		t.Errorf("acme/big: %+v", e)
	}
	if e := base.Knows("silent", "big"); e.Price != nil {
		t.Errorf("the first registry has changed: %+v", e)
	}
	for _, st := range reg.Providers() {
		switch st.Provider {
		case "acme":
			if want := []string{"acme/big", "acme/gpt-5"}; !slices.Equal(st.Models, want) {
				t.Errorf("models %q, want %q", st.Models, want)
			}
		case "openai":
			if !slices.Contains(st.Models, "gpt-5") || slices.Contains(st.Models, "openai/gpt-5") {
				t.Errorf("models %q", st.Models)
			}
		}
	}
}

// A server that only speaks OpenAI's interface has the models that the operator says
// it has. One of a name of OpenAI's costs as much as there: it may be a proxy.
func TestModelsOfOtherServers(t *testing.T) {
	at := func(baseURL, prices string) *models.Registry {
		t.Helper()
		reg, err := models.NewRegistry(openai.New(openai.Config{BaseURL: baseURL}), openai.New(openai.Config{Name: "openai-chat", BaseURL: baseURL}), anthropic.New(anthropic.Config{}))
		if err == nil && prices != "" {
			reg, err = reg.WithCatalog(catalog.MustParse("prices.yaml", "date: 2026-10-10\nproviders: "+prices))
		}
		if err != nil {
			t.Fatal(err)
		}
		return reg
	}
	for _, c := range []struct {
		baseURL, prices string
		listed          []string // of OpenAI's two; nil for those of the built-in table
		gpt5            float64
	}{
		{"", "", nil, 1.25},
		{"https://eu.api.openai.com/v1", "{openai: {gpt-5: {price: {input: 2, output: 2}}}}", nil, 2},
		{"http://127.0.0.1:11434/v1", "", []string{}, 1.25},
		{"https://x.openai.azure.com/openai/v1", "", []string{}, 1.25},
		{"http://127.0.0.1:11434/v1", "{openai: {qwen3: {price: {input: 1, output: 1}}, gpt-5: {price: {input: 0, output: 0}}}, openai-chat: {llama: {price: {input: 1, output: 1}}}}", []string{"gpt-5", "openai/qwen3", "openai-chat/llama"}, 0},
	} {
		reg := at(c.baseURL, c.prices)
		listed, others := []string{}, 0
		for _, st := range reg.Providers() {
			if st.Provider == "anthropic" {
				others = len(st.Models)
				continue
			}
			listed = append(listed, st.Models...)
		}
		slices.Sort(listed)
		slices.Sort(c.listed)
		if c.listed == nil && !slices.Equal(listed, catalog.Builtin().Families("openai")) || c.listed != nil && !slices.Equal(listed, c.listed) || others == 0 {
			t.Errorf("%q, prices %q: %q are listed, and %d others", c.baseURL, c.prices, listed, others)
		}
		nanos, known := reg.Knows("openai", "gpt-5").Cost(model.Usage{Prompt: 1_000_000})
		if !known || nanos != int64(c.gpt5*1e9) {
			t.Errorf("%q, prices %q: gpt-5 costs %v, %v", c.baseURL, c.prices, nanos, known)
		}
	}
}

func TestCatalogsOfOthersAreRefused(t *testing.T) {
	if _, err := sold(t).WithCatalog(catalog.MustParse("acme.yaml", acmeCatalog)); err == nil || !strings.Contains(err.Error(), `"acme"`) || !strings.Contains(err.Error(), "gemini") {
		t.Errorf("a table for a provider that is not there: %v", err)
	}
	if _, err := models.NewRegistry(seller{provider{name: "other"}, model.Description{Catalog: acmeCatalog}}); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a catalog of another provider: %v", err)
	}
	slip := "date: 2026-01-01\nproviders: {acme: {big: {price: {input: cheap, output: 4}}}}\n"
	_, err := models.NewRegistry(seller{provider{name: "acme"}, model.Description{Catalog: slip}})
	if err == nil || !strings.Contains(err.Error(), `catalog of provider "acme": acme:2:`) {
		t.Errorf("a catalog with a slip: %v", err)
	}
}
