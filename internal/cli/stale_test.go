package cli_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// TestStaleModels lists what is retired, soon to be, old or without a price, and says
// why; what is free or fresh is left out.
func TestStaleModels(t *testing.T) {
	price := func(day string) *agentdv1.ModelPrice {
		return &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{{Input: 1, Output: 2}}, Date: day}
	}
	models := []*agentdv1.Model{
		{Name: "gone", Provider: "a", Source: "page", Price: price(""), Retires: "2026-11-23"},
		{Name: "going", Provider: "a", Source: "page", Price: price(""), Retires: "2026-11-24"},
		{Name: "old", Provider: "a", Source: "page", Price: price("2026-08-24")},
		{Name: "fresh", Provider: "a", Source: "page", Price: price("2026-08-25")},
		{Name: "unpriced", Provider: "a", Source: "page"},
		{Name: "free", Provider: "echo", Price: price("")},
	}
	for days, want := range map[int]string{
		90: "gone: retired since 2026-11-23; going: retires on 2026-11-24; old: price of 2026-08-24, 91 days old; unpriced: no price is known",
		1: "gone: retired since 2026-11-23, price of 2026-11-21, 2 days old; going: retires on 2026-11-24, price of 2026-11-21, 2 days old; " +
			"old: price of 2026-08-24, 91 days old; fresh: price of 2026-08-25, 90 days old; unpriced: no price is known",
	} {
		var out bytes.Buffer
		p := &cli.Printer{Out: &out, Now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
		if err := p.StaleModels(models, "2026-11-21", days); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			name, rest, _ := strings.Cut(line, "  ")
			if _, rest, ok := strings.Cut(strings.TrimSpace(rest), "  "); ok && name != "MODEL" {
				what, source, _ := strings.Cut(strings.TrimSpace(rest), "  ")
				if strings.TrimSpace(source) != "page" {
					t.Errorf("%s was read at %q", name, source)
				}
				got = append(got, name+": "+what)
			}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%d days:\n%s\nwant\n%s\n%s", days, strings.Join(got, "; "), want, out.String())
		}
	}
	var out bytes.Buffer
	p := &cli.Printer{Out: &out, Now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	if err := p.StaleModels(models[3:4], "2026-11-21", 90); err != nil || !strings.Contains(out.String(), "No model is retired, and no price is older than 90 days.") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
