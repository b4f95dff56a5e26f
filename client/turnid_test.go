package client_test

import (
	"errors"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// TestRunNamesItsTurn: the turn has the id that its caller has chosen, also for an
// Attach; a second one in the session is refused.
func TestRunNamesItsTurn(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	run := follow(c.Run(t.Context(), actor(), "hi", client.WithTurnID("mine")))
	started := run.until(t, isStarted)
	if started.TurnID != "mine" {
		t.Errorf("the turn is %q", started.TurnID)
	}
	s.says(t, "hello")
	completes(t, run, "hello")
	id := started.SessionID
	completes(t, follow(c.Attach(t.Context(), id, client.WithTurnID("mine"))), "hello")
	if _, err := c.Do(t.Context(), nil, "again", client.WithSessionID(id), client.WithTurnID("mine")); !errors.Is(err, client.ErrConflict) {
		t.Errorf("a second turn: %v", err)
	}
	if _, err := c.Do(t.Context(), nil, "again", client.WithSessionID(id), client.WithTurnID("not mine")); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("an id that is none: %v", err)
	}
}

// TestControlOfAnObserver: it changes nothing, and says so.
func TestControlOfAnObserver(t *testing.T) {
	s := newDaemon(t)
	c, _ := s.client(t)
	run := follow(c.Run(t.Context(), actor(), "hi"))
	id := run.until(t, isStarted).SessionID
	control := &client.Control{}
	other, _ := s.client(t)
	watch := follow(other.Attach(t.Context(), id, client.Observe(), client.WithControl(control)))
	watch.until(t, isStarted)
	for name, err := range map[string]error{"End": control.End("enough"), "Cancel": control.Cancel(), "CancelTool": control.CancelTool("c")} {
		if !errors.Is(err, client.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.says(t, "hello")
	completes(t, run, "hello")
	completes(t, watch, "hello")
}
