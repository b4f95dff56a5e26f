package session

import (
	"maps"

	"github.com/apzuk3/agentd/session/record"
)

// checkState asks the runner whether a turn can begin with the keys that its
// sessions have, shared ones included, and those of its request.
func (s *Session) checkState(spec *record.Spec, whole map[string]any, started *record.TurnStarted) error {
	state := maps.Clone(whole)
	writeState(state, started.State)
	writeState(state, started.Temp)
	return s.runner.CheckState(spec, state)
}
