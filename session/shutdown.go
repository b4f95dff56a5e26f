package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
)

// stops counts what has become of the turns that ran when the server began to stop.
type stops struct {
	finished  int
	suspended int                     // between two steps
	cut       map[*live.Driver]string // SESSION/TURN of those that were suspended within model calls
	cutCalls  int                     // these model calls
}

// maxNamed bounds the turns that the log names.
const maxNamed = 20

// suspendAll refuses new turns and suspends those that run.
func (m *Manager) suspendAll() {
	lock.Do(&m.mu, func() { m.draining, m.stopping = true, true })
	for _, d := range m.runningNow() {
		calls := d.Suspend()
		if calls == 0 {
			continue
		}
		lock.Do(&m.mu, func() {
			if m.stops.cut != nil && m.stops.cut[d] == "" {
				m.stops.cut[d] = d.Turn().SessionID() + "/" + d.Turn().ID()
				m.stops.cutCalls += calls
			}
		})
	}
}

// stopped counts a turn that does not run any more, if the server stops.
func (m *Manager) stopped(d *live.Driver, suspended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.draining:
	case !suspended:
		m.stops.finished++
	case m.stops.cut[d] == "":
		m.stops.suspended++
	}
}

// errSuspended is what the clients of a suspended turn read. A server that stops leaves its sessions to others, if
// there are any, and so it does with what another one wants.
func (m *Manager) errSuspended(s *live.Session) *fault.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining && m.owners != nil || s.Yields() {
		return halt.ErrMoved
	}
	return halt.ErrResumedLater
}

// logStops says once what has become of the turns.
func (m *Manager) logStops() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stops.cut == nil {
		return
	}
	names := slices.Sorted(maps.Values(m.stops.cut))
	attrs := []slog.Attr{
		slog.Int("finished", m.stops.finished),
		slog.Int("suspended_between_steps", m.stops.suspended),
		slog.Int("model_calls_cut_off", m.stops.cutCalls),
	}
	if n := len(names); n > 0 {
		attrs = append(attrs, slog.Int("turns_cut_off", n), slog.Any("turns", names[:min(n, maxNamed)]))
	}
	m.stops.cut = nil
	m.log.LogAttrs(context.Background(), slog.LevelInfo, "the turns have stopped", attrs...)
}

// runningNow returns the running attempts.
func (m *Manager) runningNow() []*live.Driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.running))
}

// drain refuses new turns, lets running ones begin no further step, and ends the sweep and the timers of
// suspended turns.
func (m *Manager) drain() {
	lock.Do(&m.mu, func() {
		m.draining = true
		if m.endSweep != nil {
			m.endSweep()
		}
		for _, timer := range m.cancels {
			timer.Stop()
		}
		for _, w := range m.wakes {
			w.timer.Stop()
		}
	})
	m.store.Drain()
	for _, d := range m.runningNow() {
		d.Drain()
	}
}

// readersLook is how often a shutdown looks for sessions whose turns do not run any more.
const readersLook = 50 * time.Millisecond

// Shutdown refuses new turns and waits for model calls that are under way. Turns that wait (for a result, a
// person, a client, the next try of a model call, or their next model call) are suspended at once, and
// others when they come to that. When ctx ends, it suspends the rest and waits for Limits.StopGrace. The
// next server on the store resumes what was suspended. The error names the turns that still run. It may be
// called more than once.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.drain()
	m.endFollows()
	defer m.logStops()
	defer m.endHints() // observers of other servers see the turns to their end
	idle := make(chan struct{})
	go func() { // ends with the last turn
		m.turns.Wait()
		m.store.GiveUp()
		m.store.Flushers.Wait()
		close(idle)
	}()
	look := time.NewTicker(readersLook)
	defer look.Stop()
	defer m.endReaders() // of sessions whose turns have ended meanwhile
	for soft := true; soft; {
		m.endObserversOfSuspended()
		m.endReaders()
		select {
		case <-idle:
			return nil
		case <-ctx.Done():
			soft = false
		case <-look.C:
		}
	}
	m.suspendAll()
	m.store.GiveUp()
	defer time.AfterFunc(m.limits().StopGrace/2, m.store.Abort).Stop() // a store that hangs
	grace := time.NewTimer(m.limits().StopGrace)
	defer grace.Stop()
	select {
	case <-idle:
		return nil
	case <-grace.C:
	}
	var names []string
	for _, d := range m.runningNow() {
		names = append(names, d.Key()+"/"+d.Turn().ID())
	}
	slices.Sort(names)
	return fmt.Errorf("session: %d turns did not stop within %v: %s",
		len(names), m.limits().StopGrace, strings.Join(names, ", "))
}
