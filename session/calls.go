package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/record"
)

// Why turns are stopped without a client's wish.
const (
	interrupted  = "interrupted by a new turn"
	disconnected = "the client disconnected"
)

// Who is asked for a call: one client at a time, the newest that has the tool. One
// that is there because its prompt was injected may have named no tools and lack
// those of the turn: it comes last. When the client leaves, after a grace another
// one is asked. A call that no client can answer waits; its time does not run
// while nobody is there.
//
// Who is there are the watchers of the session. Whom a call is asked of, and every
// timer of a turn, follow from them and from the turn's calls: see reconcileLocked.

// openCallLocked takes a call that a record has opened.
func (s *Session) openCallLocked(t *Turn, call record.ToolCall) {
	t.opened++
	p := &pending{call: call, order: t.opened, done: make(chan struct{})}
	if call.Asks != nil {
		p.phase = callAsking
	}
	t.pending[call.ID] = p
}

// resolvedLocked takes what a person has said about a call.
func (s *Session) resolvedLocked(t *Turn, f *record.InteractionResolved) {
	t = s.nowLocked(t)
	t.resolved[f.ID] = f.Resolution
	if res := f.Result(); res != nil {
		s.settledLocked(t, res)
		return
	}
	if p := t.pending[f.ID]; p != nil {
		p.call = f.ApprovedCall(p.call)
		p.enter(s, callOpen)
	}
}

// takesPartLocked tells whether a watcher's client is one of the running turn's.
func (s *Session) takesPartLocked(w *Watcher) bool {
	return w.asks && s.nowLocked(w.t) == s.turn
}

// attendedLocked tells whether the running turn has a client.
func (s *Session) attendedLocked() bool {
	for w := range s.watchers {
		if s.takesPartLocked(w) {
			return true
		}
	}
	return false
}

// clientForLocked is the client to ask for a call of a tool, or nil: one that came
// after so many others.
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

// askedOfLocked are the open calls that a client is asked for, in the order in
// which they were opened.
func (s *Session) askedOfLocked(t *Turn, w *Watcher) []record.ToolCall {
	var out []record.ToolCall
	for _, p := range t.inOrder() {
		if p.owner == w && p.open() {
			out = append(out, p.call)
		}
	}
	return out
}

// inOrder are the calls nobody has settled yet, in the order in which they were
// opened. The caller holds s.mu.
func (t *Turn) inOrder() []*pending {
	return slices.SortedFunc(maps.Values(t.pending), byOrder)
}

func byOrder(a, b *pending) int { return cmp.Compare(a.order, b.order) }

// joinLocked lets a client in.
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

// leave lets a client go.
func (s *Session) leave(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.watchers[w]; ok {
		delete(s.watchers, w)
		s.leftLocked(w)
	}
}

// leftLocked sees to what a client leaves behind. It is not among the watchers any
// more.
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

// watchedLocked tells whether a client takes part in a turn that waits for its start.
func (s *Session) watchedLocked(t *Turn) bool {
	for w := range s.watchers {
		if w.t == t && w.asks {
			return true
		}
	}
	return false
}

// asksPerson is an interaction of the open turn that is pending, or "". Such a turn
// gives way to no prompt but one that interrupts.
func (s *Session) asksPerson() string {
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
