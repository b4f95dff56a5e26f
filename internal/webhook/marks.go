package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// percents are the shares of a budget at which hooks are told.
var percents = []int64{80, 100}

// partCost is the part of a budget that is money, in billionths of a dollar.
const partCost = "cost"

// A mark is a share of a budget that is spent. As a subject it is period:part:percent:used:limit; period is session,
// day or month, and part is tokens or cost; or goal, and its input_tokens, output_tokens or cost.
type mark struct {
	period, part         string
	percent, used, limit int64
}

func (m *mark) String() string {
	return fmt.Sprintf("%s:%s:%d:%d:%d", m.period, m.part, m.percent, m.used, m.limit)
}

var errMark = errors.New("the subject of a notice is no mark")

// parseMark reads what String writes.
func parseMark(text string) (m mark, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 5 {
		return m, errMark
	}
	m.period, m.part = parts[0], parts[1]
	for i, to := range []*int64{&m.percent, &m.used, &m.limit} {
		if *to, err = strconv.ParseInt(parts[2+i], 10, 64); err != nil {
			return m, errMark
		}
	}
	return m, nil
}

// crossed are the marks between what was spent before and after.
func crossed(period string, of record.Budget, before, after record.Spent) (out []mark) {
	for _, x := range []struct {
		part                 string
		limit, before, after int64
	}{
		{"tokens", of.Tokens, before.Tokens, after.Tokens},
		{partCost, int64(of.Cost), int64(before.Cost), int64(after.Cost)},
	} {
		out = append(out, reached(period, x.part, x.limit, x.before, x.after)...)
	}
	return out
}

// reached are the marks of a part of a budget between what was spent before and after.
func reached(period, part string, limit, before, after int64) (out []mark) {
	for _, percent := range percents {
		at := int64(float64(limit) * float64(percent) / 100)
		if percent == 100 {
			at = limit
		}
		if limit > 0 && before < at && at <= after {
			out = append(out, mark{period, part, percent, after, limit})
		}
	}
	return out
}

// marks are those of the session's budget that the calls of a batch reach.
func (s *Store) marks(ctx context.Context, b *store.Batch) (out []fact, err error) {
	if b.Spent.Tokens == 0 && b.Spent.Cost == 0 {
		return nil, nil
	}
	var budget record.Budget
	if b.Create != nil {
		budget = b.Create.Budget
	} else {
		info, err := s.Info(ctx, b.SessionID)
		if err != nil {
			return nil, err
		}
		budget = info.Budget
	}
	after := record.Spent{Tokens: b.Usage.Total, Cost: b.Usage.Cost}
	before := record.Spent{Tokens: after.Tokens - b.Spent.Tokens, Cost: after.Cost - b.Spent.Cost}
	last := &b.Records[len(b.Records)-1]
	for _, m := range crossed("session", budget.Least(s.cfg.SessionBudget()), before, after) {
		out = append(out, fact{BudgetMarked, last.TurnID, m.String(), last})
	}
	return out, nil
}

// Budgets are what tenants may spend in a day and in a month of UTC, by their names; "*" is each that is not named.
type Budgets struct{ Day, Month map[string]record.Budget }

// of is the budget of a tenant.
func budgetOf(all map[string]record.Budget, tenant string) record.Budget {
	if b, is := all[tenant]; is {
		return b
	}
	return all["*"]
}

// tenantMarks are the notices about what tenants have spent by now. A mark that was noted before has the same id.
func (s *Sender) tenantMarks(ctx context.Context, hooks []Hook, now time.Time) error {
	budgets := s.cfg.Budgets()
	if len(budgets.Day) == 0 && len(budgets.Month) == 0 {
		return nil
	}
	today := now.Unix() / (24 * 60 * 60)
	first := today - int64(now.Day()-1)
	type period struct {
		name string
		from int64
		of   map[string]record.Budget
	}
	for _, p := range []period{{"day", today, budgets.Day}, {"month", first, budgets.Month}} {
		if len(p.of) == 0 {
			continue
		}
		spent, err := s.queue.spent(ctx, p.from, today)
		if err != nil {
			return err
		}
		var notes []made
		for tenant, sum := range spent {
			for _, m := range crossed(p.name, budgetOf(p.of, tenant), record.Spent{}, sum) {
				for i := range hooks {
					if h := &hooks[i]; h.wants(BudgetMarked, tenant) && len(h.Labels) == 0 {
						notes = append(notes, markOf(h.Name, tenant, p.from, now, &m))
					}
				}
			}
		}
		if err := s.addNew(ctx, notes); err != nil {
			return err
		}
	}
	return nil
}

// markOf is a notice of a mark of a tenant; one of another budget is another mark.
func markOf(hook, tenant string, from int64, now time.Time, m *mark) made {
	id := noticeID(hook, tenant, m.period, fmt.Sprint(from), m.part, fmt.Sprint(m.percent), fmt.Sprint(m.limit))
	return made{tenant, store.Notice{ID: id, Hook: hook, Event: string(BudgetMarked), Subject: m.String(), At: now}}
}

// mostNoted bounds the marks that a sender remembers.
const mostNoted = 10_000

// addNew adds the notices that this sender has not added before.
func (s *Sender) addNew(ctx context.Context, all []made) error {
	all = slices.DeleteFunc(all, func(n made) bool { return s.noted[n.ID] })
	if err := s.queue.add(ctx, all); err != nil {
		return err
	}
	if len(s.noted) > mostNoted {
		clear(s.noted)
	}
	for i := range all {
		s.noted[all[i].ID] = true
	}
	return nil
}
