package live

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/record"
)

// The reasons of cancels that no client asked for.
const (
	Interrupted  = "interrupted by a new turn"
	Disconnected = "the client disconnected"
)

// A call is offered to one client at a time: the newest that has the tool. Clients of injected prompts
// come last, since they may lack the tools of the turn. When the client leaves, the call is handed over
// to another one after a grace. A call that no client can run waits; its timeout does not run meanwhile.
//
// The clients are the watchers of the session that take part in the turn. Offers and timers follow from
// them and from the calls: see reconcileLocked.

// openCallLocked adds a call to the pending ones.
func (s *Session) openCallLocked(t *Turn, call record.ToolCall) {
	t.opened++
	p := &pending{call: call, order: t.opened, asked: s.lastAt, done: make(chan struct{})}
	if call.Asks != nil {
		p.phase = phase.CallAsking
	}
	t.pending[call.ID] = p
}

// applyResolutionLocked applies a resolution: the call has its result, or is open for clients.
func (s *Session) applyResolutionLocked(t *Turn, f *record.InteractionResolved) {
	t = s.nowLocked(t)
	if f.N > 0 {
		if p := t.pending[f.ID]; p != nil {
			s.answeredLocked(t, p, f.N)
		}
		return
	}
	t.resolved[f.ID] = f.Resolution
	if res := f.Result(); res != nil {
		s.applyResultLocked(t, res)
		return
	}
	if p := t.pending[f.ID]; p != nil {
		p.call, p.asked = f.ApprovedCall(p.call), s.lastAt
		p.enter(s, phase.CallOpen)
	}
}

// takesPartLocked reports whether a watcher's client takes part in the session's turn.
func (s *Session) takesPartLocked(w *Watcher) bool {
	return w.asks && s.nowLocked(w.t) == s.turn
}

// attendedLocked reports whether a client takes part in the session's turn.
func (s *Session) attendedLocked() bool {
	for w := range s.watchers {
		if s.takesPartLocked(w) {
			return true
		}
	}
	return false
}

// clientForLocked returns the client for a call of a tool, with an order above after, or nil.
func (s *Session) clientForLocked(tool string, after int) *Watcher {
	var found *Watcher
	for w := range s.watchers {
		if !s.takesPartLocked(w) || !w.tools[tool] || w.order <= after {
			continue
		}
		own := w.t.id == s.turn.id
		other := found != nil && found.t.id == s.turn.id
		if found == nil || own && !other || own == other && w.order > found.order {
			found = w
		}
	}
	return found
}

// askedOfLocked returns the calls that are offered to a client, in the order in which they were opened.
func (s *Session) askedOfLocked(t *Turn, w *Watcher) []record.ToolCall {
	var out []record.ToolCall
	for _, p := range t.inOrder() {
		if p.owner == w && p.open() {
			out = append(out, p.call)
		}
	}
	return out
}

// inOrder returns the pending calls in the order in which they were opened. The caller holds s.mu.
func (t *Turn) inOrder() []*pending {
	return slices.SortedFunc(maps.Values(t.pending), byOrder)
}

func byOrder(a, b *pending) int { return cmp.Compare(a.order, b.order) }

// joinLocked adds a watcher to the session.
func (s *Session) joinLocked(w *Watcher) {
	s.clientsSeen++
	w.order = s.clientsSeen
	s.watchers[w] = struct{}{}
	if !w.asks {
		return
	}
	if slices.Contains(s.queued, w.t) {
		w.t.cancelAt = clock.Due{}
	}
	if s.takesPartLocked(w) {
		s.turn.cancelAt = clock.Due{}
		s.restartDeadline(s.turn.attempt)
	}
	s.reconcileLocked()
}

// leave removes a watcher from the session.
func (s *Session) leave(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.watchers[w]; ok {
		delete(s.watchers, w)
		s.leftLocked(w)
	}
}

// leftLocked starts the grace of the calls and of the turn of a client that has left. Its watcher is
// already removed.
func (s *Session) leftLocked(w *Watcher) {
	defer s.reconcileLocked()
	if w.asks && slices.Contains(s.queued, w.t) && !s.watchedLocked(w.t) {
		w.t.cancelAt = s.store.In(w.t.onDisconnect.Grace)
	}
	if !s.takesPartLocked(w) || s.turn.ended != nil {
		return
	}
	t := s.turn
	for _, p := range t.pending {
		if p.owner == w {
			p.owner, p.newer, p.leftAt = nil, s.clientsSeen, time.Now()
		}
	}
	if !s.attendedLocked() {
		t.cancelAt = s.store.In(t.onDisconnect.Grace)
	}
}

// watchedLocked reports whether a client takes part in a queued turn.
func (s *Session) watchedLocked(t *Turn) bool {
	for w := range s.watchers {
		if w.t == t && w.asks {
			return true
		}
	}
	return false
}

// AsksPerson returns the id of a pending interaction of the open turn, or "". Only a prompt that interrupts
// ends such a turn.
func (s *Session) AsksPerson() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asksPersonLocked()
}

func (s *Session) asksPersonLocked() string {
	if in := s.index.Asks(); in != nil && !s.inheritedOpenLocked() {
		return in.ID()
	}
	return ""
}
