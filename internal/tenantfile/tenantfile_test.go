package tenantfile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/tenantfile"
)

func TestParse(t *testing.T) {
	got, err := tenantfile.Parse("tenants.yaml", []byte(`tenants:
  acme:
    day_budget: {tokens: 5000000, cost: 20.5}
    month_budget: {cost: 300}
  "u/v": {}
`))
	want := map[string]tenantfile.Tenant{
		"acme": {Day: tenantfile.Amount{Tokens: 5_000_000, Cost: 20.5}, Month: tenantfile.Amount{Cost: 300}}, "u/v": {},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got %v:\n%s", err, diff)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string][]string{
		"":                        {"tenants"},
		"tenants: [acme]":         {"tenants.yaml", "1:10"},
		"tenants: {a: {day: {}}}": {"1:15", "day"},
		"tenants: {a: {day_budget: {tokens: -1}}, b: {month_budget: {cost: -1}}}": {`day_budget of tenant "a"`, `month_budget of tenant "b"`},
		"tenants: {a: {day_budget: {cost: .nan}}}":                                {`day_budget of tenant "a"`},
		"tenants: {a: {day_budget: {calls: 1}}}":                                  {"calls"},
		"tenants: {a: {month_budget: {tokens: many}}}":                            {"1:38"},
		"tenants: {" + strings.Repeat("a: {}, ", 10) + "b: {}}":                   {"a"},
		strings.Repeat("#", tenantfile.MaxBytes+1):                                {"bytes"},
		"tenants:\n  a: {day_budget: {cost: 1}}\n  a: {day_budget: {cost: 2}}\n":  {"3:3"},
	} {
		_, err := tenantfile.Parse("tenants.yaml", []byte(text))
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%.60q: %v, want %q", text, err, part)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("tenants: {acme: {day_budget: {tokens: 1, cost: 2}}}"))
	f.Add([]byte("tenants:\n  a:\n    month_budget: {cost: 1e300}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := tenantfile.Parse("f", data)
		if err != nil {
			return
		}
		for name, tenant := range got {
			for _, a := range []tenantfile.Amount{tenant.Day, tenant.Month} {
				if a.Tokens < 0 || !(a.Cost >= 0) {
					t.Errorf("%q: %+v", name, tenant)
				}
			}
		}
	})
}
