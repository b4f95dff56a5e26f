package live

import "testing"

// Every phase can be reached, and a change that is not drawn is noticed: the tests of package session rely
// on that.
func TestPhasesAreDrawn(t *testing.T) {
	if missing := phasesNotDrawn(); len(missing) > 0 {
		t.Errorf("nothing leads to %v", missing)
	}
	defer func(f func(*Session, string)) { Undrawn = f }(Undrawn)
	noticed := ""
	Undrawn = func(_ *Session, change string) { noticed = change }
	over := newTurn(&Session{}, "t")
	over.phase = turnEnded
	over.enter(turnRunning)
	if noticed != "turn t: ended to running" {
		t.Errorf("a turn that is over runs again: noticed %q", noticed)
	}
}

// phasesNotDrawn are phases that a turn, or a call, that begins cannot come to.
func phasesNotDrawn() []string {
	begins := []callPhase{callAsking}
	for p := callOpen; p <= callAbandoned; p++ {
		begins = append(begins, p)
	}
	return append(
		notReached("turn ", turnPhaseNames[:], turnTransitions, turnNew),
		notReached("call ", callPhaseNames[:], callTransitions, begins...)...)
}

// notReached returns the names of phases to which no transitions lead from the first ones.
func notReached[P ~int](of string, names []string, transitions map[P][]P, first ...P) (missing []string) {
	reached := map[P]bool{}
	for queue := first; len(queue) > 0; queue = queue[1:] {
		if p := queue[0]; !reached[p] {
			reached[p] = true
			queue = append(queue, transitions[p]...)
		}
	}
	for p, name := range names {
		if !reached[P(p)] {
			missing = append(missing, of+name)
		}
	}
	return missing
}
