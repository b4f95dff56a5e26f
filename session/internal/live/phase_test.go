package live

import (
	"testing"

	"github.com/apzuk3/agentd/session/internal/phase"
)

// A change of phase that is not drawn is noticed: the tests of package session rely on that.
func TestUndrawn(t *testing.T) {
	defer func(f func(*Session, string)) { Undrawn = f }(Undrawn)
	noticed := ""
	Undrawn = func(_ *Session, change string) { noticed = change }
	over := newTurn(&Session{}, "t")
	over.phase = phase.TurnEnded
	over.enter(phase.TurnRunning)
	if noticed != "turn t: ended to running" {
		t.Errorf("a turn that is over runs again: noticed %q", noticed)
	}
}
