package tenantfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/tenantfile"
)

const table = "date: 2026-11-01\nproviders: {gemini: {gemini-x: {price: {input: 1, output: 2}}}}\n"

// around has a variable, a key file and a price file.
var around = tenantfile.Around{
	Getenv: func(name string) string { return map[string]string{"KEY": "sk-env-canary", "DIR": "/keys"}[name] },
	ReadKey: func(file string) (string, error) {
		switch file {
		case "/keys/acme":
			return "sk-file-canary", nil
		case "odd":
			return "sk-\x01", nil
		}
		return "", fmt.Errorf("open %s: no such file", file)
	},
	ReadPrices: func(file string) (*catalog.Table, error) {
		if file != "p.yaml" {
			return nil, errors.New(file + ":1:1: it is no table")
		}
		return catalog.Parse(file, []byte(table))
	},
	Providers: map[string]bool{"gemini": true, "anthropic": true, "openai": true, "acme": false},
}

func parse(text string) (map[string]tenantfile.Tenant, error) {
	return tenantfile.Parse("tenants.yaml", []byte(text), around)
}

func TestParse(t *testing.T) {
	got, err := parse(`tenants:
  acme:
    day_budget: {tokens: 5_000_000, cost: 20.5}
    month_budget: {cost: 300}
    models: [gemini-*, "openai/gpt-4o", scripted/demo]
    own_keys: true
    providers:
      gemini: {api_key: "${env:KEY}", base_url: "http://127.0.0.1:1/${env:KEY}"}
      openai: {api_key_file: "${env:DIR}/acme"}
      anthropic: {base_url: https://claude.example}
      acme: {api_key: sk-plain-canary}
    prices: p.yaml
  "u/v": {models: [], day_budget: {}}
  w:
    prices:
      date: 2026-11-02
      providers: {openai: {gpt-4o: {price: {input: 3, output: 4, long_from: 100, long: {input: 5, output: 6}}}}}
  x:
`)
	want := map[string]tenantfile.Tenant{
		"acme": {
			Day: &tenantfile.Amount{Tokens: 5_000_000, Cost: 20.5}, Month: &tenantfile.Amount{Cost: 300},
			Models: []string{"gemini-*", "openai/gpt-4o", "scripted/demo"}, OwnKeys: true,
			Providers: map[string]tenantfile.Provider{
				"gemini": {Key: "sk-env-canary", BaseURL: "http://127.0.0.1:1/sk-env-canary"}, "openai": {Key: "sk-file-canary"},
				"anthropic": {BaseURL: "https://claude.example"}, "acme": {Key: "sk-plain-canary"},
			},
			PricesAt: "p.yaml",
		},
		"u/v": {Day: &tenantfile.Amount{}, Models: []string{}}, "w": {PricesAt: "tenants.yaml:16:7"}, "x": {},
	}
	same := []cmp.Option{cmpopts.IgnoreFields(tenantfile.Tenant{}, "Prices"),
		cmp.Comparer(func(a, b tenantfile.Secret) bool { return string(a) == string(b) })}
	if diff := cmp.Diff(want, got, same...); err != nil || diff != "" {
		t.Fatalf("got %v:\n%s", err, diff)
	}
	if p := got["acme"].Prices.Find("gemini", "gemini-x").Price; p == nil || p.Input != 1 {
		t.Errorf("the price of a file is %v", p)
	}
	if p := got["w"].Prices.Find("openai", "gpt-4o").Price; p == nil || p.Output != 4 || p.Long.Output != 6 {
		t.Errorf("the price in the file is %v", p)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", got, got, got["acme"].Providers["openai"].Key)} {
		if strings.Contains(strings.ReplaceAll(shown, "/sk-env-canary", ""), "canary") {
			t.Errorf("a key is printed: %s", shown)
		}
	}
}

func TestRefusals(t *testing.T) {
	a := func(text string) string { return "tenants: {a: {" + text + "}}" }
	of := func(text string) string { return a("providers: {openai: {" + text + "}}") }
	for text, want := range map[string][]string{
		"":                {"tenants"},
		"tenants: [acme]": {"tenants.yaml:1:10", "a mapping"},
		"tenant: {}":      {`1:1: unknown key "tenant": did you mean tenants?`},
		a("day: {}"):      {"1:15: unknown key: known are day_budget, models, month_budget, own_keys, prices, providers"},
		a("model: []"):    {`1:15: unknown key "model": did you mean models?`},
		a("day_budget: {tokens: -1}, month_budget: {cost: -1}"): {"1:36: want a number of tokens", "1:62: want US dollars"},
		a("day_budget: {cost: .nan}"):                           {"1:34: want US dollars"},
		a("day_budget: {cost: 1e300}"):                          {"1:34: want US dollars"},
		a("day_budget: {calls: 1}"):                             {"1:28: unknown key"},
		a("month_budget: {tokens: many}"):                       {`1:38: want a number of tokens of at least 0, got the text "many"`},
		a("own_keys: yes please"):                               {"want true or false"},
		a("models: gemini-*"):                                   {"1:23: want a list of names of models"},
		a("models: [1, a b, x, x]"):                             {"1:24: want the name of a model", "1:27: want the name", `1:35: "x" is there twice`},
		a("models: [" + strings.Repeat("a, ", 1001) + "]"):      {"1001 models, at most 1000"},
		a("prices: none.yaml"):                                  {"1:23: none.yaml:1:1: it is no table"},
		a("prices: {providers: {}}"):                            {"1:23: date is missing"},
		a("prices: {date: 2026-01-01, providers: {openai: {m: {price: {input: -1, output: 1}}}}}"): {"-1 is no price"},
		a("prices: 7"):                               {"a table of prices, or the name of a file"},
		a("providers: {opnai: {api_key: k}}"):        {`unknown provider "opnai": did you mean openai?`},
		a("providers: {mistral-large: {}}"):          {"unknown provider: known are acme, anthropic, gemini, openai"},
		a("providers: {acme: {base_url: http://x}}"): {"the address of acme cannot be set"},
		of(""): {"want api_key, api_key_file or base_url", "own_keys"},
		of("api_key: sk-canary, api_key_file: x"):    {"are both there"},
		of("api_kee: sk-canary"):                     {`unknown key "api_kee": did you mean api_key?`},
		of("api_key: 123456canary, base_url: 12"):    {"want a URL, got a number"},
		of("api_key: 123456"):                        {"want a key, got a number: put it in quotes"},
		of("api_key: [sk-canary]"):                   {"want a key"},
		of("api_key: "):                              {"want a key"},
		of(`api_key: "sk-canary\nb"`):                {"want a key", "on one line"},
		of("api_key: '${env:NONE}'"):                 {"the environment variable NONE is not set"},
		of("api_key_file: none"):                     {"api_key_file: open none: no such file"},
		of("api_key_file: odd"):                      {"on one line"},
		of("base_url: sk-canary.example"):            {"want an http or https URL"},
		of("base_url: 'ftp://u:sk-canary@x'"):        {"want an http or https URL"},
		a("providers: {openai: sk-canary}"):          {"want a mapping of keys to values, got text"},
		a("providers: {openai: {sk-canary}}"):        {"unknown key: known are api_key, api_key_file, base_url"},
		a("providers: {sk-canary: {api_key: x}}"):    {"unknown provider: known are"},
		a("providers: {openai: {api_key: sk-canary"): {"tenants.yaml:1:"},
		"tenants:\n  a:\n    providers:\n     openai:\n      api_key: \"sk-canary\n": {"tenants.yaml:"},
		strings.Repeat("#", tenantfile.MaxBytes+1):                                   {"bytes"},
		"tenants:\n  a: {day_budget: {cost: 1}}\n  a: {day_budget: {cost: 2}}\n":     {"3:3"},
	} {
		got, err := parse(text)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%.90q: %v, want %q", text, err, part)
			}
		}
		if err != nil && strings.Contains(err.Error(), "canary") || got != nil {
			t.Errorf("%.90q: %v, %v", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("tenants: {acme: {day_budget: {tokens: 1, cost: 2}}}"))
	f.Add([]byte("tenants:\n  a:\n    month_budget: {cost: 1e300}\n"))
	f.Add([]byte("tenants: {a: {models: [gemini-*, '*'], own_keys: true, providers: {gemini: {api_key: '${env:KEY}'}}}}"))
	f.Add([]byte("tenants: {a: {providers: {openai: {api_key_file: /keys/acme, base_url: http://x}}, prices: p.yaml}}"))
	f.Add([]byte("tenants: {a: {prices: {date: 2026-11-02, providers: {openai: {m: {price: {input: 3, output: 4}}}}}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := tenantfile.Parse("f", data, around)
		if err != nil {
			if got != nil || strings.Contains(err.Error(), "sk-env-canary") || strings.Contains(err.Error(), "sk-file-canary") {
				t.Errorf("%v, %v", got, err)
			}
			return
		}
		for name, tenant := range got {
			for _, a := range []*tenantfile.Amount{tenant.Day, tenant.Month} {
				if a != nil && (a.Tokens < 0 || !(a.Cost >= 0)) {
					t.Errorf("%q: %+v", name, a)
				}
			}
			for of, p := range tenant.Providers {
				addressed, known := around.Providers[of]
				if !known || p == (tenantfile.Provider{}) || p.BaseURL != "" && !addressed ||
					strings.ContainsAny(string(p.Key), "\r\n\x00") {
					t.Errorf("%q has %q at %q", name, string(p.Key), of)
				}
			}
			for _, m := range tenant.Models {
				if m == "" || strings.ContainsAny(m, " \n") {
					t.Errorf("%q may use %q", name, m)
				}
			}
		}
	})
}
