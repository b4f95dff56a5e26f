package live

import (
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/tally"
	"github.com/apzuk3/agentd/session/record"
)

// AddTo counts the session, its turns and its watchers.
func (s *Session) AddTo(to *tally.Tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.Sessions++
	to.Queued += len(s.queued)
	switch t := s.turn; {
	case t == nil || !t.runs():
	case s.statusLocked() == index.Running:
		to.Running++
	default:
		to.Waiting++
	}
	for w := range s.watchers {
		to.Reader(w.backlog.Len())
	}
}

// reportLocked reports the result of a tool call that is about to be applied.
func (s *Session) reportLocked(e *entry) {
	res, ok := e.fact.(*record.ToolResult)
	if !ok || s.store.OnToolResult == nil {
		return
	}
	if p := s.nowLocked(e.turn).pending[res.CallID]; p != nil {
		s.store.OnToolResult(res.Outcome, max(e.rec.Time.Sub(p.asked), 0)) // the clock may have been set back
	}
}
