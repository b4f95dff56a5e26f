package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// suspendAll takes no new turns and has those that run leave their logs as they
// are.
func (m *Manager) suspendAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining, m.stopping = true, true
	for a := range m.running {
		a.cancel(ErrSuspended)
	}
}

// suspendWaiting does so with turns that only wait for a person, or for a client
// that is not there: that may take days.
func (m *Manager) suspendWaiting() {
	for _, a := range m.runningNow() {
		if a.t.s.onlyWaits(a) {
			a.cancel(ErrSuspended)
		}
	}
}

// runningNow are the attempts that run.
func (m *Manager) runningNow() []*attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.running))
}

// drain takes no new turns, and ends what the manager does by itself.
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

// waitingLook is how often a shutdown looks for turns that have come to wait.
const waitingLook = 50 * time.Millisecond

// Shutdown refuses new turns, waits for those that run until ctx ends, then suspends
// them, so that they are resumed when a server opens the store again, and waits
// a little longer. Turns that only wait for a person, or for a client that is not
// there, are suspended at once. It may be called again. The error names the turns
// that are still running.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.drain()
	idle := make(chan struct{})
	go func() { // ends with the last turn
		m.turns.Wait()
		m.store.giveUp()
		m.store.flushers.Wait()
		close(idle)
	}()
	look := time.NewTicker(waitingLook)
	defer look.Stop()
	defer m.endReaders() // of what has come to its end meanwhile
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
	m.store.giveUp()
	defer time.AfterFunc(m.limits.StopGrace/2, m.store.Abort).Stop() // a store that hangs
	grace := time.NewTimer(m.limits.StopGrace)
	defer grace.Stop()
	select {
	case <-idle:
		return nil
	case <-grace.C:
	}
	var names []string
	for _, a := range m.runningNow() {
		names = append(names, a.t.s.id+"/"+a.t.id)
	}
	slices.Sort(names)
	return fmt.Errorf("session: %d turns did not stop within %v: %s",
		len(names), m.limits.StopGrace, strings.Join(names, ", "))
}
