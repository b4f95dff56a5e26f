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
func phasesNotDrawn() (missing []string) {
	turns := map[turnPhase]bool{turnNew: true}
	for range turnPhaseNames {
		for from := range turns {
			for _, to := range turnTransitions[from] {
				turns[to] = true
			}
		}
	}
	for p, name := range turnPhaseNames {
		if !turns[turnPhase(p)] {
			missing = append(missing, "turn "+name)
		}
	}
	calls := map[callPhase]bool{callAsking: true}
	for p := callOpen; p <= callAbandoned; p++ {
		calls[p] = true
	}
	for range callPhaseNames {
		for from := range calls {
			for _, to := range callTransitions[from] {
				calls[to] = true
			}
		}
	}
	for p, name := range callPhaseNames {
		if !calls[callPhase(p)] {
			missing = append(missing, "call "+name)
		}
	}
	return missing
}
