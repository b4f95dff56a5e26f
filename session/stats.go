package session

import (
	"context"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/tally"
)

const (
	// suspendedPage is how many open turns Stats reads at once, and mostSuspended where it stops.
	suspendedPage = 1000
	mostSuspended = 100_000
)

// Stats counts sessions, turns and watchers. It looks at each session in memory, and at most 100,000 open turns of
// the store. An error is that of the store; what is in memory is counted then.
func (m *Manager) Stats(ctx context.Context) (tally.Tally, error) {
	st := tally.Tally{Lags: m.store.Lags.Load()}
	m.sessions.Each(func(s *live.Session, _, _ int) { s.AddTo(&st) })
	driven := lock.Get(&m.mu, func() map[string]bool {
		keys := make(map[string]bool, len(m.running))
		for d := range m.running {
			keys[d.Key()] = true
		}
		return keys
	})
	for last := ""; st.Suspended < mostSuspended; {
		heads, err := m.store.OpenTurns(ctx, last, suspendedPage)
		if err != nil {
			return st, err
		}
		for _, h := range heads {
			if last = h.ID; !driven[h.ID] {
				st.Suspended++
			}
		}
		if len(heads) < suspendedPage {
			break
		}
	}
	return st, nil
}
