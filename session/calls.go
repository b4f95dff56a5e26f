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
//
// Who is there are the watchers of the session. Whom a call is asked of, and every
// timer of a turn but that of its budget, follow from them and from the turn's calls:
// see arrangeLocked.

// phase is what a pending call waits for; its timer belongs to the phase.
type phase int

const (
	phaseQuiet     phase = iota // a person is asked, or its result is being written; no timer
	phaseAsked                  // a client is asked; until the call's time is over
	phaseLeft                   // that client has left and may come back; until the grace is over
	phaseUnserved               // no client that is there has the tool
	phaseAbandoned              // nor will one have it: those that are there cannot answer
)

// open tells whether a client is to be asked for the call: no person is, and no
// result is on its way or refused from now on.
func (p *pending) open() bool {
	return p.call.Asks == nil && p.answering == nil && p.result == nil && !p.barred
}

// arrangeLocked brings the running turn in line with its clients and its calls: who
// is asked, and what its timers wait for. It is called when one of them has changed,
// and may be called at any time.
func (s *Session) arrangeLocked() {
	t := s.turn
	if t == nil || !t.running || t.ended != nil {
		return
	}
	why := s.unattendedLocked()
	for _, p := range t.inOrder() {
		s.askLocked(t, p, why)
	}
	s.paceLocked(t)
	s.leaveLocked(t)
	s.idleLocked(t)
	s.noteLeaveLocked(t)
}

// askLocked finds the client to ask for a call, and arms the call's timer when its
// phase or that client has changed. why is not empty if no client can answer.
func (s *Session) askLocked(t *Turn, p *pending, why string) {
	before := p.owner
	if p.open() && p.owner == nil {
		p.owner = s.clientForLocked(p.call.Name, p.newer)
	}
	is := phaseUnserved
	switch {
	case !p.open():
		is = phaseQuiet
	case p.owner != nil:
		is, p.newer = phaseAsked, 0
	case p.newer > 0:
		is = phaseLeft
	case why != "":
		is = phaseAbandoned
	}
	if is == p.is && p.owner == before {
		return
	}
	p.disarm()
	p.is = is
	switch is {
	case phaseAsked:
		p.owner.push(item{offer: &p.call})
		after := t.timeout(p.call.Name)
		p.settleAfterLocked(t, after, TimedOut, fmt.Sprintf("no answer within %v", after))
	case phaseLeft:
		p.handOverAfterLocked(s)
	case phaseAbandoned:
		p.settleAfterLocked(t, 0, Abandoned, why)
	case phaseUnserved:
		p.tellUnservedLocked(s)
	case phaseQuiet:
	}
	if is != phaseUnserved {
		p.unserved = false
	}
}

// handOverAfterLocked has a client asked that was there before, if the one that has
// left does not come back within the grace; all calls of that one at once, in order.
func (p *pending) handOverAfterLocked(s *Session) {
	p.timer = time.AfterFunc(time.Until(p.leftAt.Add(s.limits.HandoverGrace)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == nil {
			return
		}
		for _, o := range s.turn.pending {
			if o.newer > 0 && time.Since(o.leftAt) >= s.limits.HandoverGrace {
				o.newer = 0
			}
		}
		s.arrangeLocked()
	})
}

// settleAfterLocked has the call settled when it has been in its phase for so long.
func (p *pending) settleAfterLocked(t *Turn, d time.Duration, outcome Outcome, text string) {
	armed := p.armed
	p.timer = time.AfterFunc(d, func() {
		if locked(&t.s.mu, func() bool { return p.armed == armed }) {
			// An error here means that the call is settled, or that the store has
			// failed, which the turn itself meets.
			_ = t.s.settleAs(context.Background(), t, p.call.ID, outcome, text)
		}
	})
}

// disarm stops the timer of the call's phase; the call has none until it is arranged
// again.
func (p *pending) disarm() {
	p.is = phaseQuiet
	p.armed++
	if p.timer != nil {
		p.timer.Stop()
	}
}

// openCallLocked takes a call that a record has opened.
func (s *Session) openCallLocked(t *Turn, call ToolCall) {
	t.opened++
	t.pending[call.ID] = &pending{call: call, order: t.opened, done: make(chan struct{})}
	s.arrangeLocked()
	s.endLateLocked(t)
}

// resolvedLocked takes what a person has said about a call.
func (s *Session) resolvedLocked(t *Turn, f *InteractionResolved) {
	t = s.nowLocked(t)
	t.resolved[f.ID] = f.Resolution
	if res := f.result(); res != nil {
		s.settledLocked(t, res)
		return
	}
	if p := t.pending[f.ID]; p != nil {
		p.call = f.open(p.call)
	}
	s.arrangeLocked()
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
func (s *Session) askedOfLocked(t *Turn, w *Watcher) []ToolCall {
	var out []ToolCall
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
	return slices.SortedFunc(maps.Values(t.pending), func(a, b *pending) int { return cmp.Compare(a.order, b.order) })
}

// joinLocked lets a client in.
func (s *Session) joinLocked(w *Watcher) {
	s.clientsSeen++
	w.order = s.clientsSeen
	s.watchers[w] = struct{}{}
	if !w.asks {
		return
	}
	if w.t.leave != nil && slices.Contains(s.queued, w.t) {
		w.t.leave.Stop()
		w.t.leave = nil
	}
	if s.takesPartLocked(w) {
		s.turn.cancelAt = due{}
		s.armDeadlineLocked(s.turn)
		s.arrangeLocked()
	}
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
	if w.asks && w.t.waits != nil && slices.Contains(s.queued, w.t) {
		s.leftQueuedLocked(w.t)
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
		t.cancelAt = s.store.dueIn(t.onDisconnect.Grace)
	}
	s.arrangeLocked()
}

// leaveLocked has a turn canceled whose clients stay away, if they have asked for
// that.
func (s *Session) leaveLocked(t *Turn) {
	if !t.onDisconnect.Cancel || t.cancelAt.isZero() || s.attendedLocked() {
		stop(&t.leave)
		return
	}
	if t.leave != nil {
		return
	}
	t.leave = time.AfterFunc(t.cancelAt.left(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.leave = nil
		if t != s.turn || !t.running || t.ended != nil {
			return
		}
		if !t.cancelAt.isZero() && t.cancelAt.left() <= 0 && !s.attendedLocked() {
			t.haltLocked(disconnected)
			return
		}
		s.arrangeLocked() // somebody came meanwhile, and may have left again
	})
}

// awaitsClientLocked tells whether the running turn needs a client, and none is
// there.
func (s *Session) awaitsClientLocked(t *Turn) bool {
	return len(t.pending) > 0 && !s.attendedLocked()
}

// idleLocked has a turn suspended that waits for a client which is not there. One
// that is to be canceled for that stays.
func (s *Session) idleLocked(t *Turn) {
	if !s.awaitsClientLocked(t) || t.leave != nil {
		stop(&t.idle)
		return
	}
	if t.idle == nil {
		t.idle = time.AfterFunc(s.limits.IdleTurn, func() { s.putAside(t) })
	}
}

// putAside has a waiting turn leave memory, unless somebody came, or a part of
// it still works. Where another prompt waits for its end, it ends.
func (s *Session) putAside(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t != s.turn || t.ended != nil || !t.running {
		return
	}
	t.idle = nil
	switch {
	case !s.awaitsClientLocked(t):
	case len(t.modelCalls) > 0, len(s.queued) > 0 && s.asksPersonLocked() != "":
	case len(s.queueing) > 0, t.answeringLocked(): // what comes is just being recorded
	case len(s.queued) > 0:
		t.haltLocked(interrupted)
		return
	default:
		t.leaving = true
		t.cancel(ErrPutAside)
		return
	}
	s.idleLocked(t)
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
		t.cancel(Errorf(codeTimeout, "the turn took longer than %v", s.limits.TurnTimeout).
			Over("turn_time_ms", int(s.limits.TurnTimeout.Milliseconds()), 0))
	})
}

// paceLocked has the turn's time stand still while the turn only waits: for a
// client that is not there, or for a person, whoever is there.
func (s *Session) paceLocked(t *Turn) {
	if !t.running || t.ended != nil || t.deadline == nil {
		return
	}
	waits := s.awaitsClientLocked(t) || t.awaitsPerson()
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
		return pending[0].ID()
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

// stopTimersLocked stops what waits for a client to come or stay away, and the time
// of the turn.
func (t *Turn) stopTimersLocked() {
	stop(&t.leave)
	stop(&t.idle)
	if t.deadline != nil {
		t.deadline.Stop()
	}
}

// stop stops a timer, if there is one, and forgets it.
func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}
