package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
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

// openCallLocked takes a call that a record has opened.
func (s *Session) openCallLocked(t *Turn, call ToolCall) {
	t.opened++
	p := &pending{call: call, order: t.opened, done: make(chan struct{})}
	t.pending[call.ID] = p
	if call.Asks == nil {
		p.owner = s.clientForLocked(call.Name)
	}
	s.scheduleLocked(t, p)
	s.waitingLocked(t)
	s.paceLocked(t)
	s.endLateLocked(t)
}

// resolvedLocked takes what a person has said about a call.
func (s *Session) resolvedLocked(t *Turn, f *InteractionResolved) {
	t = s.nowIs(t)
	t.resolved[f.ID] = f.Resolution
	if res := f.result(); res != nil {
		s.settledLocked(t, res)
		return
	}
	if p := t.pending[f.ID]; p != nil {
		p.call = f.open(p.call)
		p.owner = s.clientForLocked(p.call.Name)
		s.scheduleLocked(t, p)
		s.waitingLocked(t)
	}
	s.paceLocked(t)
}

// nowIs is a turn as it is now: one that was put aside while a record of it was
// being written may run again.
func (s *Session) nowIs(t *Turn) *Turn {
	if s.turn != nil && s.turn.id == t.id {
		return s.turn
	}
	return t
}

// clientForLocked is the client to ask for a call of a tool, or nil.
func (s *Session) clientForLocked(tool string) *Watcher {
	var found *Watcher
	for w := range s.watchers {
		if s.nowLocked(w.t) != s.turn || !w.tools[tool] {
			continue
		}
		own := w.t == s.turn
		if found == nil || own != (found.t == s.turn) && own || own == (found.t == s.turn) && w.order > found.order {
			found = w
		}
	}
	return found
}

// askedOfLocked are the open calls that a client is asked for, in the order in
// which they were opened.
func (s *Session) askedOfLocked(t *Turn, w *Watcher) []ToolCall {
	var out []ToolCall
	for _, p := range t.inOrder() {
		if p.owner == w {
			out = append(out, p.call)
		}
	}
	return out
}

// inOrder are the calls nobody has settled yet, in the order in which they were
// opened. The caller holds s.mu.
func (t *Turn) inOrder() []*pending {
	return slices.SortedFunc(maps.Values(t.pending), func(a, b *pending) int { return cmp.Compare(a.order, b.order) })
}

// scheduleLocked arms the timer that settles a call nobody answers. It is
// unarmed while no client is asked, and where the turn does not run.
func (s *Session) scheduleLocked(t *Turn, p *pending) {
	p.disarm()
	outcome, after := TimedOut, t.timeout(p.call.Name)
	text := fmt.Sprintf("no answer within %v", after)
	switch {
	case !t.running, p.call.Asks != nil:
		return
	case p.owner == nil && t.unattended != "":
		outcome, after, text = Abandoned, 0, t.unattended
	case p.owner == nil:
		return
	}
	p.timer = time.AfterFunc(after, func() {
		// An error here means that the call is settled, or that the store has
		// failed, which the turn itself meets.
		_ = s.settleAs(context.Background(), t, p.call.ID, outcome, text)
	})
}

// joinLocked lets a client in. It is asked for the calls that nobody is asked
// for.
func (s *Session) joinLocked(w *Watcher) {
	s.clientsSeen++
	w.order = s.clientsSeen
	s.watchers[w] = struct{}{}
	if w.asks && w.t.leave != nil && slices.Contains(s.queued, w.t) {
		w.t.leave.Stop()
		w.t.leave = nil
	}
	if w.asks && s.nowLocked(w.t) == s.turn {
		s.takesPartLocked(w, s.turn)
	}
}

// takePartLocked lets the clients in that have waited for a turn's start.
func (s *Session) takePartLocked(t *Turn) {
	for w := range s.watchers {
		if w.t == t && w.asks {
			s.takesPartLocked(w, t)
		}
	}
}

func (s *Session) takesPartLocked(w *Watcher, t *Turn) {
	t.clients++
	t.unattended = s.unattendedLocked()
	t.stopTimersLocked()
	s.armDeadlineLocked(t)
	for _, p := range t.pending {
		if p.owner == nil && p.call.Asks == nil && w.tools[p.call.Name] {
			p.owner = w
		}
		s.scheduleLocked(t, p)
	}
}

// leftLocked sees to what a client leaves behind.
func (s *Session) leftLocked(w *Watcher) {
	t := s.nowLocked(w.t)
	if w.asks && w.t.waits != nil && slices.Contains(s.queued, w.t) {
		s.leftQueuedLocked(w.t)
	}
	if t != s.turn || !w.asks || t.ended != nil || !t.running {
		return
	}
	t.clients--
	s.disownLocked(t, w)
	if t.clients > 0 {
		return
	}
	if d := t.onDisconnect; d.Cancel {
		t.leave = time.AfterFunc(d.Grace, func() { t.halt(disconnected) })
		return
	}
	s.waitingLocked(t)
}

// disownLocked has the calls of a client that cannot answer any more given to
// another one, after a grace.
func (s *Session) disownLocked(t *Turn, w *Watcher) {
	orphans := false
	for _, p := range t.pending {
		if p.owner == w {
			p.owner = nil
			s.scheduleLocked(t, p)
			orphans = true
		}
	}
	if !orphans {
		return
	}
	if t.handover != nil {
		t.handover.Stop()
	}
	t.handover = time.AfterFunc(s.limits.HandoverGrace, func() { s.handOver(t) })
}

// handOver asks another client for the calls that nobody is asked for.
func (s *Session) handOver(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != s.turn || t.ended != nil {
		return
	}
	for _, p := range t.inOrder() {
		if p.owner == nil && p.call.Asks == nil {
			if p.owner = s.clientForLocked(p.call.Name); p.owner != nil {
				p.owner.push(item{offer: &p.call})
				s.scheduleLocked(t, p)
			}
		}
	}
}

// waitingLocked puts a turn aside that waits for a client which is not there.
func (s *Session) waitingLocked(t *Turn) {
	if !t.running || t.clients > 0 || t.unattended != "" || len(t.pending) == 0 {
		return
	}
	s.paceLocked(t)
	if t.idle != nil {
		t.idle.Stop()
	}
	t.idle = time.AfterFunc(s.limits.IdleTurn, func() { s.putAside(t) })
}

// putAside has a waiting turn leave memory, unless somebody came, or a part of
// it still works. Where another prompt waits for its end, it ends.
func (s *Session) putAside(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t != s.turn || t.ended != nil || t.clients > 0 || len(t.pending) == 0:
	case len(t.modelCalls) > 0, len(s.queued) > 0 && s.asksPersonLocked() != "":
		s.waitingLocked(t)
	case len(s.queueing) > 0, t.answeringLocked(): // what comes is just being recorded
		s.waitingLocked(t)
	case len(s.queued) > 0:
		t.haltLocked(interrupted)
	default:
		t.leaving = true
		t.cancel(ErrPutAside)
	}
}

// answeringLocked tells whether a result is on its way into the log.
func (t *Turn) answeringLocked() bool {
	for _, p := range t.pending {
		if p.answering != nil {
			return true
		}
	}
	return false
}

// armDeadlineLocked bounds the time that a turn runs without waiting.
func (s *Session) armDeadlineLocked(t *Turn) {
	if t.deadline != nil {
		t.deadline.Stop()
	}
	t.left = 0
	if !t.running {
		return
	}
	s.startDeadlineLocked(t, s.limits.TurnTimeout)
	s.paceLocked(t)
}

func (s *Session) startDeadlineLocked(t *Turn, d time.Duration) {
	t.due = time.Now().Add(d)
	t.deadline = time.AfterFunc(d, func() {
		t.cancel(Errorf(codeTimeout, "the turn took longer than %v", s.limits.TurnTimeout))
	})
}

// paceLocked has the turn's time stand still while the turn only waits: for a
// client that is not there, or for a person, whoever is there.
func (s *Session) paceLocked(t *Turn) {
	if !t.running || t.ended != nil || t.deadline == nil {
		return
	}
	waits := len(t.pending) > 0 && (t.clients == 0 && t.unattended == "" || t.awaitsPerson())
	switch {
	case waits && t.left == 0 && t.deadline.Stop():
		t.left = max(time.Until(t.due), 1)
	case !waits && t.left > 0:
		s.startDeadlineLocked(t, t.left)
		t.left = 0
	}
}

// asksPerson is an interaction of the open turn that is pending, or "". Such a turn
// gives way to no prompt but one that interrupts.
func (s *Session) asksPerson() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asksPersonLocked()
}

func (s *Session) asksPersonLocked() string {
	if pending := s.index.asked.pending; len(pending) > 0 && !s.inheritedOpenLocked() {
		return pending[0].Call.ID
	}
	return ""
}

// awaitsPerson tells whether a person is all that is waited for.
func (t *Turn) awaitsPerson() bool {
	for _, p := range t.pending {
		if p.call.Asks == nil {
			return false
		}
	}
	return len(t.pending) > 0 && len(t.modelCalls) == 0
}

// stopTimersLocked stops what waits for a client to come or stay away.
func (t *Turn) stopTimersLocked() {
	for _, timer := range []*time.Timer{t.leave, t.idle, t.deadline} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// disarm stops the timer, if there is one.
func (p *pending) disarm() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
