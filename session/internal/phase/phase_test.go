package phase

import "testing"

// Every phase can be reached.
func TestPhasesAreDrawn(t *testing.T) {
	if missing := phasesNotDrawn(); len(missing) > 0 {
		t.Errorf("nothing leads to %v", missing)
	}
}

// phasesNotDrawn are phases that a turn, or a call, that begins cannot come to.
func phasesNotDrawn() []string {
	begins := []Call{CallAsking}
	for p := CallOpen; p <= CallAbandoned; p++ {
		begins = append(begins, p)
	}
	return append(
		notReached("turn ", turnNames[:], turnTransitions, TurnNew),
		notReached("call ", callNames[:], callTransitions, begins...)...)
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
