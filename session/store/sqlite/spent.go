package sqlite

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// pay adds to what a tenant has spent.
func (t *tx) pay(b *store.Batch) error {
	if b.Spent.Tokens == 0 && b.Spent.Cost == 0 {
		return nil
	}
	tokens, cost := min(b.Spent.Tokens, rules.MostSpent), int64(min(b.Spent.Cost, rules.MostSpent))
	if err := write(t.addSpent, b.Payer, b.PaidOn, tokens, cost, rules.MostSpent); err != nil {
		return fmt.Errorf("spending of tenant %q: %w", b.Payer, err)
	}
	return nil
}

// Spent returns what a tenant has spent from a day to another; see store.Store.
func (s *Store) Spent(ctx context.Context, tenant string, from, to int64) (record.Spent, error) {
	out, err := view(ctx, s, func(ctx context.Context, r *reads) (out record.Spent, err error) {
		var cost int64
		err = r.getSpent.QueryRowContext(ctx, tenant, from, to).Scan(&out.Tokens, &cost)
		out.Cost = record.NanoUSD(cost)
		return out, err
	})
	if err != nil {
		return record.Spent{}, fmt.Errorf("sqlite: spending of tenant %q: %w", tenant, err)
	}
	return out, nil
}
