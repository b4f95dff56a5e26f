package live

import (
	"fmt"
	"log/slog"

	"github.com/apzuk3/agentd/session/internal/phase"
)

// A turn and a tool call each have one phase, which one function changes: [Turn.enter] and [pending.enter].
// Offers and timers follow from the phases: see [Session.reconcileLocked].

// Undrawn is called for a transition that package phase has not drawn: it logs it. In tests it panics.
var Undrawn = func(s *Session, change string) {
	s.store.Log.Error("a phase was changed in a way that is not drawn",
		slog.String("session", s.id), slog.String("change", change))
}

// enter is the one function that changes the phase of a turn. The caller holds s.mu.
func (t *Turn) enter(to phase.Turn) {
	if !t.phase.MayBecome(to) {
		Undrawn(t.s, fmt.Sprintf("turn %s: %v to %v", t.id, t.phase, to))
	}
	t.phase = to
}

// runs reports whether a goroutine drives the turn and the turn has not ended.
func (t *Turn) runs() bool {
	return t.phase == phase.TurnRunning || t.phase == phase.TurnSuspending || t.phase == phase.TurnEnding && !t.closes
}

// isClosing reports whether the turn is being closed: nothing drives it, and a caller waits for its end.
func (t *Turn) isClosing() bool {
	return t.phase == phase.TurnClosing || t.phase == phase.TurnEnding && t.closes
}

// unend returns the turn to the phase before its end was on its way.
func (t *Turn) unend() {
	if t.closes {
		t.enter(phase.TurnClosing)
	} else {
		t.enter(phase.TurnRunning)
	}
}

// enter is the one function that changes the phase of a call. It stops the timer of the previous phase. The
// caller holds s.mu.
func (p *pending) enter(s *Session, to phase.Call) {
	if !p.phase.MayBecome(to) {
		Undrawn(s, fmt.Sprintf("call %s: %v to %v", p.call.ID, p.phase, to))
	}
	p.alarm.Stop()
	p.phase = to
	if to != phase.CallOpen && to != phase.CallUnserved {
		p.unserved = false
	}
}

// open reports whether the call is for a client.
func (p *pending) open() bool { return p.phase.IsOpen() }

// isBusy reports whether a result or a resolution of the call is on its way into the log. p.tried is
// closed when the write has succeeded or failed.
func (p *pending) isBusy() bool {
	return p.phase == phase.CallRecording || p.phase == phase.CallResolving
}

// reopen returns the call to the phase before it was busy or sealed.
func (p *pending) reopen(s *Session) {
	if p.call.Asks != nil {
		p.enter(s, phase.CallAsking)
	} else {
		p.enter(s, phase.CallOpen)
	}
}

// unseal reopens the sealed calls of a turn that has not ended.
func (t *Turn) unseal() {
	for _, p := range t.pending {
		if p.phase == phase.CallSealed {
			p.reopen(t.s)
		}
	}
}
