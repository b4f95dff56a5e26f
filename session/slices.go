package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/internal/storage"
)

// tend gives back what this server does not need of the budgets of tenants, until ctx ends.
func (m *Manager) tend(ctx context.Context) {
	tick := time.NewTicker(storage.TendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.store.Accounts.Tend(ctx); err != nil && ctx.Err() == nil {
			m.log.LogAttrs(ctx, slog.LevelDebug, "what budgets have left is not given back yet",
				slog.String("error", err.Error()))
		}
	}
}
