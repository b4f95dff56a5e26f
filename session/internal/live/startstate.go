package live

import (
	"maps"

	"github.com/apzuk3/agentd/session/record"
)

// checkState has the runner check the state at the start of a turn: the session's keys, the shared ones,
// and those of the request.
func (s *Session) checkState(spec *record.Spec, whole map[string]any, started *record.TurnStarted) error {
	state := maps.Clone(whole)
	writeState(state, started.State)
	writeState(state, started.Temp)
	return s.runner.CheckState(spec, state)
}
