package session

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
)

// A server that does not reach the owner of a session, and reaches the store, asks the owner through that: how far the
// log says all, for observers that follow it alone; or to let go of the session, for clients that want to take part in
// it. The owner answers when it looks, each adoptEvery. It lets go between two steps of the turn, unless one of its own
// clients takes part, and does not claim the session again for a while.

const (
	// answerTimeout bounds one answer, and a request.
	answerTimeout = 2 * time.Second
	// givenFor is for how long a server does not claim a session again that it has let go because another one wants it.
	givenFor = 3 * time.Second
)

// handed is a session that was let go because the server at an address wants it.
type handed struct {
	to    string
	until time.Time // zero until it was let go
}

// Want asks the owner of a session, which this server does not reach, to let go of it: clients of this server want to
// take part in it. Who goes on wanting it says so again each second.
func (m *Manager) Want(ctx context.Context, id string) error {
	if m.owners == nil {
		return nil
	}
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, _, err = m.owners.Ask(ctx, key, true)
	return err
}

// answer answers what others ask of sessions of this server.
func (m *Manager) answer(ctx context.Context) {
	m.owners.Asked(func(key string, follows bool, settled int64, wants string) {
		s := m.sessionInMemory(key)
		if s == nil {
			return
		}
		epoch, held := s.Lease.Held()
		if !held {
			return
		}
		if wants != "" && s.Yield(wants) {
			lock.Do(&m.mu, func() { m.yielding[key], m.given[key] = s, handed{to: wants} })
		}
		if now := s.Settled(); follows && now != settled {
			m.settle(ctx, key, epoch, now)
		}
	})
	m.giveAll()
}

// settle answers those that follow a session in the log alone. The next look retries what fails.
func (m *Manager) settle(ctx context.Context, key string, epoch, settled int64) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := m.owners.Settle(ctx, key, epoch, settled); err != nil {
		m.log.LogAttrs(ctx, slog.LevelDebug, "observers who follow a session in the log alone are not answered yet",
			slog.String("session", key), slog.String("error", err.Error()))
	}
}

// giveAll lets go of what others want, and what has come to rest.
func (m *Manager) giveAll() {
	for key, s := range lock.Get(&m.mu, func() map[string]*live.Session { return maps.Clone(m.yielding) }) {
		if !s.IsLost() && !s.Rests() {
			continue
		}
		if epoch, held := s.Lease.Held(); held { // an observer has it
			s.Lose()
			due := SameDue
			if s.IsOpen() {
				due = 0
			}
			m.letGo(key, unreleased{epoch, due})
		}
		m.log.Info("a session is left to a server that wants it and does not reach this one",
			slog.String("session", key))
		lock.Do(&m.mu, func() {
			delete(m.yielding, key)
			m.given[key] = handed{m.given[key].to, time.Now().Add(givenFor)}
		})
	}
	lock.Do(&m.mu, func() {
		maps.DeleteFunc(m.given, func(key string, g handed) bool { return !m.isGivenLocked(key, g) })
	})
}

func (m *Manager) isGivenLocked(key string, g handed) bool {
	return m.yielding[key] != nil || time.Now().Before(g.until)
}

// gaveTo returns the address of the server that this one leaves a session to, "" for none.
func (m *Manager) gaveTo(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g, is := m.given[key]; is && m.isGivenLocked(key, g) {
		return g.to
	}
	return ""
}
