package live

import (
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
)

// Stats are counts of what is in memory, and of what is suspended.
type Stats struct {
	// Sessions are those in memory.
	Sessions int
	// Running and Waiting are turns that a goroutine drives. The second only wait for a client or a person, and no
	// client works on a call of theirs. Queued turns wait for their start.
	Running, Waiting, Queued int
	// Suspended are the open turns of the store that nothing drives here.
	Suspended int
	// Behind is the sum, and FurthestBehind the largest, of what waits in the queues of watchers. Lagging are the
	// watchers that read the log, since their queue was dropped or has not begun.
	Behind, FurthestBehind, Lagging int
	// Lags is how often a watcher's queue was dropped since the start.
	Lags int64
}

// Lags is how often a watcher's queue was dropped since the start.
func (st *Store) Lags() int64 { return st.lags.Load() }

// AddTo counts the session, its turns and its watchers.
func (s *Session) AddTo(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Sessions++
	st.Queued += len(s.queued)
	if t := s.turn; t != nil && t.runs() {
		if s.statusLocked() == index.Running {
			st.Running++
		} else {
			st.Waiting++
		}
	}
	for w := range s.watchers {
		n, lagging := w.behind()
		st.Behind += n
		st.FurthestBehind = max(st.FurthestBehind, n)
		if lagging {
			st.Lagging++
		}
	}
}

// behind returns how many items wait for the watcher, and whether it reads the log instead.
func (w *Watcher) behind() (items int, lagging bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue), w.lagged && !w.closed
}

// reportLocked reports the result of a tool call that is about to be applied.
func (s *Session) reportLocked(e *entry) {
	res, ok := e.fact.(*record.ToolResult)
	if !ok || s.store.onToolResult == nil {
		return
	}
	if p := s.nowLocked(e.turn).pending[res.CallID]; p != nil {
		s.store.onToolResult(res.Outcome, max(e.rec.Time.Sub(p.asked), 0)) // the clock may have been set back
	}
}
