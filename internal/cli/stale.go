package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// StaleModels lists the models of which something is old, and what: they are retired
// or soon to be, their price was read more than so many days ago, or none is known.
// pricesDate is the day of the prices that do not say theirs.
func (p *Printer) StaleModels(models []*agentdv1.Model, pricesDate string, days int) error {
	stale := slices.DeleteFunc(slices.Clone(models), func(m *agentdv1.Model) bool {
		return len(p.staleness(m, pricesDate, days)) == 0
	})
	if len(stale) == 0 && !p.JSON {
		return p.Done("No model is retired, and no price is older than %d days.", days)
	}
	header := []string{"MODEL", "PROVIDER", "WHAT IS OLD", "READ AT"}
	return list(p, stale, header, func(m *agentdv1.Model) []string {
		old := strings.Join(p.staleness(m, pricesDate, days), ", ")
		return []string{m.GetName(), m.GetProvider(), old, cmp.Or(m.GetSource(), "-")}
	})
}

// staleness is what is old of a model, nothing for one that is free.
func (p *Printer) staleness(m *agentdv1.Model, pricesDate string, days int) []string {
	today := p.Now.UTC().Format(time.DateOnly)
	var out []string
	if day := m.GetRetires(); day != "" && day <= today {
		out = append(out, "retired since "+day)
	} else if day != "" {
		out = append(out, "retires on "+day)
	}
	day := cmp.Or(m.GetPrice().GetDate(), pricesDate)
	switch read, err := time.Parse(time.DateOnly, day); {
	case m.GetPrice() == nil && m.GetSource() != "":
		out = append(out, "no price is known")
	case m.GetPrice() == nil, err != nil, m.GetSource() == "":
	default:
		if age := int(p.Now.Sub(read).Hours() / 24); age > days {
			out = append(out, fmt.Sprintf("price of %s, %d days old", day, age))
		}
	}
	return out
}
