package session

import (
	"context"
	"log/slog"
	"time"
)

// A server that does not reach the owner of a session, and reaches the store, asks the owner through that: how far the
// log says all, for observers that follow it alone. The owner answers when it looks, each adoptEvery.

// answerTimeout bounds one answer.
const answerTimeout = 2 * time.Second

// answer answers what others ask of sessions of this server.
func (m *Manager) answer(ctx context.Context) {
	for _, asked := range m.owners.Asked() {
		s := m.sessionInMemory(asked.Key)
		if s == nil {
			continue
		}
		epoch, held := s.Lease.Held()
		settled := s.Settled()
		if !held || !asked.Follows || settled == asked.Settled {
			continue
		}
		if err := m.settle(ctx, asked.Key, epoch, settled); err != nil {
			m.log.LogAttrs(ctx, slog.LevelDebug, "observers who follow a session in the log alone are not answered yet",
				slog.String("session", asked.Key), slog.String("error", err.Error()))
		}
	}
}

func (m *Manager) settle(ctx context.Context, key string, epoch, settled int64) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return m.owners.Settle(ctx, key, epoch, settled)
}
