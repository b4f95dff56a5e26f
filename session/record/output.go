package record

import (
	"cmp"
)

// Final reports whether the event is a response that a turn may end with: one that has text and no tool
// call for the client. The last one is the turn's output.
func (e *Event) Final() bool { return e.Text != "" && len(e.Calls) == 0 && e.Injected == "" }

// FinalText is the output of an agent.
func (e *Event) FinalText() string { return cmp.Or(e.Output, e.Text) }
