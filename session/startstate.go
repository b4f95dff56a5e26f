package session

import (
	"maps"

	"github.com/apzuk3/agentd/session/record"
)

// StateChecker is what a [Runner] may implement that knows what state its turns need.
type StateChecker interface {
	// CheckState refuses a spec that has passed Check and that cannot run with the
	// state its turn would begin with. Its errors are of type *fault.Error. It must not
	// change the state.
	CheckState(spec *record.Spec, state map[string]any) error
}

// checkState asks the runner whether a turn can begin with the keys that its
// sessions have, shared ones included, and those of its request.
func (s *Session) checkState(spec *record.Spec, whole map[string]any, started *record.TurnStarted) error {
	checker, ok := s.runner.(StateChecker)
	if !ok {
		return nil
	}
	state := maps.Clone(whole)
	writeState(state, started.State)
	writeState(state, started.Temp)
	return checker.CheckState(spec, state)
}
