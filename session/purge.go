package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/store"
)

// purgeAll purges unused sessions. The next round retries what fails.
func (m *Manager) purgeAll(ctx context.Context) {
	for ctx.Err() == nil {
		heads, err := m.store.Idle(ctx, m.store.Stamp().Add(-m.limits().PurgeAfter), live.ReadPage)
		if err != nil {
			return
		}
		done := 0
		for _, head := range heads {
			switch err := m.purge(ctx, head); {
			case err == nil:
				done++
				m.log.LogAttrs(ctx, slog.LevelInfo, "session purged",
					slog.String("session", head.ID), slog.Time("last_used", head.UpdatedAt))
			case !errors.Is(err, store.ErrConflict) && !isElsewhere(err) && ctx.Err() == nil:
				m.log.LogAttrs(ctx, slog.LevelWarn, "the log of a session that is not used is kept",
					slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < live.ReadPage || done == 0 {
			return
		}
	}
}

// purge removes the log of a session. It returns ErrConflict if the session is in use, or has a goal.
func (m *Manager) purge(ctx context.Context, head store.Head) error {
	if keeps, err := m.keepsGoal(ctx, head.ID); err != nil || keeps {
		return cmp.Or(err, store.ErrConflict)
	}
	return m.whileUnused(head.ID, refusal.Purged(head.ID), func() error {
		return m.store.Purge(ctx, head.ID, head.LastSeq)
	})
}
