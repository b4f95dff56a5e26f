package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
)

// suspendAll refuses new turns and suspends those that run.
func (m *Manager) suspendAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining, m.stopping = true, true
	for d := range m.running {
		d.Suspend()
	}
}

// suspendWaiting suspends turns that only wait for a person or an absent client: that may take days.
func (m *Manager) suspendWaiting() {
	for _, d := range m.runningNow() {
		if d.OnlyWaits() {
			d.Suspend()
		}
	}
}

// runningNow returns the running attempts.
func (m *Manager) runningNow() []*live.Driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.running))
}

// drain refuses new turns, and ends the sweep and the timers of suspended turns.
func (m *Manager) drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining = true
	if m.endSweep != nil {
		m.endSweep()
	}
	for _, timer := range m.cancels {
		timer.Stop()
	}
}

// waitingLook is how often a shutdown looks for turns that only wait by now.
const waitingLook = 50 * time.Millisecond

// Shutdown refuses new turns and waits for the running ones. Turns that only wait for a person or an
// absent client are suspended at once. When ctx ends, it suspends the others, so that the next server on
// the store resumes them, and waits for Limits.StopGrace. The error names the turns that still run. It
// may be called more than once.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.drain()
	idle := make(chan struct{})
	go func() { // ends with the last turn
		m.turns.Wait()
		m.store.GiveUp()
		m.store.Flushers.Wait()
		close(idle)
	}()
	look := time.NewTicker(waitingLook)
	defer look.Stop()
	defer m.endReaders() // of sessions whose turns have ended meanwhile
	for soft := true; soft; {
		m.suspendWaiting()
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
	defer time.AfterFunc(m.limits.StopGrace/2, m.store.Abort).Stop() // a store that hangs
	grace := time.NewTimer(m.limits.StopGrace)
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
		len(names), m.limits.StopGrace, strings.Join(names, ", "))
}
